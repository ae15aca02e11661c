//! Tenants and the people who have a role in them.

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::{Millis, Store, StoreError, TenantKey, parsed, stored};
use crate::serve::access::Role;

impl Store {
    /// Creates a tenant with its first owner. Returns `false` if the tenant exists.
    pub(crate) fn create_tenant(
        &self,
        owner: &TenantKey<Principal>,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let TenantKey(tenant, principal) = owner;
        let added = change.execute(
            "INSERT INTO tenant (id, created) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![tenant.as_str(), stored(now)],
        )?;
        if added == 1 {
            put_role(&change, tenant, principal, Role::Owner, now)?;
        }
        change.commit()?;
        Ok(added == 1)
    }

    /// Returns the first owner of a tenant. `None` if the tenant does not exist.
    pub(crate) fn first_owner(&self, tenant: &TenantId) -> Result<Option<Principal>, StoreError> {
        let found = self.locked().query_row(
            "SELECT id FROM principal WHERE tenant = ?1 AND role = 'owner' ORDER BY created, id LIMIT 1",
            [tenant.as_str()],
            |row| row.get::<_, String>(0),
        );
        found.optional()?.map(|text| text.parse().map_err(|_| StoreError::Value)).transpose()
    }
}

pub(super) fn put_role(
    change: &Transaction<'_>,
    tenant: &TenantId,
    principal: &Principal,
    role: Role,
    now: Millis,
) -> Result<(), StoreError> {
    change.execute(
        "INSERT INTO principal (tenant, id, role, created) VALUES (?1, ?2, ?3, ?4)",
        params![tenant.as_str(), principal.to_string(), role.name(), stored(now)],
    )?;
    Ok(())
}

/// Returns the role of a person in a tenant.
pub(super) fn role(
    connection: &Connection,
    TenantKey(tenant, principal): &TenantKey<Principal>,
) -> Result<Option<Role>, StoreError> {
    let found = connection.query_row(
        "SELECT role FROM principal WHERE tenant = ?1 AND id = ?2",
        params![tenant.as_str(), principal.to_string()],
        |row| parsed(row, 0),
    );
    Ok(found.optional()?)
}
