//! The budget of a tenant: limits for all its runs together, over a period.

use std::fmt;
use std::str::FromStr;

use crate::plan::RunBudget;

/// The budget of a tenant in `belljar.toml`. Its limits hold for all runs of the tenant together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantBudget {
    /// The limits. A tenant has no limits for single secrets.
    pub limits: RunBudget,
    /// The period over which everything except boxes at once is counted.
    pub period: Period,
}

/// The period over which the usage of a tenant is counted. Days and months are those of UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Period {
    Day,
    Month,
    /// The usage is never reset.
    #[default]
    Total,
}

/// The reason why a text is not a valid period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown period; write `day`, `month` or `total`")]
pub struct PeriodError;

impl Period {
    /// The name of the period in `belljar.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let all = [Self::Day, Self::Month, Self::Total];
        all.into_iter().find(|period| period.name() == text).ok_or(PeriodError)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
