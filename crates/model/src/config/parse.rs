//! Parser for whole configuration files.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::keys::{Invalid, KEYS, Value};
use super::nearest::nearest;
use super::{
    Config, ConfigError, Entry, Fault, KeyLines, Scope, agent, code, oidc, permissions, schedules,
    secrets, sections, serve, tenant_scope, tenants, tests_section, tiers,
};
use crate::agent::{Agent, AgentName};
use crate::code::{ApiName, ServerName};
use crate::id::{NameError, RunName};
use crate::mount::anchor;
use crate::permission::Permissions;
use crate::template::{Overrides, Template, TemplateError};

/// The names of all sections of a `belljar.toml`.
const SECTIONS: [&str; 16] = [
    "template",
    "permissions",
    "secret",
    "api",
    "mcp",
    "tier",
    "schedule",
    "tenant",
    "code",
    "test",
    "serve",
    "oidc",
    "tls",
    "dns",
    "proxy",
    "vault",
];

/// The key of the permissions table in a template, which concerns the agent and not the box.
const PERMISSIONS: &str = "permissions";

/// The maximum length of a quote from the file in an error, in characters.
const MAX_QUOTE: usize = 60; // characters

/// A configuration file during parsing: its text and path.
pub(super) struct Source<'a> {
    text: &'a str,
    pub(super) file: &'a Path,
}

pub(super) fn config(text: &str, file: &Path, scope: Scope) -> Result<Config, ConfigError> {
    let source = Source { text, file };
    let root = source.root()?;
    let mut config = Config { file: file.to_owned(), scope, ..Config::built_in() };
    for (key, value) in root.get_ref() {
        let section = key.get_ref().as_ref();
        if !SECTIONS.contains(&section) {
            return Err(source.unknown(key, SECTIONS.to_vec()));
        }
        let is_permitted = match scope {
            Scope::Operator => true,
            Scope::Tenant => tenant_scope::SECTIONS.contains(&section),
            Scope::Project => matches!(section, "template" | "permissions"),
        };
        if !is_permitted {
            let fault = Fault::OperatorOnly { section: section.to_owned() };
            return Err(source.error(key.span().start, fault));
        }
        match section {
            "template" => {
                for (name, value) in source.table(section, value)? {
                    let entry = source.template(name, value, scope)?;
                    config.templates.insert(name.get_ref().to_string(), entry);
                }
            }
            "permissions" => config.permissions = source.permissions(value, scope)?,
            "secret" => {
                for (name, value) in source.table(section, value)? {
                    let secret = source.declared("secret", name, value, secrets::read)?;
                    source.check_tenant(scope, |it| it.tenant_secret(value, &secret))?;
                    config.secrets.insert(secret.name.clone(), secret);
                }
            }
            "api" => {
                for (name, value) in source.table(section, value)? {
                    let read = |name, value: &Value<'_>| code::api(name, value, file);
                    let api = source.declared("api", name, value, read)?;
                    source.check_tenant(scope, |it| it.tenant_api(value, &api))?;
                    let same = |it: &ApiName| it.identifier() == api.name.identifier();
                    if let Some(other) = config.apis.keys().find(|it| same(it)) {
                        return Err(source.same_identifier("api", name, other.as_str()));
                    }
                    config.apis.insert(api.name.clone(), api);
                }
            }
            "mcp" => {
                for (name, value) in source.table(section, value)? {
                    let server = source.declared("mcp", name, value, code::server)?;
                    source.check_tenant(scope, |it| it.tenant_server(value, &server))?;
                    let same = |it: &ServerName| it.identifier() == server.name.identifier();
                    if let Some(other) = config.servers.keys().find(|it| same(it)) {
                        return Err(source.same_identifier("mcp", name, other.as_str()));
                    }
                    config.servers.insert(server.name.clone(), server);
                }
            }
            "tier" => {
                for (name, value) in source.table(section, value)? {
                    let tier = source.declared("tier", name, value, tiers::read)?;
                    source.check_tenant(scope, |it| it.tenant_tier(value, &tier))?;
                    config.tiers.insert(tier.name.clone(), tier);
                }
            }
            "schedule" => {
                for (name, value) in source.table(section, value)? {
                    let (heading, line) = (name.span().start, |at| source.line(at));
                    let read =
                        |name, value: &Value<'_>| schedules::read(name, value, file, heading, line);
                    let schedule = source.declared("schedule", name, value, read)?;
                    config.schedules.insert(schedule.name.to_string(), schedule);
                }
            }
            "tenant" => {
                for (name, value) in source.table(section, value)? {
                    let read = |name, value: &Value<'_>| tenants::read(name, value, file);
                    config.tenants.extend([source.declared("tenant", name, value, read)?]);
                }
            }
            "code" => {
                source.table(section, value)?;
                let invalid = |invalid| source.invalid_section(key, value, invalid);
                config.code = code::code(value, file).map_err(invalid)?;
                source.check_tenant(scope, |it| it.tenant_code(value, &config.code))?;
            }
            "test" => {
                let read = tests_section::read(value, |at| source.line(at));
                config.tests = read.map_err(|invalid| source.invalid(section, value, invalid))?;
            }
            "serve" => {
                source.table(section, value)?;
                let invalid = |invalid| source.invalid_section(key, value, invalid);
                let (settings, quota) = serve::read(value, file).map_err(invalid)?;
                (config.serve, config.default_quota) = (settings, quota);
            }
            "oidc" => {
                source.table(section, value)?;
                let invalid = |invalid| source.invalid_section(key, value, invalid);
                config.oidc = Some(oidc::read(value, file).map_err(invalid)?);
            }
            _ => {
                let invalid = |invalid| source.invalid(section, value, invalid);
                sections::read(&mut config, section, value).map_err(invalid)?;
            }
        }
    }
    Ok(config)
}

