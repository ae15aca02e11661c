//! The versions of the policies of tenants, and proposals for new versions.

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{OptionalExtension as _, Row, params};

use super::{Millis, Store, StoreError, TenantKey, invalid, millis, parsed, stored};

/// The maximum number of proposals of a tenant that are kept. Older ones that were decided are removed.
const MAX_PROPOSALS: i64 = 1000;

/// A version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRow {
    /// The tenant and the number of the version. The first version is 1.
    pub(crate) key: TenantKey<u64>,
    pub(crate) text: String,
    pub(crate) by: Principal,
    pub(crate) saved: Millis,
    /// The proposal that became this version.
    pub(crate) proposal: Option<String>,
}

/// The state of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProposalState {
    Open,
    Accepted,
    Rejected,
}

impl ProposalState {
    const ALL: [Self; 3] = [Self::Open, Self::Accepted, Self::Rejected];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}

/// A proposal for a new version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProposalRow {
    pub(crate) key: TenantKey<String>,
    /// The version that the proposal changes.
    pub(crate) base: u64,
    pub(crate) text: String,
    pub(crate) reason: String,
    pub(crate) maker: Principal,
    pub(crate) created: Millis,
    pub(crate) state: ProposalState,
    pub(crate) decided_by: Option<Principal>,
    pub(crate) decided: Option<Millis>,
    /// The version that an accepted proposal became.
    pub(crate) version: Option<u64>,
}

const POLICY_COLUMNS: &str = "tenant, version, text, saved_by, saved, proposal";

const PROPOSAL_COLUMNS: &str =
    "tenant, id, base, text, reason, maker, created, state, decided_by, decided, version";

