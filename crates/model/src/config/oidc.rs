//! Parser for `[oidc]`, the identity provider of the server `belljar serve`.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::Config;
use super::keys::{Invalid, ParseValue, Value, invalid, list, path, scalar, set, table, text};
use crate::caller::TenantId;
use crate::mount::anchor;
use crate::oidc::{GroupAccess, Issuer, OidcConfig};
use crate::role::Role;

/// The claim with the groups of a person, if the section names no other.
const GROUPS: &str = "groups";
/// The maximum length of the names of clients, claims, scopes and groups.
const MAX_NAME: usize = 256;
/// The tenant whose ledger has logins and tenants. Nobody has a role in it.
const RESERVED: &str = "system";

/// The parsed keys of the section, before they are checked together.
#[derive(Debug, Default)]
struct Raw {
    issuer: Option<Issuer>,
    client: Option<String>,
    secret_file: Option<PathBuf>,
    scopes: Option<Vec<String>>,
    groups: Option<String>,
    access: Option<Vec<GroupAccess>>,
}

const KEYS: [(&str, ParseValue<Raw>); 7] = [
    ("issuer", |raw, value| set(&mut raw.issuer, scalar(value))),
    ("client", |raw, value| set(&mut raw.client, word(value))),
    ("secret-file", |raw, value| set(&mut raw.secret_file, path(value))),
    // The text of this file is stored with runs, so it cannot contain a secret.
    ("secret", |_, _| {
        Err(invalid(
            "the secret is not part of this file; write it to a file that only you can read, and name that file with `secret-file`",
        ))
    }),
    ("scopes", |raw, value| set(&mut raw.scopes, scopes(value))),
    ("groups", |raw, value| set(&mut raw.groups, word(value))),
    ("access", |raw, value| set(&mut raw.access, access(value))),
];

#[derive(Debug, Default)]
struct RawAccess {
    group: Option<String>,
    tenant: Option<TenantId>,
    role: Option<Role>,
}

const ACCESS: [(&str, ParseValue<RawAccess>); 3] = [
    ("group", |raw, value| set(&mut raw.group, group(value))),
    ("tenant", |raw, value| set(&mut raw.tenant, tenant(value))),
    ("role", |raw, value| set(&mut raw.role, scalar(value))),
];

/// Parses the section `[oidc]`. A relative path is relative to the directory of `file`.
pub(super) fn read(value: &Value<'_>, file: &Path) -> Result<OidcConfig, Invalid> {
    let mut raw = Raw::default();
    table(&mut raw, &KEYS, value)?;
    // Destructured without `..`, so that a new key cannot be ignored by mistake.
    let Raw { issuer, client, secret_file, scopes, groups, access } = raw;
    let base = file.parent().unwrap_or(Path::new(""));
    Ok(OidcConfig {
        issuer: issuer
            .ok_or_else(|| invalid("`issuer` is missing; it is the URL of the provider"))?,
        client: client.ok_or_else(|| {
            invalid("`client` is missing; it is the id of Belljar at the provider")
        })?,
        secret_file: secret_file.map(|file| anchor(&file, base, None)),
        scopes: scopes.unwrap_or_default(),
        groups: groups.unwrap_or_else(|| GROUPS.to_owned()),
        access: access.unwrap_or_default(),
    })
}

/// Parses a text without spaces, such as the name of a claim.
fn word(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    let is_word = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > MAX_NAME || !is_word {
        return Err(invalid("must have 1 to 256 visible ASCII characters"));
    }
    Ok(text)
}

fn scopes(value: &Value<'_>) -> Result<Vec<String>, Invalid> {
    let scopes: Vec<String> = list(value)?;
    // The characters of a scope; see RFC 6749, section 3.3.
    let is_legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let is_scope =
        |text: &String| !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(is_legal);
    if scopes.iter().all(is_scope) { Ok(scopes) } else { Err(invalid("invalid scope")) }
}

fn group(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        return Err(invalid("must have 1 to 256 bytes without control characters"));
    }
    Ok(text)
}

fn tenant(value: &Value<'_>) -> Result<TenantId, Invalid> {
    let tenant: TenantId = scalar(value)?;
    if tenant.as_str() == RESERVED {
        return Err(invalid("the name `system` is reserved"));
    }
    Ok(tenant)
}

