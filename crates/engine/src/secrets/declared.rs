//! Secrets that are set with the API of the server: a value together with its hosts and slots.
//!
//! The declarations are in a file of the tenant. A declaration of the policy or of a preset cannot be changed
//! here. The version of a secret is the time at which its value was set, so that each new value, also one of
//! the command line, makes a new version.
//!
//! **Invariant:** a stored value is never sent to hosts that were declared after the value was set. Before the
//! declaration changes, the old value is removed.

use std::collections::BTreeSet;

use anyhow::Context as _;
use belljar_broker::vault::Value;
use belljar_model::Config;
use belljar_model::net::{HostPattern, SecretDecl, SecretName, Slot};
use toml_edit::{Item, Table};
use zeroize::Zeroizing;

use super::{Expected, SecretStatus, Secrets, ValueState, not_set};
use crate::config::section;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::durable;
use crate::store::layout::Layout;

/// The maximum number of secrets that can be declared with the API.
const MAX_DECLARED: usize = 1000;

/// A value to store, with the hosts and slots of the secret.
pub struct NewSecret {
    pub name: SecretName,
    pub value: Zeroizing<Vec<u8>>,
    /// `None` keeps the hosts of an existing declaration.
    pub hosts: Option<Vec<HostPattern>>,
    /// `None` keeps the slots of an existing declaration; a new one has the header `Authorization`.
    pub slots: Option<Vec<Slot>>,
}

impl std::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where the hosts and slots of a secret are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the policy: belljar.toml, or the policy of the tenant.
    Policy,
    /// In the request that set the secret with the API.
    Api,
    /// By a preset or an agent of Belljar.
    BuiltIn,
}

impl Origin {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Api => "api",
            Self::BuiltIn => "built-in",
        }
    }
}

impl Secrets {
    /// Returns where a secret is declared.
    pub fn origin(&self, name: &SecretName) -> Option<Origin> {
        if self.config.declared_secrets().any(|declared| declared == name) {
            return Some(Origin::Policy);
        }
        if self.of_api.iter().any(|declared| declared.name == *name) {
            return Some(Origin::Api);
        }
        self.config.secret(name).map(|_| Origin::BuiltIn)
    }

    /// Returns the state of a secret that is set or declared.
    pub fn find(&self, name: &SecretName) -> Result<Option<SecretStatus>, EngineError> {
        Ok(self.list()?.into_iter().find(|status| status.name == *name))
    }

    /// Stores a value and its declaration, if the secret has the expected version.
    pub fn put(&self, new: NewSecret, expected: Expected) -> Result<SecretStatus, EngineError> {
        let declared = self.declaration(&new)?;
        let NewSecret { name, value, .. } = new;
        let was_not_set = || format!("secret {name} was not set");
        let value = Value::new(value).with_context(was_not_set).kind(ErrorKind::Invalid)?;
        if let Some(of_kind) = declared.as_ref().or_else(|| self.config.secret(&name)) {
            value.check(&of_kind.kind).with_context(was_not_set).kind(ErrorKind::Invalid)?;
        }
        let Some(declared) = declared else { return self.writer()?.place(&name, &value, expected) };
        let mut expected = expected;
        if self.of_api.iter().find(|old| old.name == name) != Some(&declared) {
            expected = self.without_value(&name, expected)?;
            let others = self.of_api.iter().filter(|old| old.name != name).cloned();
            write(&self.state, others.chain([declared]).collect())?;
        }
        Self::open(&self.state)?.writer()?.place(&name, &value, expected)
    }

    /// Removes the value of a secret, and its declaration if it was set with the API.
    pub fn withdraw(&self, name: &SecretName, expected: Expected) -> Result<(), EngineError> {
        let is_declared = self.of_api.iter().any(|declared| declared.name == *name);
        match self.find(name)?.map(|status| status.value) {
            Some(ValueState::NotSet) | None if !is_declared => return Err(not_set(name)),
            Some(ValueState::NotSet) | None => {}
            Some(ValueState::Set { .. } | ValueState::Damaged) => {
                self.without_value(name, expected)?;
            }
        }
        if !is_declared {
            return Ok(());
        }
        write(&self.state, self.of_api.iter().filter(|old| old.name != *name).cloned().collect())
    }

