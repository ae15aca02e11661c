//! The API of language models that a request uses, by the rule that permits the request.

use belljar_model::net::{MicroUsd, ModelFamily, Target, TokenPrice};

use super::{ModelPrice, Prices, Provider, Usage};
use crate::rules::Permit;

/// An API of language models: its provider and its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelApi {
    pub provider: Provider,
    /// The price that the operator set. Without it, the price table applies.
    price: Option<TokenPrice>,
    /// Whether the rule names the API. Then the paths of its requests can have any prefix.
    pub(super) is_named: bool,
}

impl ModelApi {
    /// Returns the API that a permitted request uses. A rule that names an API decides, whatever the
    /// host is called; for other rules, the names of the known providers decide.
    pub fn of(permit: &Permit) -> Option<Self> {
        match permit.model() {
            Some(server) => {
                let provider = match server.family {
                    ModelFamily::Anthropic => Provider::Anthropic,
                    ModelFamily::OpenAi => Provider::OpenAi,
                };
                Some(Self { provider, price: server.price, is_named: true })
            }
            None => Self::of_host(permit.target()),
        }
    }

    /// Returns the API of a known provider.
    pub fn of_host(target: &Target) -> Option<Self> {
        Provider::of(target).map(Self::from)
    }

    /// Returns the cost of tokens.
    pub(super) fn cost(&self, prices: &Prices, usage: &Usage) -> MicroUsd {
        match self.price {
            Some(TokenPrice { input, output }) => {
                let (provider, model) = (self.provider, String::new());
                let (cache_read, cache_write) = (None, None);
                let price = ModelPrice { provider, model, input, output, cache_read, cache_write };
                price.cost(usage)
            }
            None => prices.cost(self.provider, usage),
        }
    }
}

impl From<Provider> for ModelApi {
    fn from(provider: Provider) -> Self {
        Self { provider, price: None, is_named: false }
    }
}
