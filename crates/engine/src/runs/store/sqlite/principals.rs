//! The open runs of a tenant, and what the runs of a principal used in a day.

use belljar_model::caller::{Principal, TenantId};

use super::RunDb;
use crate::runs::budget::Amounts;
use crate::runs::budget::period::Day;
use crate::runs::limits;
use crate::runs::machine::Moment;
use crate::runs::store::{RunRow, RunsQuery, StoreError, accounts};

impl RunDb {
    /// Returns all open runs of a tenant.
    pub(in crate::runs) fn open_runs(&self, tenant: &TenantId) -> Result<Vec<RunRow>, StoreError> {
        let (mut open, mut query) = (Vec::new(), limits::open_runs());
        loop {
            let page = self.page(tenant, &query)?;
            open.extend(page.rows);
            let Some(next) = page.next else { return Ok(open) };
            query = RunsQuery { after: Some(next), ..query };
        }
    }

    /// Returns what the runs of a principal used in the day of a time, with that day. A time before the newest
    /// day with usage means that day.
    pub(in crate::runs) fn used_by(
        &self,
        principal: &Principal,
        at: Moment,
    ) -> Result<(Day, Amounts), StoreError> {
        let found = self.read_used_by(principal, at);
        if let Err(StoreError::Damaged(_)) = found {
            self.remove();
        }
        found
    }

    fn read_used_by(
        &self,
        principal: &Principal,
        at: Moment,
    ) -> Result<(Day, Amounts), StoreError> {
        let newest = accounts::newest_day(&self.connection)?;
        let day = newest.into_iter().fold(Day::of(at), Day::max);
        let owner = accounts::principal_owner(&principal.to_string(), day);
        Ok((day, accounts::read(&self.connection, &owner)?.used.all()))
    }
}
