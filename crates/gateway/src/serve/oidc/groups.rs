//! What the groups of a person mean for the tenants: who may enter, with which role.
//!
//! A group that the configuration does not name has no meaning. A person whose role another person gave, such as
//! the first owner of a tenant, needs no group. A person who came by a group loses the tenant with the group.

use std::collections::BTreeMap;

use belljar_model::caller::TenantId;
use belljar_model::oidc::GroupAccess;

use crate::serve::access::Role;
use crate::serve::store::{GroupChange, PersonRow, RoleFrom};

/// Returns the roles of a person in all tenants by the groups of the person. The role with the most rights
/// counts.
pub(crate) fn roles(access: &[GroupAccess], groups: &[String]) -> BTreeMap<TenantId, Role> {
    let mut roles = BTreeMap::new();
    for GroupAccess { group, tenant, role } in access {
        if groups.contains(group) {
            let known = roles.entry(tenant.clone()).or_insert(*role);
            *known = (*known).min(*role);
        }
    }
    roles
}

/// Returns the changes of a person at a login. `rows` are the rows of the person in all tenants.
pub(crate) fn changes(
    rows: &[PersonRow],
    roles: &BTreeMap<TenantId, Role>,
) -> Vec<(TenantId, GroupChange)> {
    let known = rows.iter().filter_map(|row| {
        let tenant = &row.key.0;
        Some((tenant.clone(), change(row, roles.get(tenant).copied())?))
    });
    let is_new = |tenant: &TenantId| rows.iter().all(|row| row.key.0 != *tenant);
    let new = roles.iter().filter(|(tenant, _)| is_new(tenant));
    known.chain(new.map(|(tenant, role)| (tenant.clone(), GroupChange::Join(*role)))).collect()
}

/// Returns the change of a person in one tenant, whose groups give this role.
fn change(row: &PersonRow, by_groups: Option<Role>) -> Option<GroupChange> {
    match (row.role_from, by_groups) {
        (RoleFrom::Person, _) => None,
        (RoleFrom::Groups | RoleFrom::Changed, None) => {
            row.left_groups.is_none().then_some(GroupChange::Leave)
        }
        (RoleFrom::Groups, Some(role)) => {
            let is_same = row.role == role && row.left_groups.is_none();
            (!is_same).then_some(GroupChange::Become(role))
        }
        (RoleFrom::Changed, Some(_)) => {
            row.left_groups.is_some().then_some(GroupChange::Become(row.role))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::store::TenantKey;

    fn access(group: &str, tenant: &str, role: Role) -> GroupAccess {
        GroupAccess { group: group.to_owned(), tenant: tenant.parse().unwrap(), role }
    }

    fn row(tenant: &str, role: Role, role_from: RoleFrom, left_groups: Option<u64>) -> PersonRow {
        let key = TenantKey(tenant.parse().unwrap(), "person:https://id#a".parse().unwrap());
        PersonRow {
            key,
            role,
            role_from,
            created: 1,
            disabled: None,
            left_groups,
            seen: None,
            version: 1,
        }
    }

    #[test]
    fn groups_give_the_role_with_the_most_rights_in_each_tenant() {
        let configured = [
            access("all", "team-7", Role::Member),
            access("ops", "team-7", Role::Operator),
            access("ops", "local", Role::Auditor),
        ];
        let of = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            let roles = roles(&configured, &groups);
            roles.into_iter().map(|(tenant, role)| format!("{tenant} {role}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&["all", "ops", "x"]), ["local auditor", "team-7 operator"]);
        assert_eq!(of(&["all"]), ["team-7 member"]);
        assert!(of(&[]).is_empty() && of(&["All"]).is_empty());
    }

    #[test]
    fn f11_person_without_a_group_leaves_unless_another_person_gave_the_role() {
        let groups = |role| BTreeMap::from([("team-7".parse().unwrap(), role)]);
        let change_of = |row: PersonRow, roles: &BTreeMap<TenantId, Role>| {
            changes(&[row], roles).into_iter().map(|(_, change)| change).collect::<Vec<_>>()
        };
        let (none, member) = (BTreeMap::new(), groups(Role::Member));
        let came = |left| row("team-7", Role::Member, RoleFrom::Groups, left);
        assert_eq!(change_of(came(None), &none), [GroupChange::Leave]);
        assert_eq!(change_of(came(Some(5)), &none), []);
        assert_eq!(change_of(came(None), &member), []);
        assert_eq!(change_of(came(Some(5)), &member), [GroupChange::Become(Role::Member)]);
        let admin = groups(Role::Admin);
        assert_eq!(change_of(came(None), &admin), [GroupChange::Become(Role::Admin)]);
        let changed = |left| row("team-7", Role::Auditor, RoleFrom::Changed, left);
        assert_eq!(change_of(changed(None), &member), [], "the role stays as it was changed");
        assert_eq!(change_of(changed(None), &none), [GroupChange::Leave]);
        assert_eq!(change_of(changed(Some(5)), &member), [GroupChange::Become(Role::Auditor)]);
        let given = row("team-7", Role::Owner, RoleFrom::Person, None);
        assert_eq!(change_of(given.clone(), &none), []);
        assert_eq!(change_of(given.clone(), &member), []);
        let joined = changes(&[given], &BTreeMap::from([("local".parse().unwrap(), Role::Member)]));
        assert_eq!(joined, [("local".parse().unwrap(), GroupChange::Join(Role::Member))]);
    }
}