    /// Removes the stored value of the expected version. Returns what to expect afterwards.
    fn without_value(
        &self,
        name: &SecretName,
        expected: Expected,
    ) -> Result<Expected, EngineError> {
        let state = self.find(name)?.map_or(ValueState::NotSet, |status| status.value);
        expected.check(name, state)?;
        match state {
            ValueState::NotSet => Ok(Expected::NotSet),
            ValueState::Set { .. } | ValueState::Damaged => {
                self.remove(name).map(|()| Expected::NotSet)
            }
        }
    }

    /// Returns the declaration to write for a new value. `None` if another place declares the secret.
    fn declaration(&self, new: &NewSecret) -> Result<Option<SecretDecl>, EngineError> {
        let NewSecret { name, hosts, slots, .. } = new;
        let old = self.of_api.iter().find(|declared| declared.name == *name);
        let elsewhere = self.origin(name).filter(|origin| *origin != Origin::Api);
        if let Some((origin, declared)) = elsewhere.zip(self.config.secret(name)) {
            let is_same = hosts.as_ref().is_none_or(|hosts| is_same_set(hosts, &declared.hosts))
                && slots.as_ref().is_none_or(|slots| is_same_set(slots, &declared.slots));
            return if is_same { Ok(None) } else { Err(declared_elsewhere(name, origin)) };
        }
        let hosts =
            hosts.clone().or_else(|| old.map(|old| old.hosts.clone())).ok_or_else(|| {
                invalid(format!("no hosts are declared for secret {name}; name them in `hosts`"))
            })?;
        let mut declared = SecretDecl::token(name.clone(), hosts);
        if let Some(slots) = slots.clone().or_else(|| old.map(|old| old.slots.clone())) {
            declared.slots = slots;
        }
        declared.check().kind(ErrorKind::Invalid)?;
        let private = declared.private_target().filter(|_| !self.state.is_local());
        if let Some(target) = private {
            return Err(invalid(format!(
                "`hosts` of secret {name}: it {target}; only the operator of the server can permit that"
            )));
        }
        if old.is_none() && self.of_api.len() >= MAX_DECLARED {
            let text = format!("{MAX_DECLARED} secrets are declared; remove one first");
            return Err(EngineError::message(ErrorKind::LimitReached, text));
        }
        Ok(Some(declared))
    }
}

fn declared_elsewhere(name: &SecretName, origin: Origin) -> EngineError {
    let advice = match origin {
        Origin::Policy => "leave out `hosts` and `slots`, or change the policy",
        Origin::BuiltIn | Origin::Api => "leave out `hosts` and `slots`, or choose another name",
    };
    let text =
        format!("the {} declaration of secret {name} has other hosts or slots", origin.name());
    EngineError::message(ErrorKind::WrongState, text).advise(advice)
}

fn is_same_set<T: Ord>(left: &[T], right: &[T]) -> bool {
    left.iter().collect::<BTreeSet<_>>() == right.iter().collect::<BTreeSet<_>>()
}

