//! What tokens cost: a table with a date, to which the operator's own prices are added.
//!
//! A budget is a bound, so where prices are in doubt the dearer one is taken: a model that is not in
//! the table costs as much as the dearest of its provider.

use serde::Deserialize;

use belljar_model::net::MicroUsd;

use super::{Provider, Usage};

/// The table that comes with the program.
const BUNDLED: &str = include_str!("prices.json");

/// The prices of a family of models, for a million tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Who sells it.
    pub provider: Provider,
    /// How the names of its models begin.
    pub model: String,
    /// Tokens that are read.
    pub input: MicroUsd,
    /// Tokens that are written.
    pub output: MicroUsd,
    /// Tokens that are read from a cache; as those that are read, if not given.
    pub cache_read: Option<MicroUsd>,
    /// Tokens that are written into a cache; as those that are read, if not given.
    pub cache_write: Option<MicroUsd>,
}

/// A table of prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    as_of: String,
    models: Vec<ModelPrice>,
}

/// A file of prices that is none.
#[derive(Debug, thiserror::Error)]
#[error("not a table of prices; it has `as_of` and `models` as the bundled one")]
pub struct PricesError {
    source: serde_json::Error,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    as_of: String,
    /// For whoever reads the file.
    #[serde(default, rename = "notes")]
    _notes: Vec<String>,
    models: Vec<ModelPrice>,
}

impl Default for Prices {
    fn default() -> Self {
        // A test reads the bundled table; without one everything is free, and a test says it is not.
        Self::parse(BUNDLED).unwrap_or(Self { as_of: String::new(), models: Vec::new() })
    }
}

impl Prices {
    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let Raw { as_of, _notes, models } =
            serde_json::from_str(text).map_err(|source| PricesError { source })?;
        Ok(Self { as_of, models })
    }

    /// The operator's own prices, which win over those that are there.
    #[must_use]
    pub fn with(mut self, own: Self) -> Self {
        for price in own.models {
            self.models.retain(|old| (old.provider, &old.model) != (price.provider, &price.model));
            self.models.push(price);
        }
        self
    }

    /// The day of the table.
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// What an answer cost.
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
    fn cost(&self, usage: &Usage) -> MicroUsd {
        let Usage { model: _, input, cache_read, cache_write, output } = *usage;
        let parts = [
            (input, self.input),
            (cache_read, self.cache_read.unwrap_or(self.input)),
            (cache_write, self.cache_write.unwrap_or(self.input)),
            (output, self.output),
        ];
        let sum: u128 = parts.iter().map(|(n, price)| u128::from(*n) * u128::from(price.0)).sum();
        // For a million; a part of a millionth of a dollar counts as a whole one.
        MicroUsd(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}
