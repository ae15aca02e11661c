//! Servers of language models that a rule leads to.

use serde::{Deserialize, Serialize};

use super::MicroUsd;

/// A server of language models. The broker counts what requests to it use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelServer {
    pub family: ModelFamily,
    /// The price of the model. If missing, the price table of the broker applies.
    pub price: Option<TokenPrice>,
}

/// The family of a protocol. It decides where requests and responses name their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelFamily {
    /// The Messages protocol of Anthropic.
    Anthropic,
    /// The chat and responses protocols of OpenAI, which most other servers use too.
    #[serde(rename = "openai")]
    OpenAi,
}

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    pub input: MicroUsd,
    pub output: MicroUsd,
}
