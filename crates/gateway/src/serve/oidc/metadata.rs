//! What the provider says about itself: the addresses of its endpoints (OpenID Connect Discovery).

use belljar_model::oidc::{Issuer, is_loopback};
use http::Uri;
use serde::Deserialize;

/// The description of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
    pub(super) authentication: ClientAuthentication,
    /// Whether every answer names the issuer (RFC 9207).
    pub(super) names_issuer: bool,
}

/// How a client with a secret authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAuthentication {
    Basic,
    Post,
}

/// Why the description of a provider cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum MetadataFault {
    #[error("sent no valid description of itself")]
    Malformed,
    #[error(
        "has another name; `issuer` in the section [oidc] must be exactly what the provider calls itself"
    )]
    OtherIssuer,
    #[error("names an address without https")]
    Address,
}

/// The description as the provider sends it.
#[derive(Deserialize)]
struct Raw {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    /// Returns the address of the description of a provider.
    pub(super) fn address(issuer: &Issuer) -> String {
        let issuer = issuer.as_str().trim_end_matches('/');
        format!("{issuer}/.well-known/openid-configuration")
    }

    /// Reads the description of a provider, which must be that of the issuer.
    pub(super) fn read(body: &[u8], issuer: &Issuer) -> Result<Self, MetadataFault> {
        let raw: Raw = serde_json::from_slice(body).map_err(|_| MetadataFault::Malformed)?;
        if raw.issuer != issuer.as_str() {
            return Err(MetadataFault::OtherIssuer);
        }
        let can_be_plain = issuer.as_str().starts_with("http://");
        let endpoints = [&raw.authorization_endpoint, &raw.token_endpoint, &raw.jwks_uri];
        if !endpoints.into_iter().all(|endpoint| is_safe(endpoint, can_be_plain)) {
            return Err(MetadataFault::Address);
        }
        // The default of the standard is `client_secret_basic`.
        let methods = raw.token_endpoint_auth_methods_supported.unwrap_or_default();
        let has = |name: &str| methods.iter().any(|method| method == name);
        let is_post = has("client_secret_post") && !has("client_secret_basic");
        Ok(Self {
            authorization_endpoint: raw.authorization_endpoint,
            token_endpoint: raw.token_endpoint,
            jwks_uri: raw.jwks_uri,
            authentication: match is_post {
                true => ClientAuthentication::Post,
                false => ClientAuthentication::Basic,
            },
            names_issuer: raw.authorization_response_iss_parameter_supported,
        })
    }
}

/// Returns whether an address uses https. A provider on the loopback interface can have others there.
fn is_safe(address: &str, can_be_plain: bool) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let is_text = address.bytes().all(|byte| byte.is_ascii_graphic()) && !address.contains('#');
    let Some(host) = uri.host().filter(|host| !host.is_empty() && is_text) else { return false };
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => can_be_plain && is_loopback(host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn description() -> Value {
        json!({
            "issuer": "https://id.example",
            "authorization_endpoint": "https://id.example/auth?a=b",
            "token_endpoint": "https://id.example/token",
            "jwks_uri": "https://keys.example/keys",
        })
    }

    fn read(description: &Value, issuer: &str) -> Result<Metadata, MetadataFault> {
        Metadata::read(description.to_string().as_bytes(), &issuer.parse().unwrap())
    }

    #[test]
    fn description_of_another_issuer_or_with_unencrypted_addresses_is_refused() {
        let issuer = "https://id.example";
        let valid = read(&description(), issuer).unwrap();
        assert_eq!(valid.authentication, ClientAuthentication::Basic);
        assert!(!valid.names_issuer);
        for other in ["https://id.example/", "https://id.example:443", "https://other.example"] {
            assert_eq!(read(&description(), other), Err(MetadataFault::OtherIssuer), "{other}");
        }
        for address in ["http://id.example/x", "http://127.0.0.1/x", "/token", "", "file:///etc"] {
            let mut changed = description();
            changed["token_endpoint"] = json!(address);
            assert_eq!(read(&changed, issuer), Err(MetadataFault::Address), "{address}");
        }
        let mut missing = description();
        missing.as_object_mut().unwrap().remove("jwks_uri");
        assert_eq!(read(&missing, issuer), Err(MetadataFault::Malformed));
    }

    #[test]
    fn provider_on_the_loopback_interface_can_have_unencrypted_addresses_there_only() {
        let issuer = "http://127.0.0.1:9000";
        let mut local = description();
        local["issuer"] = json!(issuer);
        local["token_endpoint"] = json!("http://127.0.0.1:9000/token");
        read(&local, issuer).unwrap();
        local["token_endpoint"] = json!("http://id.example/token");
        assert_eq!(read(&local, issuer), Err(MetadataFault::Address));
    }

    #[test]
    fn client_sends_its_secret_as_the_provider_supports_it() {
        let mut description = description();
        for (methods, expected) in [
            (json!(["client_secret_post"]), ClientAuthentication::Post),
            (json!(["client_secret_post", "client_secret_basic"]), ClientAuthentication::Basic),
            (json!(["none"]), ClientAuthentication::Basic),
        ] {
            description["token_endpoint_auth_methods_supported"] = methods;
            let read = read(&description, "https://id.example").unwrap();
            assert_eq!(read.authentication, expected);
        }
    }

    #[test]
    fn address_of_the_description_is_below_the_issuer() {
        for issuer in ["https://id.example/realms/a", "https://id.example/realms/a/"] {
            let address = Metadata::address(&issuer.parse().unwrap());
            assert_eq!(address, "https://id.example/realms/a/.well-known/openid-configuration");
        }
    }
}