/// Parses the definition file of an agent.
pub(super) fn agent(name: &AgentName, text: &str, file: &Path) -> Result<Agent, ConfigError> {
    let source = Source { text, file };
    let root = source.root()?;
    let (mut raw, mut declared) = (agent::Raw::default(), Vec::new());
    for (key, value) in root.get_ref() {
        if key.get_ref() == "secret" {
            for (name, value) in source.table("secret", value)? {
                declared.push(source.declared("secret", name, value, secrets::read)?);
            }
            continue;
        }
        let Some((known, take)) = agent::KEYS.iter().find(|(known, _)| known == key.get_ref())
        else {
            let known = agent::KEYS.iter().map(|(known, _)| *known).chain(["secret"]);
            return Err(source.unknown(key, known.collect()));
        };
        take(&mut raw, value).map_err(|invalid| source.invalid(known, value, invalid))?;
    }
    raw.agent(name.clone(), declared).map_err(|what| {
        let (name, what) = (name.to_string(), what.to_owned());
        source.error(0, Fault::Declared { section: "agent", name, what })
    })
}

/// The overrides in one table of another file, with the position of each key.
pub(crate) struct ParsedOverrides {
    pub(crate) overrides: Overrides,
    pub(crate) keys: Vec<(&'static str, usize)>,
    pub(crate) faults: Vec<(usize, Fault)>,
}

/// Parses the keys of a template in a table of another file, for example `box` of a task. `text` is the
/// file, and `value` has positions in it. Relative paths are relative to the directory of `file`.
pub(crate) fn overrides(text: &str, file: &Path, value: &Value<'_>) -> ParsedOverrides {
    let source = Source { text, file };
    let mut parsed =
        ParsedOverrides { overrides: Overrides::default(), keys: Vec::new(), faults: Vec::new() };
    let entries = value.get_ref().as_table().into_iter().flatten();
    for (key, value) in entries {
        let Some((known, take)) = KEYS.iter().find(|(known, _)| known == key.get_ref()) else {
            let name = key.get_ref().to_string();
            let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
            let fault = Fault::UnknownKey { nearest: nearest(&name, &known), key: name, known };
            parsed.faults.push((key.span().start, fault));
            continue;
        };
        match take(&mut parsed.overrides, value) {
            Ok(()) => parsed.keys.push((known, key.span().start)),
            Err(invalid) => parsed.faults.push(source.fault(known, value, invalid)),
        }
    }
    ParsedOverrides { overrides: source.anchored(parsed.overrides), ..parsed }
}

impl<'a> Source<'a> {
    fn root(&self) -> Result<Spanned<DeTable<'a>>, ConfigError> {
        DeTable::parse(self.text).map_err(|error| {
            let what = error.message().replace('\n', ", ");
            self.error(error.span().unwrap_or_default().start, Fault::Syntax { what })
        })
    }