/// Replaces the file with declarations. The new text is parsed first.
fn write(state: &Scoped, mut declared: Vec<SecretDecl>) -> Result<(), EngineError> {
    declared.sort_by(|left, right| left.name.cmp(&right.name));
    let text: String = declared.iter().map(section_of).collect();
    let file = state.store().layout().declared_secrets();
    let parsed = Config::parse(&text, &file, state.policy_scope());
    parsed.context("cannot declare the secret").kind(ErrorKind::Invalid)?;
    durable::write(state.home(), Layout::declared_secrets_name(), text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
        .kind(ErrorKind::Broken)
}

fn section_of(declared: &SecretDecl) -> String {
    let mut table = Table::new();
    let hosts = declared.hosts.iter().map(ToString::to_string).collect();
    let slots = declared.slots.iter().map(ToString::to_string).collect();
    table.insert("hosts", Item::Value(hosts));
    table.insert("slots", Item::Value(slots));
    section::section(["secret", declared.name.as_str()], table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::{of_test, of_test_caller};

    const VALUE: &str = "a-value-of-the-test";

    fn new(hosts: Option<&[&str]>) -> NewSecret {
        let hosts = hosts.map(|hosts| hosts.iter().map(|host| host.parse().unwrap()).collect());
        let value = Zeroizing::new(VALUE.as_bytes().to_vec());
        NewSecret { name: "forge".parse().unwrap(), value, hosts, slots: None }
    }

    fn version(status: &SecretStatus) -> u64 {
        let ValueState::Set { at } = status.value else { panic!("{status:?}") };
        at
    }

    #[test]
    fn put_secret_has_its_hosts_in_the_configuration_and_a_new_version_for_each_value() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let open = || Secrets::open(&state).unwrap();
        assert_eq!(open().put(new(None), Expected::NotSet).unwrap_err().kind(), ErrorKind::Invalid);
        let first = open().put(new(Some(&["a.example"])), Expected::NotSet).unwrap();
        let name = first.name.clone();
        assert_eq!(first.declared.as_ref().unwrap().hosts, ["a.example".parse().unwrap()]);
        assert_eq!(open().origin(&name), Some(Origin::Api));
        let (config, _) = state.load_config(None).unwrap();
        assert_eq!(config.secret(&name), first.declared.as_ref());
        for stale in [Expected::NotSet, Expected::Version(1)] {
            let error = open().put(new(None), stale).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{stale:?}");
        }
        let second = open().put(new(None), Expected::Version(version(&first))).unwrap();
        assert!(version(&second) > version(&first) && second.declared == first.declared);
        let stale = open().withdraw(&name, Expected::Version(version(&first))).unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::Conflict);
        open().withdraw(&name, Expected::Version(version(&second))).unwrap();
        assert!(open().list().unwrap().is_empty() && open().origin(&name).is_none());
        let gone = open().withdraw(&name, Expected::NotSet).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn b19_old_value_is_removed_before_the_hosts_of_a_secret_change() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let open = || Secrets::open(&state).unwrap();
        let first = open().put(new(Some(&["a.example"])), Expected::NotSet).unwrap();
        let wrong =
            NewSecret { value: Zeroizing::new(b"short".to_vec()), ..new(Some(&["evil.example"])) };
        let error = open().put(wrong, Expected::Version(version(&first))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(open().find(&first.name).unwrap().unwrap().declared, first.declared, "control");
        let after = open().without_value(&first.name, Expected::Version(version(&first))).unwrap();
        assert_eq!(after, Expected::NotSet);
        let found = open().find(&first.name).unwrap();
        assert!(found.is_none_or(|status| status.value == ValueState::NotSet));
    }

    #[test]
    fn secret_of_a_tenant_cannot_lead_to_a_private_network_or_change_a_built_in_declaration() {
        let dir = tempfile::tempdir().unwrap();
        let caller = belljar_model::Caller {
            tenant: "team-7".parse().unwrap(),
            ..crate::scope::local_caller()
        };
        let state = of_test_caller(dir.path(), caller);
        let open = || Secrets::open(&state).unwrap();
        let private = open().put(new(Some(&["10.0.0.1"])), Expected::NotSet).unwrap_err();
        assert_eq!(private.kind(), ErrorKind::Invalid, "{private:#}");
        let preset = NewSecret { name: "github".parse().unwrap(), ..new(Some(&["evil.example"])) };
        let error = open().put(preset, Expected::NotSet).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error:#}");
        let preset = NewSecret { name: "github".parse().unwrap(), ..new(None) };
        open().put(preset, Expected::NotSet).expect("control");
    }
}
