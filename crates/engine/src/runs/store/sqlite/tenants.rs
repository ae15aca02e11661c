//! The accounts of the tenant.

use belljar_model::tenant::Period;

use super::RunDb;
use crate::runs::budget::Amounts;
use crate::runs::budget::period::{Day, Used};
use crate::runs::machine::Moment;
use crate::runs::store::StoreError;
use crate::runs::store::accounts;

/// The usage of a tenant in one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runs) struct TenantUsage {
    /// A day of the period.
    pub(in crate::runs) day: Day,
    pub(in crate::runs) used: Used,
    /// The leases of attempts that run.
    pub(in crate::runs) reserved: Amounts,
}

impl RunDb {
    /// Returns the usage of the tenant in the period of a time. A time before the newest day with usage means
    /// that day.
    pub(in crate::runs) fn tenant(
        &self,
        period: Period,
        at: Moment,
    ) -> Result<TenantUsage, StoreError> {
        let found = self.read_tenant(period, at);
        if let Err(StoreError::Damaged(_)) = found {
            self.remove();
        }
        found
    }

    fn read_tenant(&self, period: Period, at: Moment) -> Result<TenantUsage, StoreError> {
        let newest = accounts::newest_day(&self.connection)?;
        let day = newest.into_iter().fold(Day::of(at), Day::max);
        let owner = accounts::tenant_owner(day, period);
        let used = accounts::read(&self.connection, &owner)?.used;
        let reserved = accounts::read(&self.connection, accounts::TENANT)?.reserved;
        Ok(TenantUsage { day, used, reserved })
    }
}