    fn template(
        &self,
        name: &Spanned<DeString<'_>>,
        value: &Value<'_>,
        scope: Scope,
    ) -> Result<Entry, ConfigError> {
        let heading = name.span().start;
        let name = name.get_ref().as_ref();
        check_name(name).map_err(|error| {
            let fault = Fault::TemplateName { name: name.to_owned(), what: error.to_string() };
            self.error(heading, fault)
        })?;
        let mut overrides = Overrides::default();
        let mut permissions = Permissions::default();
        let mut lines = KeyLines { heading: self.line(heading), keys: BTreeMap::new() };
        for (key, value) in self.table(&format!("template.{name}"), value)? {
            if key.get_ref() == PERMISSIONS {
                permissions = self.permissions(value, scope)?;
                continue;
            }
            let Some((known, take)) = KEYS.iter().find(|(known, _)| known == key.get_ref()) else {
                let known = KEYS.iter().map(|(known, _)| *known).chain([PERMISSIONS]);
                return Err(self.unknown(key, known.collect()));
            };
            take(&mut overrides, value).map_err(|invalid| self.invalid(known, value, invalid))?;
            lines.keys.insert(known, self.line(key.span().start));
        }
        let overrides = self.anchored(overrides);
        let base = Template { name: name.to_owned(), ..Template::default() };
        // The operator's template decides what a project's will be; contradictions already show here.
        let template = base
            .with(overrides.clone())
            .map_err(|error| impossible(self.file, name, &lines, &error))?;
        let entry = Entry { template, overrides, permissions, lines };
        self.check_tenant(scope, |it| it.tenant_template(&entry))?;
        Ok(entry)
    }

    /// Checks a part of the policy of a tenant. Other files have no such limits.
    fn check_tenant(
        &self,
        scope: Scope,
        check: impl FnOnce(&Self) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        match scope {
            Scope::Tenant => check(self),
            Scope::Operator | Scope::Project => Ok(()),
        }
    }

    fn permissions(&self, value: &Value<'_>, scope: Scope) -> Result<Permissions, ConfigError> {
        let overrides = permissions::read(value)
            .map_err(|invalid| self.invalid(PERMISSIONS, value, invalid))?;
        match (scope, permissions::loosens(&overrides)) {
            (Scope::Project, Some((key, asked))) => {
                Err(self.error(value.span().start, Fault::Permits { key, asked }))
            }
            (Scope::Tenant, _) => self.tenant_permissions(value, &overrides).map(|()| overrides),
            (Scope::Project | Scope::Operator, _) => Ok(overrides),
        }
    }

    /// Returns the error about the keys of a section without a name, or about the section itself.
    fn invalid_section(
        &self,
        key: &Spanned<DeString<'_>>,
        value: &Value<'_>,
        invalid: Invalid,
    ) -> ConfigError {
        let name = key.get_ref().to_string();
        match invalid {
            Invalid::Here(what) => {
                self.error(key.span().start, Fault::Declared { section: "section", name, what })
            }
            invalid @ (Invalid::Element { .. }
            | Invalid::Inside { .. }
            | Invalid::Unknown { .. }) => self.invalid(&name, value, invalid),
        }
    }