impl Store {
    /// Returns a version of the policy of a tenant: the newest one, unless `version` is given.
    pub(crate) fn policy(
        &self,
        tenant: &TenantId,
        version: Option<u64>,
    ) -> Result<Option<PolicyRow>, StoreError> {
        let sql = format!(
            "SELECT {POLICY_COLUMNS} FROM policy_version WHERE tenant = ?1 AND version = COALESCE(?2,
             (SELECT MAX(version) FROM policy_version WHERE tenant = ?1))"
        );
        let version = version.map(stored);
        let connection = self.locked();
        let found = connection.query_row(&sql, params![tenant.as_str(), version], policy_row);
        Ok(found.optional()?)
    }

    /// Returns the number of the newest version of a policy; 0 if none was saved.
    pub(crate) fn policy_version(&self, tenant: &TenantId) -> Result<u64, StoreError> {
        let found = self.locked().query_row(
            "SELECT COALESCE(MAX(version), 0) FROM policy_version WHERE tenant = ?1",
            [tenant.as_str()],
            |row| millis(row, 0),
        );
        Ok(found?)
    }

    /// Returns at most `limit` versions before a version, the newest first.
    pub(crate) fn policies(
        &self,
        tenant: &TenantId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PolicyRow>, StoreError> {
        let connection = self.locked();
        let sql = format!(
            "SELECT {POLICY_COLUMNS} FROM policy_version WHERE tenant = ?1 AND version < ?2
             ORDER BY version DESC LIMIT ?3"
        );
        let mut query = connection.prepare_cached(&sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let before = before.map_or(i64::MAX, stored);
        let rows = query.query_map(params![tenant.as_str(), before, limit], policy_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stores the version after `version - 1`, and marks its proposal as accepted. Returns `false` if the
    /// version exists, or if the proposal is not open.
    pub(crate) fn add_policy(&self, row: &PolicyRow) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let TenantKey(tenant, version) = &row.key;
        let (by, saved) = (row.by.to_string(), stored(row.saved));
        let newest: u64 = change.query_row(
            "SELECT COALESCE(MAX(version), 0) FROM policy_version WHERE tenant = ?1",
            [tenant.as_str()],
            |row| millis(row, 0),
        )?;
        if newest.checked_add(1) != Some(*version) {
            return Ok(false);
        }
        change.execute(
            "INSERT INTO policy_version (tenant, version, text, saved_by, saved, proposal, written)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
            params![tenant.as_str(), stored(*version), row.text, by, saved, row.proposal],
        )?;
        if let Some(proposal) = &row.proposal {
            let accepted = change.execute(
                "UPDATE policy_proposal SET state = 'accepted', decided_by = ?3, decided = ?4, version = ?5
                 WHERE tenant = ?1 AND id = ?2 AND state = 'open'",
                params![tenant.as_str(), proposal, by, saved, stored(*version)],
            )?;
            if accepted != 1 {
                return Ok(false);
            }
        }
        change.commit()?;
        Ok(true)
    }

    /// Notes that a version is in the file that the engine reads.
    pub(crate) fn policy_is_written(
        &self,
        TenantKey(tenant, version): &TenantKey<u64>,
    ) -> Result<(), StoreError> {
        self.locked().execute(
            "UPDATE policy_version SET written = 1 WHERE tenant = ?1 AND version <= ?2",
            params![tenant.as_str(), stored(*version)],
        )?;
        Ok(())
    }

    /// Removes a version that could not be written. Its proposal is open again.
    pub(crate) fn undo_policy(
        &self,
        TenantKey(tenant, version): &TenantKey<u64>,
    ) -> Result<(), StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let (tenant, version) = (tenant.as_str(), stored(*version));
        let key = params![tenant, version];
        change.execute(
            "DELETE FROM policy_version WHERE tenant = ?1 AND version = ?2 AND written = 0",
            key,
        )?;
        change.execute(
            "UPDATE policy_proposal SET state = 'open', decided_by = NULL, decided = NULL, version = NULL
             WHERE tenant = ?1 AND version = ?2 AND state = 'accepted'",
            key,
        )?;
        change.commit()?;
        Ok(())
    }

    /// Returns the newest versions that may not be in the file of their tenant, because the server was killed.
    pub(crate) fn unwritten_policies(&self) -> Result<Vec<PolicyRow>, StoreError> {
        let connection = self.locked();
        let sql = format!(
            "SELECT {POLICY_COLUMNS} FROM policy_version AS it WHERE written = 0 AND version =
             (SELECT MAX(version) FROM policy_version WHERE tenant = it.tenant)"
        );
        let mut query = connection.prepare(&sql)?;
        let rows = query.query_map([], policy_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stores a new proposal, unless the tenant has `max_open` open ones.
    pub(crate) fn add_proposal(
        &self,
        row: &ProposalRow,
        max_open: usize,
    ) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let TenantKey(tenant, id) = &row.key;
        let open: i64 = change.query_row(
            "SELECT COUNT(*) FROM policy_proposal WHERE tenant = ?1 AND state = 'open'",
            [tenant.as_str()],
            |row| row.get(0),
        )?;
        if usize::try_from(open).map_or(true, |open| open >= max_open) {
            return Ok(false);
        }
        change.execute(
            "INSERT INTO policy_proposal (tenant, id, base, text, reason, maker, created, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                tenant.as_str(),
                id,
                stored(row.base),
                row.text,
                row.reason,
                row.maker.to_string(),
                stored(row.created),
                row.state.name()
            ],
        )?;
        change.execute(
            "DELETE FROM policy_proposal WHERE tenant = ?1 AND state <> 'open' AND id NOT IN
             (SELECT id FROM policy_proposal WHERE tenant = ?1 ORDER BY created DESC, id LIMIT ?2)",
            params![tenant.as_str(), MAX_PROPOSALS],
        )?;
        change.commit()?;
        Ok(true)
    }

    /// Returns a proposal of a tenant.
    pub(crate) fn proposal(
        &self,
        TenantKey(tenant, id): &TenantKey<String>,
    ) -> Result<Option<ProposalRow>, StoreError> {
        let sql =
            format!("SELECT {PROPOSAL_COLUMNS} FROM policy_proposal WHERE tenant = ?1 AND id = ?2");
        let connection = self.locked();
        let found = connection.query_row(&sql, params![tenant.as_str(), id], proposal_row);
        Ok(found.optional()?)
    }

    /// Returns all proposals of a tenant, the newest first, without their texts.
    pub(crate) fn proposals(&self, tenant: &TenantId) -> Result<Vec<ProposalRow>, StoreError> {
        let connection = self.locked();
        let columns = PROPOSAL_COLUMNS.replace("text", "''");
        let sql = format!(
            "SELECT {columns} FROM policy_proposal WHERE tenant = ?1 ORDER BY created DESC, id"
        );
        let mut query = connection.prepare(&sql)?;
        let rows = query.query_map([tenant.as_str()], proposal_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Rejects an open proposal. Returns `false` if it is not open.
    pub(crate) fn reject_proposal(
        &self,
        TenantKey(tenant, id): &TenantKey<String>,
        by: &Principal,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let rejected = self.locked().execute(
            "UPDATE policy_proposal SET state = 'rejected', decided_by = ?3, decided = ?4
             WHERE tenant = ?1 AND id = ?2 AND state = 'open'",
            params![tenant.as_str(), id, by.to_string(), stored(now)],
        )?;
        Ok(rejected == 1)
    }
}

fn policy_row(row: &Row<'_>) -> rusqlite::Result<PolicyRow> {
    Ok(PolicyRow {
        key: TenantKey(parsed(row, 0)?, millis(row, 1)?),
        text: row.get(2)?,
        by: parsed(row, 3)?,
        saved: millis(row, 4)?,
        proposal: row.get(5)?,
    })
}

fn proposal_row(row: &Row<'_>) -> rusqlite::Result<ProposalRow> {
    let state: String = row.get(7)?;
    let state = ProposalState::ALL.into_iter().find(|known| known.name() == state);
    let decided_by: Option<String> = row.get(8)?;
    let unsigned = |column| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(column)?.and_then(|it| u64::try_from(it).ok()))
    };
    Ok(ProposalRow {
        key: TenantKey(parsed(row, 0)?, row.get(1)?),
        base: millis(row, 2)?,
        text: row.get(3)?,
        reason: row.get(4)?,
        maker: parsed(row, 5)?,
        created: millis(row, 6)?,
        state: state.ok_or_else(|| invalid(7))?,
        decided_by: decided_by.map(|text| text.parse().map_err(|_| invalid(8))).transpose()?,
        decided: unsigned(9)?,
        version: unsigned(10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tenant: &str, version: u64, proposal: Option<&str>) -> PolicyRow {
        PolicyRow {
            key: TenantKey(tenant.parse().unwrap(), version),
            text: format!("# {tenant} {version}"),
            by: "user:1".parse().unwrap(),
            saved: version,
            proposal: proposal.map(str::to_owned),
        }
    }

    fn proposal(id: &str) -> ProposalRow {
        ProposalRow {
            key: TenantKey("team-7".parse().unwrap(), id.to_owned()),
            base: 1,
            text: "# new".to_owned(),
            reason: "needed".to_owned(),
            maker: "person:x".parse().unwrap(),
            created: 5,
            state: ProposalState::Open,
            decided_by: None,
            decided: None,
            version: None,
        }
    }

    #[test]
    fn versions_of_a_policy_follow_each_other_and_belong_to_one_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let (team, other) = ("team-7".parse().unwrap(), "team-8".parse().unwrap());
        assert_eq!(store.policy_version(&team).unwrap(), 0);
        assert!(!store.add_policy(&version("team-7", 2, None)).unwrap());
        for number in 1..=3 {
            assert!(store.add_policy(&version("team-7", number, None)).unwrap());
            assert!(!store.add_policy(&version("team-7", number, None)).unwrap());
        }
        assert_eq!(store.policy(&team, None).unwrap(), Some(version("team-7", 3, None)));
        assert_eq!(store.policy(&team, Some(1)).unwrap(), Some(version("team-7", 1, None)));
        assert_eq!(store.policy(&team, Some(9)).unwrap(), None);
        assert_eq!(store.policy(&other, None).unwrap(), None);
        let listed = store.policies(&team, Some(3), 1).unwrap();
        assert_eq!(listed, [version("team-7", 2, None)]);
        assert_eq!(store.unwritten_policies().unwrap(), [version("team-7", 3, None)]);
        store.policy_is_written(&TenantKey(team.clone(), 3)).unwrap();
        assert!(store.unwritten_policies().unwrap().is_empty());
        store.undo_policy(&TenantKey(team.clone(), 3)).unwrap();
        assert_eq!(store.policy_version(&team).unwrap(), 3, "a written version stays");
    }

    #[test]
    fn proposal_is_decided_once_and_is_open_again_if_its_version_could_not_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let (first, second) = (proposal("a"), proposal("b"));
        assert!(store.add_proposal(&first, 2).unwrap() && store.add_proposal(&second, 2).unwrap());
        assert!(!store.add_proposal(&proposal("c"), 2).unwrap(), "two are open");
        assert_eq!(store.proposal(&first.key).unwrap(), Some(first.clone()));
        let foreign = TenantKey("team-8".parse().unwrap(), "a".to_owned());
        assert_eq!(store.proposal(&foreign).unwrap(), None);
        let admin = "user:1".parse().unwrap();
        assert!(!store.reject_proposal(&foreign, &admin, 9).unwrap());
        assert!(store.add_policy(&version("team-7", 1, Some("a"))).unwrap());
        let accepted = store.proposal(&first.key).unwrap().unwrap();
        assert_eq!((accepted.state, accepted.version), (ProposalState::Accepted, Some(1)));
        assert!(!store.reject_proposal(&first.key, &admin, 9).unwrap());
        assert!(!store.add_policy(&version("team-7", 2, Some("a"))).unwrap());
        assert_eq!(store.policy_version(&first.key.0).unwrap(), 1, "nothing was added");
        store.undo_policy(&TenantKey(first.key.0.clone(), 1)).unwrap();
        assert_eq!(store.proposal(&first.key).unwrap(), Some(first.clone()));
        assert!(store.reject_proposal(&second.key, &admin, 9).unwrap());
        let states: Vec<&str> =
            store.proposals(&first.key.0).unwrap().iter().map(|it| it.state.name()).collect();
        assert_eq!(states, ["open", "rejected"]);
    }
}
