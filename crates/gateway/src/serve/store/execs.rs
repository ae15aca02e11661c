//! The programs that were started in boxes: which box each one belongs to, and who started it. All other facts
//! are known to the supervisor of the box.

use belljar_engine::supervisor::exec_protocol::ExecId;
use belljar_model::boxes::BoxName;
use belljar_model::caller::Principal;
use rusqlite::{OptionalExtension as _, params};

use super::{Millis, Store, StoreError, TenantKey, millis, parsed, stored};

/// A program that was started in a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecRow {
    pub(crate) key: TenantKey<ExecId>,
    pub(crate) box_name: BoxName,
    /// The principal that started the program.
    pub(crate) maker: Principal,
    pub(crate) created: Millis,
}

impl Store {
    /// Stores an exec before its program starts.
    pub(crate) fn put_exec(&self, row: &ExecRow) -> Result<(), StoreError> {
        self.locked().execute(
            "INSERT INTO exec (tenant, id, box, maker, created) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                row.key.0.as_str(),
                row.key.1.to_string(),
                row.box_name.as_str(),
                row.maker.to_string(),
                stored(row.created)
            ],
        )?;
        Ok(())
    }

    /// Returns an exec of a tenant.
    pub(crate) fn exec(&self, key: &TenantKey<ExecId>) -> Result<Option<ExecRow>, StoreError> {
        let found = self.locked().query_row(
            "SELECT box, maker, created FROM exec WHERE tenant = ?1 AND id = ?2",
            params![key.0.as_str(), key.1.to_string()],
            |row| {
                Ok(ExecRow {
                    key: key.clone(),
                    box_name: parsed(row, 0)?,
                    maker: parsed(row, 1)?,
                    created: millis(row, 2)?,
                })
            },
        );
        Ok(found.optional()?)
    }

    /// Removes an exec whose program was not started.
    pub(crate) fn remove_exec(&self, key: &TenantKey<ExecId>) -> Result<(), StoreError> {
        self.locked().execute(
            "DELETE FROM exec WHERE tenant = ?1 AND id = ?2",
            params![key.0.as_str(), key.1.to_string()],
        )?;
        Ok(())
    }

    /// Removes the execs of a box that were started before a time, except those that the box still knows.
    pub(crate) fn remove_old_execs(
        &self,
        TenantKey(tenant, box_name): &TenantKey<BoxName>,
        before: Millis,
        known: &[ExecId],
    ) -> Result<(), StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let old = {
            let mut query = change
                .prepare("SELECT id FROM exec WHERE tenant = ?1 AND box = ?2 AND created < ?3")?;
            let values = params![tenant.as_str(), box_name.as_str(), stored(before)];
            let rows = query.query_map(values, |row| parsed::<ExecId>(row, 0))?;
            rows.collect::<Result<Vec<_>, _>>()?
        };
        for id in old.into_iter().filter(|id| !known.contains(id)) {
            change.execute(
                "DELETE FROM exec WHERE tenant = ?1 AND id = ?2",
                params![tenant.as_str(), id.to_string()],
            )?;
        }
        Ok(change.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tenant: &str, number: u8, box_name: &str, created: Millis) -> ExecRow {
        ExecRow {
            key: TenantKey(tenant.parse().unwrap(), ExecId([number; 16])),
            box_name: box_name.parse().unwrap(),
            maker: "user:1".parse().unwrap(),
            created,
        }
    }

    #[test]
    fn f08_exec_is_found_by_its_tenant_only_and_old_execs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let rows = [
            row("local", 1, "a", 10),
            row("local", 2, "a", 10),
            row("local", 3, "a", 20),
            row("local", 4, "b", 10),
            row("team-7", 5, "a", 10),
        ];
        rows.iter().for_each(|row| store.put_exec(row).unwrap());
        let has = |row: &ExecRow| store.exec(&row.key).unwrap().as_ref() == Some(row);
        assert!(rows.iter().all(has), "control");
        for (tenant, row) in [("team-7", &rows[0]), ("local", &rows[4])] {
            let foreign = TenantKey(tenant.parse().unwrap(), row.key.1);
            assert_eq!(store.exec(&foreign).unwrap(), None);
        }
        let of_a = TenantKey("local".parse().unwrap(), "a".parse().unwrap());
        store.remove_old_execs(&of_a, 20, &[rows[1].key.1]).unwrap();
        assert_eq!(rows.each_ref().map(has), [false, true, true, true, true]);
        store.remove_exec(&rows[1].key).unwrap();
        assert!(!has(&rows[1]));
    }
}
