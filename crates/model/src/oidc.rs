//! The section `[oidc]` of `belljar.toml`: the identity provider that people log in with.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::caller::TenantId;
use crate::role::Role;

/// The settings of the login with OpenID Connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcConfig {
    pub issuer: Issuer,
    /// The id of Belljar at the provider.
    pub client: String,
    /// The file with the secret of the client; `None` for a public client.
    pub secret_file: Option<PathBuf>,
    /// The scopes that a login requests, beside `openid`.
    pub scopes: Vec<String>,
    /// The claim of the ID token that has the groups of the person.
    pub groups: String,
    /// The roles that groups have in tenants.
    pub access: Vec<GroupAccess>,
}

/// A role of all members of a group in a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupAccess {
    pub group: String,
    pub tenant: TenantId,
    pub role: Role,
}

/// The URL that identifies a provider, as the provider writes it.
///
/// It has no query and no fragment, so the name `ISSUER#SUBJECT` of a person belongs to one issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer(String);

/// The reason why a text is not the URL of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    #[error(
        "invalid issuer; write the URL that the provider names as its issuer, such as \"https://id.example.com\""
    )]
    Malformed,
    #[error("the issuer must use https; http is possible on the loopback interface only")]
    Unencrypted,
}

/// The maximum length of an issuer. A principal has 512 characters, and a subject at most 255 of them.
const MAX_ISSUER: usize = 256;

impl Issuer {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Issuer {
    type Err = IssuerError;

    fn from_str(text: &str) -> Result<Self, IssuerError> {
        let malformed = text.len() > MAX_ISSUER
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
            || text.contains(['?', '#', '@', '\\', '"', '<', '>']);
        let (scheme, rest) = text.split_once("://").ok_or(IssuerError::Malformed)?;
        let authority = rest.split('/').next().unwrap_or_default();
        if malformed || authority.is_empty() || authority.starts_with(':') {
            return Err(IssuerError::Malformed);
        }
        match scheme {
            "https" => Ok(Self(text.to_owned())),
            "http" if is_loopback(host(authority)) => Ok(Self(text.to_owned())),
            "http" => Err(IssuerError::Unencrypted),
            _ => Err(IssuerError::Malformed),
        }
    }
}

/// Returns the host of an authority without its port.
fn host(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Returns whether a host name or an address is on the loopback interface of this machine.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || host == "localhost" || host.ends_with(".localhost")
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_is_an_https_url_or_an_http_url_of_the_loopback_interface() {
        for text in [
            "https://id.example.com",
            "https://id.example.com/",
            "https://id.example.com:8443/realms/a",
            "http://127.0.0.1:9000",
            "http://[::1]:9000/x",
            "http://localhost",
            "http://id.localhost:1",
        ] {
            assert_eq!(text.parse::<Issuer>().unwrap().as_str(), text);
        }
        for text in ["http://id.example.com", "http://127.0.0.1.example.com", "http://10.0.0.1"] {
            assert_eq!(text.parse::<Issuer>(), Err(IssuerError::Unencrypted), "{text}");
        }
        for text in [
            "",
            "id.example.com",
            "ftp://id.example.com",
            "https://",
            "https:///x",
            "https://:443",
            "https://a@id.example.com",
            "https://id.example.com?x",
            "https://id.example.com/#x",
            "https://id.example.com/ x",
            "https://\u{e9}.example",
            &format!("https://{}", "a".repeat(256)),
        ] {
            assert_eq!(text.parse::<Issuer>(), Err(IssuerError::Malformed), "{text}");
        }
    }
}
