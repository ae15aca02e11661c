//! The fired slots of schedules.

use rusqlite::OptionalExtension as _;

use super::{RunDb, invalid_value, position};
use crate::runs::store::StoreError;
use belljar_model::RunId;

impl RunDb {
    /// Returns the newest fired slot of a schedule in milliseconds since 1970, with its run.
    pub(in crate::runs) fn last_slot(
        &self,
        schedule: &str,
    ) -> Result<Option<(u64, RunId)>, StoreError> {
        let sql = "SELECT instant, run FROM slot WHERE schedule = ?1
            ORDER BY instant DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_row([schedule], |row| {
            let run: String = row.get(1)?;
            Ok((position(row, 0)?, run.parse().map_err(|_| invalid_value(1))?))
        });
        Ok(found.optional()?)
    }
}
