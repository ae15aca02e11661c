//! The quotas of a tenant on a server: how much it may use at the same time.

use crate::net::MicroUsd;

/// The quotas of a tenant and of each of its principals; a missing value means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Quota {
    /// The running boxes of the tenant.
    pub boxes: Option<u32>,
    /// The running boxes that one principal made.
    pub boxes_per_principal: Option<u32>,
    /// The runs of plans of the tenant that have not ended.
    pub runs: Option<u32>,
    /// The runs of plans that one principal submitted and that have not ended.
    pub runs_per_principal: Option<u32>,
}

impl Quota {
    /// Returns these quotas with their missing values taken from `base`.
    #[must_use]
    pub fn or(self, base: Self) -> Self {
        Self {
            boxes: self.boxes.or(base.boxes),
            boxes_per_principal: self.boxes_per_principal.or(base.boxes_per_principal),
            runs: self.runs.or(base.runs),
            runs_per_principal: self.runs_per_principal.or(base.runs_per_principal),
        }
    }
}

/// The limits of a caller for new runs; a missing value means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// The open runs of the whole tenant.
    pub runs: Option<u32>,
    /// The open runs of the caller.
    pub runs_per_principal: Option<u32>,
    /// The money that the caller may spend in a day of UTC.
    pub money_per_day: Option<MicroUsd>,
}
