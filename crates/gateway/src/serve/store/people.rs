//! Tenants and the people who have a role in them.

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::{
    Millis, Store, StoreError, TenantKey, invalid, millis, optional_millis, owner, parsed, stored,
};
use crate::serve::access::Role;

/// A person with a role in a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PersonRow {
    pub(crate) key: TenantKey<Principal>,
    pub(crate) role: Role,
    pub(crate) role_from: RoleFrom,
    pub(crate) created: Millis,
    /// The time at which a person disabled the account.
    pub(crate) disabled: Option<Millis>,
    /// The time of a login at which the identity provider named no group of the tenant any more.
    pub(crate) left_groups: Option<Millis>,
    /// The time of the last login with the identity provider.
    pub(crate) seen: Option<Millis>,
    /// A number that every change increases.
    pub(crate) version: u64,
}

impl PersonRow {
    /// Returns whether the person can use the tenant.
    pub(crate) const fn is_active(&self) -> bool {
        self.disabled.is_none() && self.left_groups.is_none()
    }
}

/// Who decides about the role of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleFrom {
    /// A person gave the role. It needs no group.
    Person,
    /// The groups of the identity provider, at each login.
    Groups,
    /// The person came by a group, and another person changed the role. It needs a group.
    Changed,
}

impl RoleFrom {
    const ALL: [Self; 3] = [Self::Person, Self::Groups, Self::Changed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Groups => "groups",
            Self::Changed => "changed",
        }
    }
}

/// A change of a person by another person. Missing values stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PersonChange {
    pub(crate) role: Option<Role>,
    pub(crate) disabled: Option<bool>,
}

/// The result of a change of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PersonChanged {
    Yes(PersonRow),
    /// The tenant would have no owner any more.
    LastOwner,
    /// The person has another version.
    Stale,
    Unknown,
}

/// What the groups of the identity provider change for a person in a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupChange {
    /// The person is new in the tenant.
    Join(Role),
    Become(Role),
    /// The person has no group of the tenant any more.
    Leave,
}

const COLUMNS: &str = "tenant, id, role, role_from, created, disabled, left_groups, seen, version";
const IS_ACTIVE: &str = "disabled IS NULL AND left_groups IS NULL";

impl Store {
    /// Creates a tenant with its first owner. Returns `false` if the tenant exists.
    pub(crate) fn create_tenant(
        &self,
        owner: &TenantKey<Principal>,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let TenantKey(tenant, _) = owner;
        let added = change.execute(
            "INSERT INTO tenant (id, created) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![tenant.as_str(), stored(now)],
        )?;
        if added == 1 {
            put_role(&change, owner, (Role::Owner, RoleFrom::Person), now)?;
        }
        change.commit()?;
        Ok(added == 1)
    }

    /// Returns the first owner of a tenant. `None` if the tenant does not exist.
    pub(crate) fn first_owner(&self, tenant: &TenantId) -> Result<Option<Principal>, StoreError> {
        let sql = format!(
            "SELECT id FROM principal WHERE tenant = ?1 AND role = 'owner' AND {IS_ACTIVE}
             ORDER BY created, id LIMIT 1"
        );
        let found = self.locked().query_row(&sql, [tenant.as_str()], |row| row.get::<_, String>(0));
        found.optional()?.map(|text| text.parse().map_err(|_| StoreError::Value)).transpose()
    }

    /// Returns whether a tenant was created.
    pub(crate) fn has_tenant(&self, tenant: &TenantId) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM tenant WHERE id = ?1)";
        Ok(self.locked().query_row(sql, [tenant.as_str()], |row| row.get(0))?)
    }

    /// Returns the people of a tenant, the oldest first.
    pub(crate) fn people(&self, tenant: &TenantId) -> Result<Vec<PersonRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM principal WHERE tenant = ?1 ORDER BY created, id");
        let connection = self.locked();
        let mut query = connection.prepare(&sql)?;
        let rows = query.query_map([tenant.as_str()], person_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the rows of a person in all tenants.
    pub(crate) fn memberships(&self, person: &Principal) -> Result<Vec<PersonRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM principal WHERE id = ?1 ORDER BY tenant");
        let connection = self.locked();
        let mut query = connection.prepare(&sql)?;
        let rows = query.query_map([person.to_string()], person_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns a person, active or not.
    pub(crate) fn person(
        &self,
        key: &TenantKey<Principal>,
    ) -> Result<Option<PersonRow>, StoreError> {
        Ok(person(&self.locked(), key)?)
    }

    /// Returns the role of a person who can use the tenant.
    pub(crate) fn role_of(&self, key: &TenantKey<Principal>) -> Result<Option<Role>, StoreError> {
        role(&self.locked(), key)
    }

    /// Adds a person to a tenant with a role that a person gave.
    pub(crate) fn put_person(
        &self,
        key: &TenantKey<Principal>,
        role: Role,
        now: Millis,
    ) -> Result<(), StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        put_role(&change, key, (role, RoleFrom::Person), now)?;
        Ok(change.commit()?)
    }

    /// Changes a person who has this version. Sessions of a disabled person end.
    pub(crate) fn change_person(
        &self,
        key: &TenantKey<Principal>,
        version: u64,
        PersonChange { role, disabled }: PersonChange,
        now: Millis,
    ) -> Result<PersonChanged, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let Some(mut row) = person(&change, key)? else { return Ok(PersonChanged::Unknown) };
        if row.version != version {
            return Ok(PersonChanged::Stale);
        }
        let before = row.clone();
        if let Some(role) = role.filter(|role| *role != row.role) {
            row.role = role;
            row.role_from = match row.role_from {
                RoleFrom::Person => RoleFrom::Person,
                RoleFrom::Groups | RoleFrom::Changed => RoleFrom::Changed,
            };
        }
        match disabled {
            Some(true) => row.disabled = row.disabled.or(Some(now)),
            Some(false) => row.disabled = None,
            None => {}
        }
        if row == before {
            return Ok(PersonChanged::Yes(row));
        }
        let is_owner = |row: &PersonRow| row.role == Role::Owner && row.is_active();
        if is_owner(&before) && !is_owner(&row) && owners(&change, &key.0)? <= 1 {
            return Ok(PersonChanged::LastOwner);
        }
        row.version = row.version.saturating_add(1);
        update(&change, &row)?;
        if row.disabled.is_some() {
            end_sessions(&change, key)?;
        }
        change.commit()?;
        Ok(PersonChanged::Yes(row))
    }

    /// Changes a person as the groups of the identity provider say.
    pub(crate) fn apply_groups(
        &self,
        key: &TenantKey<Principal>,
        group_change: GroupChange,
        now: Millis,
    ) -> Result<(), StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let known = person(&change, key)?;
        match (group_change, known) {
            (GroupChange::Join(role) | GroupChange::Become(role), None) => {
                put_role(&change, key, (role, RoleFrom::Groups), now)?;
            }
            (GroupChange::Join(role) | GroupChange::Become(role), Some(row)) => {
                let version = row.version.saturating_add(1);
                update(&change, &PersonRow { role, left_groups: None, version, ..row })?;
            }
            (GroupChange::Leave, Some(row)) => {
                let version = row.version.saturating_add(1);
                update(&change, &PersonRow { left_groups: Some(now), version, ..row })?;
                end_sessions(&change, key)?;
            }
            (GroupChange::Leave, None) => {}
        }
        Ok(change.commit()?)
    }

    /// Notes the time of a login.
    pub(crate) fn note_login(
        &self,
        TenantKey(tenant, person): &TenantKey<Principal>,
        now: Millis,
    ) -> Result<(), StoreError> {
        self.locked().execute(
            "UPDATE principal SET seen = ?3 WHERE tenant = ?1 AND id = ?2",
            params![tenant.as_str(), person.to_string(), stored(now)],
        )?;
        Ok(())
    }
}

