//! Tiers of language models: `[tier.NAME]` in `belljar.toml`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::TierName;
use crate::code::BaseUrl;
use crate::net::{
    HostPattern, HttpRule, ModelFamily, ModelServer, Rule, RuleError, RuleTarget, SecretName,
    Target, TokenPrice, is_this_machine,
};

/// A tier of models: the model that answers requests for it, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelTier {
    pub name: TierName,
    pub provider: TierProvider,
    /// The name of the model as the provider knows it.
    pub model: String,
    /// The secret with the provider's key. `None` only for a server with an own `url`.
    pub secret: Option<SecretName>,
    /// The server, if it is not the provider's own one; it can be on this machine.
    pub url: Option<BaseUrl>,
    /// The address to connect to instead of resolving the name in `url`.
    pub connect: Option<SocketAddr>,
    pub price: Option<TokenPrice>,
    /// The maximum number of tokens of a request and its answer together.
    pub context_window: Option<u64>,
}

/// The protocol of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TierProvider {
    /// The Messages protocol of Anthropic.
    Anthropic,
    /// The chat protocol of OpenAI, which most other servers use too.
    OpenAiChat,
    /// The responses protocol of OpenAI.
    OpenAiResponses,
}

/// The reason why a text is not the name of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown provider; write `anthropic`, `openai-chat` or `openai-responses`")]
pub struct TierProviderError;

impl TierProvider {
    /// Returns the name of the provider in `belljar.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
        }
    }

    /// Returns the family of the protocol, by which the broker counts tokens.
    pub const fn family(self) -> ModelFamily {
        match self {
            Self::Anthropic => ModelFamily::Anthropic,
            Self::OpenAiChat | Self::OpenAiResponses => ModelFamily::OpenAi,
        }
    }

    /// Returns the URL of the provider's own server.
    pub const fn default_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAiChat | Self::OpenAiResponses => "https://api.openai.com/v1",
        }
    }

    /// Returns the host of the provider's own server.
    pub fn default_host(self) -> &'static str {
        let url = self.default_url();
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        rest.split_once('/').map_or(rest, |(host, _)| host)
    }

    /// Returns the path of requests below the path of a base URL.
    pub fn path(self, base: &str) -> String {
        let base = base.trim_end_matches('/');
        let has_version = match self {
            Self::Anthropic => base.ends_with("/v1"),
            // The base of a compatible server can end in any path.
            Self::OpenAiChat | Self::OpenAiResponses => !base.is_empty(),
        };
        let version = if has_version { "" } else { "/v1" };
        let name = match self {
            Self::Anthropic => "messages",
            Self::OpenAiChat => "chat/completions",
            Self::OpenAiResponses => "responses",
        };
        format!("{base}{version}/{name}")
    }
}

impl FromStr for TierProvider {
    type Err = TierProviderError;

    fn from_str(text: &str) -> Result<Self, TierProviderError> {
        let all = [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses];
        all.into_iter().find(|provider| provider.name() == text).ok_or(TierProviderError)
    }
}

impl fmt::Display for TierProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The parent of the names under which boxes reach model servers on this machine.
const LOCAL_PARENT: &str = "tier.belljar.internal";

impl ModelTier {
    /// Returns the base URL of the server as a box sees it, and the rule that allows requests to it.
    ///
    /// A server on this machine gets a name of its own, and the rule connects to its address.
    pub fn rule(&self) -> Result<(String, Rule), RuleError> {
        let default = || self.provider.default_url().parse().map_err(|_| RuleError::Malformed);
        let base: BaseUrl = self.url.clone().map_or_else(default, Ok)?;
        let (scheme, port) = (base.scheme(), base.port());
        let (target, connect) = if is_this_machine(base.target()) {
            let address = match base.target() {
                Target::Address(address) if address.is_loopback() => *address,
                Target::Address(_) | Target::Name(_) => Ipv4Addr::LOCALHOST.into(),
            };
            let label = self.name.as_str().replace('_', "-");
            let name = format!("{}.{LOCAL_PARENT}", label.trim_matches('-'));
            (name.parse().map_err(RuleError::Tcp)?, Some(SocketAddr::new(address, port)))
        } else {
            (base.target().clone(), None)
        };
        let path = self.provider.path(base.path());
        let post = "POST".parse().map_err(RuleError::Method)?;
        let url = format!("{scheme}://{target}:{port}{}", base.path());
        let http = HttpRule {
            ports: vec![port],
            scheme,
            methods: Some(BTreeSet::from([post])),
            paths: Some(vec![path.parse().map_err(RuleError::Path)?]),
            secrets: self.secret.iter().cloned().collect(),
            connect: self.connect.or(connect),
            model: Some(ModelServer { family: self.provider.family(), price: self.price }),
            ..HttpRule::https(HostPattern::exact(target))
        };
        let name = Some(format!("tier {}", self.name));
        Ok((url, Rule::allowing(name, RuleTarget::Http(http))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::MicroUsd;

    fn tier(provider: TierProvider, url: Option<&str>) -> ModelTier {
        ModelTier {
            name: "my_model".parse().unwrap(),
            provider,
            model: "m".to_owned(),
            secret: Some("key".parse().unwrap()),
            url: url.map(|url| url.parse().unwrap()),
            connect: None,
            price: Some(TokenPrice { input: MicroUsd(1), output: MicroUsd(2) }),
            context_window: None,
        }
    }

    #[test]
    fn rule_of_a_tier_allows_only_requests_for_answers_and_names_the_api() {
        let (url, rule) = tier(TierProvider::Anthropic, None).rule().unwrap();
        assert_eq!(url, "https://api.anthropic.com:443");
        assert_eq!(TierProvider::Anthropic.default_host(), "api.anthropic.com");
        assert_eq!(TierProvider::OpenAiResponses.default_host(), "api.openai.com");
        assert_eq!(rule.what.to_string(), "POST api.anthropic.com/v1/messages");
        let http = rule.http().unwrap();
        assert_eq!(http.secrets.iter().map(SecretName::as_str).collect::<Vec<_>>(), ["key"]);
        assert_eq!(http.model.unwrap().family, ModelFamily::Anthropic);
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<Rule>(&text).unwrap(), rule);
        assert_eq!(postcard::from_bytes::<Rule>(&postcard::to_allocvec(&rule).unwrap()), Ok(rule));
        let gateway = tier(TierProvider::OpenAiChat, Some("https://gw.example.com:8443/a/v1"));
        let (url, rule) = gateway.rule().unwrap();
        assert_eq!(url, "https://gw.example.com:8443/a/v1");
        assert_eq!(rule.what.to_string(), "POST gw.example.com:8443/a/v1/chat/completions");
    }

    #[test]
    fn server_on_this_machine_gets_a_name_and_a_fixed_address() {
        for (url, address) in [
            ("http://localhost:11434/v1", "127.0.0.1:11434"),
            ("http://127.0.0.2:11434/v1", "127.0.0.2:11434"),
            ("http://[::1]:11434/v1", "[::1]:11434"),
        ] {
            let local = tier(TierProvider::OpenAiChat, Some(url));
            let (url, rule) = ModelTier { secret: None, ..local.clone() }.rule().unwrap();
            assert_eq!(url, "http://my-model.tier.belljar.internal:11434/v1");
            assert_eq!(rule.http().unwrap().connect, Some(address.parse().unwrap()));
            // A key would be readable for everyone who can read the connection.
            assert_eq!(local.rule(), Err(RuleError::SecretOverHttp));
        }
    }
}
