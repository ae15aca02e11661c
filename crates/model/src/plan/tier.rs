//! Tiers of language models: `[tier.NAME]` in `belljar.toml`.

use std::fmt;
use std::str::FromStr;

use super::TierName;
use crate::code::BaseUrl;
use crate::net::{MicroUsd, SecretName};

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

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenPrice {
    pub input: MicroUsd,
    pub output: MicroUsd,
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