/// Parses the tables `[[oidc.access]]`.
fn access(value: &Value<'_>) -> Result<Vec<GroupAccess>, Invalid> {
    let DeValue::Array(tables) = value.get_ref() else {
        return Err(invalid("must be a list of tables; write `[[oidc.access]]`"));
    };
    let read = |value: &Value<'_>| {
        let mut raw = RawAccess::default();
        let at =
            |what: &str| Invalid::Element { key: None, at: value.span(), what: what.to_owned() };
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            return Err(at("must be a table; write `[[oidc.access]]`"));
        }
        table(&mut raw, &ACCESS, value)?;
        let RawAccess { group, tenant, role } = raw;
        Ok(GroupAccess {
            group: group.ok_or_else(|| at("`group` is missing"))?,
            tenant: tenant.ok_or_else(|| at("`tenant` is missing"))?,
            role: role.ok_or_else(|| at("`role` is missing"))?,
        })
    };
    tables.iter().map(read).collect()
}

impl Config {
    /// Returns the settings of the login with OpenID Connect; `None` without the section `[oidc]`.
    pub const fn oidc(&self) -> Option<&OidcConfig> {
        self.oidc.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scope;

    fn parse(text: &str, scope: Scope) -> Result<Option<OidcConfig>, String> {
        let config = Config::parse(text, Path::new("/etc/belljar/belljar.toml"), scope);
        config.map(|config| config.oidc().cloned()).map_err(|error| error.to_string())
    }

    const MINIMAL: &str = "[oidc]\nissuer = 'https://id.example.com'\nclient = 'belljar'\n";

    #[test]
    fn oidc_section_has_a_provider_a_client_and_the_access_of_groups() {
        let minimal = parse(MINIMAL, Scope::Operator).unwrap().unwrap();
        assert_eq!((minimal.groups.as_str(), minimal.secret_file), ("groups", None));
        assert!(minimal.scopes.is_empty() && minimal.access.is_empty());
        let text = format!(
            "{MINIMAL}secret-file = 'oidc.secret'\nscopes = ['groups']\ngroups = 'roles'\n\
             [[oidc.access]]\ngroup = 'Platform team'\ntenant = 'team-7'\nrole = 'admin'\n\
             [[oidc.access]]\ngroup = 'all'\ntenant = 'team-7'\nrole = 'member'\n"
        );
        let whole = parse(&text, Scope::Operator).unwrap().unwrap();
        assert_eq!(whole.issuer.as_str(), "https://id.example.com");
        assert_eq!(whole.client, "belljar");
        assert_eq!(whole.secret_file, Some(PathBuf::from("/etc/belljar/oidc.secret")));
        assert_eq!((whole.scopes, whole.groups), (vec!["groups".to_owned()], "roles".to_owned()));
        let tenant: TenantId = "team-7".parse().unwrap();
        let access = |group: &str, role| GroupAccess {
            group: group.to_owned(),
            tenant: tenant.clone(),
            role,
        };
        assert_eq!(
            whole.access,
            [access("Platform team", Role::Admin), access("all", Role::Member)]
        );
        assert_eq!(parse("", Scope::Operator).unwrap(), None);
    }

    #[test]
    fn invalid_oidc_section_is_refused_with_its_line() {
        for (text, expect) in [
            ("client = 'x'", "1: section `oidc`: `issuer` is missing"),
            ("issuer = 'https://a'", "1: section `oidc`: `client` is missing"),
            ("issuer = 'id.example'", "2: `issuer = 'id.example'`: invalid issuer"),
            (
                "issuer = 'http://id.example'",
                "2: `issuer = 'http://id.example'`: the issuer must use",
            ),
            ("client = 'a b'", "2: `client = 'a b'`: must have 1 to 256"),
            ("secret = 's'", "2: `secret = 's'`: the secret is not part of this file"),
            ("scopes = ['a b']", "2: `scopes = ['a b']`: invalid scope"),
            ("access = 1", "2: `access = 1`: must be a list of tables"),
            ("access = [1]", "2: `1` in `access`: must be a table"),
            ("[[oidc.access]]\ngroup = 'a'\nrole = 'owner'", "2: `"),
            ("[[oidc.access]]\nrole = 'root'", "3: `role = 'root'`: unknown role"),
            ("[[oidc.access]]\ntenant = 'system'", "3: `tenant = 'system'`: the name `system`"),
            ("[[oidc.access]]\nteam = 'x'", "3: unknown key `team`"),
            ("isuer = 'x'", "2: unknown key `isuer`; did you mean `issuer`?"),
        ] {
            let error = parse(&format!("[oidc]\n{text}\n"), Scope::Operator).unwrap_err();
            assert!(error.starts_with(&format!("/etc/belljar/belljar.toml:{expect}")), "{error}");
        }
    }

    #[test]
    fn c08_project_cannot_choose_the_identity_provider() {
        let error = parse(MINIMAL, Scope::Project).unwrap_err();
        assert!(error.contains("only valid in the operator's own file"), "{error}");
        assert!(parse(MINIMAL, Scope::Operator).is_ok(), "control");
    }
}
