//! Prices of model tokens: a dated table, extended by the operator's own prices.
//!
//! A budget is an upper bound, so the higher price is used in doubt: an unknown model costs as much
//! as the most expensive model of its provider.

use serde::Deserialize;

use belljar_model::net::MicroUsd;

use super::{Provider, Usage};

/// The text of the price table that is compiled into Belljar.
const BUNDLED: &str = include_str!("prices.json");

/// The prices of a model family, per million tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// The provider of the models that have this price.
    pub provider: Provider,
    /// The prefix of the model names that have this price.
    pub model: String,
    /// The price of a million input tokens.
    pub input: MicroUsd,
    /// The price of a million output tokens.
    pub output: MicroUsd,
    /// The price of a million tokens read from a cache; the input price if missing.
    pub cache_read: Option<MicroUsd>,
    /// The price of a million tokens written to a cache; the input price if missing.
    pub cache_write: Option<MicroUsd>,
}

/// A table of prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    as_of: String,
    models: Vec<ModelPrice>,
}

/// The error for a malformed table of model prices.
#[derive(Debug, thiserror::Error)]
#[error("invalid price table; it needs the keys `as_of` and `models`, like the bundled table")]
pub struct PricesError {
    source: serde_json::Error,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    as_of: String,
    /// Comments for readers of the price table.
    #[serde(default, rename = "notes")]
    _notes: Vec<String>,
    models: Vec<ModelPrice>,
}

impl Default for Prices {
    fn default() -> Self {
        // Tests check that the bundled table parses; an empty table would make all tokens free.
        Self::parse(BUNDLED).unwrap_or(Self { as_of: String::new(), models: Vec::new() })
    }
}

impl Prices {
    /// Parses a table of model prices in JSON.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let Raw { as_of, _notes, models } =
            serde_json::from_str(text).map_err(|source| PricesError { source })?;
        Ok(Self { as_of, models })
    }

    /// Adds the operator's own prices, which replace bundled prices of the same models.
    #[must_use]
    pub fn with(mut self, own: Self) -> Self {
        for price in own.models {
            self.models.retain(|old| (old.provider, &old.model) != (price.provider, &price.model));
            self.models.push(price);
        }
        self
    }

    /// Returns the date of the price table.
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// Returns the cost of the tokens that a model used for one response.
    pub fn cost(&self, provider: Provider, usage: &Usage) -> MicroUsd {
        let model = usage.model.as_deref().unwrap_or_default();
        let of_provider = self.models.iter().filter(|price| price.provider == provider);
        let known = of_provider
            .clone()
            .filter(|price| model.starts_with(&price.model))
            .max_by_key(|price| price.model.len());
        match known {
            Some(price) => price.cost(usage),
            None => of_provider.map(|price| price.cost(usage)).max().unwrap_or_default(),
        }
    }
}

impl ModelPrice {
    pub(super) fn cost(&self, usage: &Usage) -> MicroUsd {
        let Usage { model: _, input, cache_read, cache_write, output } = *usage;
        let parts = [
            (input, self.input),
            (cache_read, self.cache_read.unwrap_or(self.input)),
            (cache_write, self.cache_write.unwrap_or(self.input)),
            (output, self.output),
        ];
        let sum: u128 = parts.iter().map(|(n, price)| u128::from(*n) * u128::from(price.0)).sum();
        // Prices are per million tokens; a fraction of a micro-dollar is rounded up.
        MicroUsd(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}