    /// Parses a named section such as `[secret.NAME]`.
    fn declared<N: FromStr<Err: Display>, T>(
        &self,
        section: &'static str,
        name: &Spanned<DeString<'_>>,
        value: &Value<'_>,
        read: impl FnOnce(N, &Value<'_>) -> Result<T, Invalid>,
    ) -> Result<T, ConfigError> {
        let at = name.span().start;
        let name = name.get_ref();
        let bad = |what: String| {
            self.error(at, Fault::Declared { section, name: name.to_string(), what })
        };
        let parsed: N = name.parse().map_err(|error: N::Err| bad(error.to_string()))?;
        let key = format!("{section}.{name}");
        self.table(&key, value)?;
        read(parsed, value).map_err(|invalid| match invalid {
            // An error about the whole declaration has the line of the heading.
            Invalid::Here(what) => bad(what),
            invalid @ (Invalid::Element { .. }
            | Invalid::Inside { .. }
            | Invalid::Unknown { .. }) => self.invalid(&key, value, invalid),
        })
    }

    /// Returns the error for two declared names that become the same identifier in programs.
    fn same_identifier(
        &self,
        section: &'static str,
        name: &Spanned<DeString<'_>>,
        other: &str,
    ) -> ConfigError {
        let what = format!("programs cannot distinguish it from `{other}`; rename one of them");
        let fault = Fault::Declared { section, name: name.get_ref().to_string(), what };
        self.error(name.span().start, fault)
    }

    /// Makes the relative paths of a template absolute, based on the directory of the file.
    fn anchored(&self, overrides: Overrides) -> Overrides {
        let base = self.file.parent().unwrap_or(Path::new(""));
        Overrides {
            mounts: overrides.mounts.into_iter().map(|mount| mount.anchored(base, None)).collect(),
            rootfs: overrides.rootfs.map(|rootfs| anchor(&rootfs, base, None)),
            ..overrides
        }
    }

    fn table<'v, 't>(
        &self,
        key: &str,
        value: &'v Value<'t>,
    ) -> Result<&'v DeTable<'t>, ConfigError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => Err(self.invalid_value(
                key,
                value,
                format!("must be a table; write `[{}.NAME]`", key.split('.').next().unwrap_or(key)),
            )),
        }
    }

    fn unknown(&self, key: &Spanned<DeString<'_>>, known: Vec<&'static str>) -> ConfigError {
        let name = key.get_ref();
        let fault =
            Fault::UnknownKey { key: name.to_string(), nearest: nearest(name, &known), known };
        self.error(key.span().start, fault)
    }

    /// Returns the error for an invalid value, with the line of the part at fault.
    fn invalid(&self, key: &str, value: &Value<'_>, invalid: Invalid) -> ConfigError {
        let (at, fault) = self.fault(key, value, invalid);
        self.error(at, fault)
    }

    /// Returns the fault of an invalid value and its position.
    fn fault(&self, key: &str, value: &Value<'_>, invalid: Invalid) -> (usize, Fault) {
        match invalid {
            Invalid::Here(what) => {
                let (key, quoted) = (key.to_owned(), self.quote(value.span()));
                (value.span().start, Fault::Value { key, quoted, what })
            }
            Invalid::Element { key: inner, at, what } => {
                let (key, quoted) = (inner.unwrap_or(key).to_owned(), self.quote(at.clone()));
                (at.start, Fault::Element { key, quoted, what })
            }
            Invalid::Inside { key, at, what } => {
                let (key, quoted) = (key.to_owned(), self.quote(at.clone()));
                (at.start, Fault::Value { key, quoted, what })
            }
            Invalid::Unknown { key, at, known } => {
                let nearest = nearest(&key, &known);
                (at.start, Fault::UnknownKey { key, nearest, known })
            }
        }
    }

    fn invalid_value(&self, key: &str, value: &Value<'_>, what: String) -> ConfigError {
        self.invalid(key, value, Invalid::Here(what))
    }

    fn error(&self, at: usize, fault: Fault) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: self.line(at), fault }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    fn quote(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let mut quote: String = line.chars().take(MAX_QUOTE).collect();
        if quote.len() < text.len() {
            quote.push('…');
        }
        quote
    }
}

/// Returns an error for an invalid template name; names of templates and runs follow the same
/// rules.
fn check_name(name: &str) -> Result<(), NameError> {
    name.parse::<RunName>().map(|_| ())
}

pub(super) fn impossible(
    file: &Path,
    name: &str,
    lines: &KeyLines,
    error: &TemplateError,
) -> ConfigError {
    let key = error.key();
    let fault = Fault::Impossible { template: name.to_owned(), key, what: error.to_string() };
    ConfigError { file: file.to_owned(), line: lines.line(key), fault }
}