fn person(
    connection: &Connection,
    TenantKey(tenant, person): &TenantKey<Principal>,
) -> rusqlite::Result<Option<PersonRow>> {
    let sql = format!("SELECT {COLUMNS} FROM principal WHERE tenant = ?1 AND id = ?2");
    let found =
        connection.query_row(&sql, params![tenant.as_str(), person.to_string()], person_row);
    found.optional()
}

fn person_row(row: &Row<'_>) -> rusqlite::Result<PersonRow> {
    let role_from: String = row.get(3)?;
    let role_from = RoleFrom::ALL.into_iter().find(|known| known.name() == role_from);
    Ok(PersonRow {
        key: owner(row, 0, 1)?,
        role: parsed(row, 2)?,
        role_from: role_from.ok_or_else(|| invalid(3))?,
        created: millis(row, 4)?,
        disabled: optional_millis(row, 5)?,
        left_groups: optional_millis(row, 6)?,
        seen: optional_millis(row, 7)?,
        version: millis(row, 8)?,
    })
}

fn update(change: &Transaction<'_>, row: &PersonRow) -> rusqlite::Result<()> {
    let TenantKey(tenant, person) = &row.key;
    change.execute(
        "UPDATE principal SET role = ?3, role_from = ?4, disabled = ?5, left_groups = ?6, version = ?7
         WHERE tenant = ?1 AND id = ?2",
        params![
            tenant.as_str(),
            person.to_string(),
            row.role.name(),
            row.role_from.name(),
            row.disabled.map(stored),
            row.left_groups.map(stored),
            stored(row.version)
        ],
    )?;
    Ok(())
}

/// Returns the number of owners of a tenant who can use it.
fn owners(change: &Transaction<'_>, tenant: &TenantId) -> rusqlite::Result<u64> {
    let sql = format!(
        "SELECT COUNT(*) FROM principal WHERE tenant = ?1 AND role = 'owner' AND {IS_ACTIVE}"
    );
    change.query_row(&sql, [tenant.as_str()], |row| millis(row, 0))
}

fn end_sessions(
    change: &Transaction<'_>,
    TenantKey(tenant, person): &TenantKey<Principal>,
) -> rusqlite::Result<()> {
    change.execute(
        "DELETE FROM session WHERE tenant = ?1 AND principal = ?2",
        params![tenant.as_str(), person.to_string()],
    )?;
    Ok(())
}

fn put_role(
    change: &Transaction<'_>,
    TenantKey(tenant, person): &TenantKey<Principal>,
    (role, role_from): (Role, RoleFrom),
    now: Millis,
) -> rusqlite::Result<()> {
    change.execute(
        "INSERT INTO principal (tenant, id, role, role_from, created) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![tenant.as_str(), person.to_string(), role.name(), role_from.name(), stored(now)],
    )?;
    Ok(())
}

/// Returns the role of a person who can use the tenant.
pub(super) fn role(
    connection: &Connection,
    TenantKey(tenant, principal): &TenantKey<Principal>,
) -> Result<Option<Role>, StoreError> {
    let mut query = connection.prepare_cached(
        "SELECT role FROM principal
         WHERE tenant = ?1 AND id = ?2 AND disabled IS NULL AND left_groups IS NULL",
    )?;
    let found =
        query.query_row(params![tenant.as_str(), principal.to_string()], |row| parsed(row, 0));
    Ok(found.optional()?)
}
