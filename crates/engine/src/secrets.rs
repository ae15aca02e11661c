//! The secrets in the vault: boxes can use them, and no function returns their values (threat B19).
//!
//! belljar.toml declares the hosts and slots of a secret. The value of the secret is stored encrypted in
//! the vault. This module returns the key of the vault as a file descriptor, so that a process can pass the
//! key to another process without reading it.

mod declared;

use std::fs::File;
use std::io::Seek as _;
use std::process::Command;

use anyhow::{Context as _, bail};
use belljar_broker::vault::Value;
use belljar_broker::vault::sealed::{self, Key, KeySource};
use belljar_broker::vault::store::{Store, Stored};
use belljar_ledger::{Draft, SecretRemoved, SecretSet};
use belljar_model::Config;
use belljar_model::net::{SecretDecl, SecretName};
use rustix::fs::MemfdFlags;
use rustix::process::DumpableBehavior;
use zeroize::Zeroizing;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::{self, LedgerHandle};
use crate::scope::Scoped;

/// The maximum size of a secret's value in bytes.
pub use belljar_broker::vault::MAX_VALUE;
pub use declared::{NewSecret, Origin};

/// The secrets of one tenant, with the declarations of the operator's configuration file.
#[derive(Debug)]
pub struct Secrets {
    state: Scoped,
    config: Config,
    /// The declarations of the secrets that were set with the API. They are in `config` as well.
    of_api: Vec<SecretDecl>,
}

/// The name, state and declaration of a secret, without its value.
#[derive(Clone, Debug)]
pub struct SecretStatus {
    pub name: SecretName,
    pub value: ValueState,
    /// The hosts and slots of the secret. `None` if belljar.toml does not declare the secret.
    pub declared: Option<SecretDecl>,
}

/// Whether the vault has a value for a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueState {
    NotSet,
    /// The vault has a file for the secret, but the header of the file cannot be read.
    Damaged,
    /// The value was set at this time, in nanoseconds since 1970.
    Set {
        at: u64,
    },
}

/// The version that a secret must have, so that a change does not overwrite one of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Anything,
    /// The vault has no value for the secret.
    NotSet,
    /// The value was set at this time, in nanoseconds since 1970. A damaged file has the time 0.
    Version(u64),
}

impl ValueState {
    /// Returns the version of a value; `None` without a value.
    pub const fn version(self) -> Option<u64> {
        match self {
            Self::NotSet => None,
            Self::Damaged => Some(0),
            Self::Set { at } => Some(at),
        }
    }
}

impl Expected {
    fn check(self, name: &SecretName, state: ValueState) -> Result<(), EngineError> {
        let is_expected = match self {
            Self::Anything => true,
            Self::NotSet => state.version().is_none(),
            Self::Version(version) => state.version() == Some(version),
        };
        if is_expected {
            return Ok(());
        }
        let text = format!("secret {name} was set or removed by another client");
        Err(EngineError::message(ErrorKind::Conflict, text).advise("list the secrets again"))
    }
}

impl Secrets {
    /// Opens the secrets. Reads only the operator's configuration file: a project cannot declare secrets.
    pub fn open(state: &Scoped) -> Result<Self, EngineError> {
        let (config, _) = state.load_config(None)?;
        Ok(Self { state: state.clone(), config, of_api: state.declared_secrets()? })
    }

    /// Opens the ledger, the vault and its key, so that errors occur before a person types a value.
    pub fn writer(&self) -> Result<SecretWriter<'_>, EngineError> {
        disable_core_dumps()?;
        let ledger = record::open(&self.state).kind(ErrorKind::Broken)?;
        let store = Store::create(self.state.home()).kind(ErrorKind::Broken)?;
        let key = key_or_new(&self.config, &store).kind(ErrorKind::Broken)?;
        Ok(SecretWriter { secrets: self, ledger, store, key })
    }

    /// Returns all secrets that are set or that the operator declared, sorted by name. Secrets that only a
    /// preset declares are not listed until they are set.
    pub fn list(&self) -> Result<Vec<SecretStatus>, EngineError> {
        let stored = stored(&self.state)?;
        let is_stored = |name: &SecretName| stored.iter().any(|stored| stored.name == *name);
        let declared = self.config.declared_secrets().filter(|name| !is_stored(name));
        let mut all: Vec<SecretStatus> =
            declared.map(|name| self.status(name, ValueState::NotSet)).collect();
        all.extend(stored.iter().map(|stored| self.status(&stored.name, state_of(stored))));
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    /// Decrypts a secret and checks its value against its declaration.
    pub fn test(&self, name: &SecretName) -> Result<SecretStatus, EngineError> {
        disable_core_dumps()?;
        let store = self.store_with(name)?;
        let at = self.check(&store, name).kind(ErrorKind::Broken)?;
        Ok(self.status(name, ValueState::Set { at }))
    }

    /// Records the removal of a secret in the ledger, then removes its value.
    pub fn remove(&self, name: &SecretName) -> Result<(), EngineError> {
        let store = self.store_with(name)?;
        let ledger = record::open(&self.state).kind(ErrorKind::Broken)?;
        let event = SecretRemoved { name: name.to_string() };
        let recorded =
            ledger.record(Draft::new(event)).context("cannot record that a secret is removed");
        let recorded = recorded.kind(ErrorKind::Broken)?;
        match store.remove(name, &recorded).kind(ErrorKind::Broken)? {
            true => Ok(()),
            // Another process removed the secret after `store_with` found it.
            false => Err(not_set(name)),
        }
    }

    fn status(&self, name: &SecretName, value: ValueState) -> SecretStatus {
        SecretStatus { name: name.clone(), value, declared: self.config.secret(name).cloned() }
    }

    /// Opens the vault. Fails if the vault has no secret with this name.
    fn store_with(&self, name: &SecretName) -> Result<Store, EngineError> {
        let store = Store::open(self.state.home()).kind(ErrorKind::Broken)?;
        let store = store.ok_or_else(|| not_set(name))?;
        match store.file(name).kind(ErrorKind::Broken)? {
            Some(_) => Ok(store),
            None => Err(not_set(name)),
        }
    }

    /// Returns the time at which the secret was set, if its value can be decrypted and fits its
    /// declaration.
    fn check(&self, store: &Store, name: &SecretName) -> anyhow::Result<u64> {
        let (source, from) = key_descriptor(self.config.key_command(), store)?;
        let key = Key::read(source, &from)?;
        let file =
            store.file(name)?.context("the file of the secret was removed by another process")?;
        let unsealed = sealed::unseal(&key, name, &file)?;
        if let Some(declared) = self.config.secret(name) {
            unsealed.value.check(&declared.kind).with_context(|| {
                format!("the value of secret {name} does not fit its declaration")
            })?;
        }
        Ok(unsealed.set_at)
    }
}

/// An open vault, ready to store values of secrets.
#[derive(Debug)]
pub struct SecretWriter<'a> {
    secrets: &'a Secrets,
    ledger: LedgerHandle,
    store: Store,
    key: Key,
}

impl SecretWriter<'_> {
    /// Encrypts a value and stores it in the vault after recording that in the ledger.
    ///
    /// A value that does not fit the declaration of the secret is refused.
    pub fn set(
        &self,
        name: &SecretName,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<SecretStatus, EngineError> {
        let was_not_set = || format!("secret {name} was not set");
        let value = Value::new(value).with_context(was_not_set).kind(ErrorKind::Broken)?;
        let declared = self.secrets.config.secret(name);
        if let Some(declared) = declared {
            value.check(&declared.kind).with_context(was_not_set).kind(ErrorKind::Broken)?;
        }
        self.place(name, &value, Expected::Anything)
    }

    /// Stores a checked value, if the secret has the expected version.
    fn place(
        &self,
        name: &SecretName,
        value: &Value,
        expected: Expected,
    ) -> Result<SecretStatus, EngineError> {
        let declared = self.secrets.config.secret(name);
        let at = self.secrets.state.clock().nanos();
        let prepared = self.store.prepare(&self.key, name, value, at).kind(ErrorKind::Broken)?;
        // The prepared value holds the lock of the vault.
        expected.check(name, self.stored_value(name)?)?;
        // The encrypted file is already on disk. After the record, only a rename is needed.
        let event = SecretSet {
            name: name.to_string(),
            hosts: declared.map_or_else(Vec::new, |declared| texts(&declared.hosts)),
            slots: declared.map_or_else(Vec::new, |declared| texts(&declared.slots)),
        };
        let recorded =
            self.ledger.record(Draft::new(event)).context("cannot record that a secret is set");
        prepared.place(&recorded.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)?;
        Ok(self.secrets.status(name, ValueState::Set { at }))
    }

    /// Returns whether the vault has a value for a secret.
    fn stored_value(&self, name: &SecretName) -> Result<ValueState, EngineError> {
        let stored = self.store.list().kind(ErrorKind::Broken)?;
        let found = stored.iter().find(|stored| stored.name == *name);
        Ok(found.map_or(ValueState::NotSet, state_of))
    }
}

fn state_of(stored: &Stored) -> ValueState {
    stored.set_at.map_or(ValueState::Damaged, |at| ValueState::Set { at })
}

/// Returns the secrets that have a file in the vault.
pub(crate) fn stored(state: &Scoped) -> Result<Vec<Stored>, EngineError> {
    match Store::open(state.home()).kind(ErrorKind::Broken)? {
        Some(store) => store.list().kind(ErrorKind::Broken),
        None => Ok(Vec::new()),
    }
}

fn not_set(name: &SecretName) -> EngineError {
    EngineError::message(
        ErrorKind::NotFound,
        format!("secret {name} is not set; `belljar secret list` shows the secrets that are set"),
    )
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// Disables core dumps of this process and access to its memory by other processes of the user.
fn disable_core_dumps() -> Result<(), EngineError> {
    let set = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    set.context("cannot disable core dumps of this process").kind(ErrorKind::Broken)
}

/// Returns a descriptor of the key of the vault: the key file, or the output of `key-command`.
pub(crate) fn key_descriptor(
    key_command: Option<&[String]>,
    store: &Store,
) -> anyhow::Result<(KeySource, File)> {
    if let Some(command) = key_command {
        return Ok((KeySource::Command, output_of(command)?));
    }
    let missing =
        "the key file `vault/key` of the vault is missing; restore it, or set the secrets again";
    Ok((KeySource::File, store.key_file()?.context(missing)?))
}

/// Reads the key of the vault. Creates a key if there is no key file and no `key-command`.
pub(crate) fn key_or_new(config: &Config, store: &Store) -> anyhow::Result<Key> {
    match config.key_command() {
        Some(command) => {
            let (source, from) = key_descriptor(Some(command), store)?;
            Ok(Key::read(source, &from)?)
        }
        None => Ok(store.key()?),
    }
}

/// Runs a command and returns its output as an anonymous memory file, without reading the output.
fn output_of(command: &[String]) -> anyhow::Result<File> {
    let Some((program, args)) = command.split_first() else {
        bail!("`key-command` in belljar.toml is empty; name a program, or remove the line");
    };
    let doing = || format!("cannot run `key-command` {program}");
    let memory = rustix::fs::memfd_create("key", MemfdFlags::CLOEXEC).with_context(doing)?;
    let mut memory = File::from(memory);
    let output = memory.try_clone().with_context(doing)?;
    let status = Command::new(program).args(args).stdout(output).status().with_context(doing)?;
    if !status.success() {
        bail!("`key-command` {program} failed: {status}");
    }
    memory.rewind().with_context(doing)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;

    #[test]
    fn secrets_list_shows_a_secret_until_its_removal_and_never_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let (state, config) = (of_test(dir.path()), Config::built_in());
        let secrets = Secrets { state, config, of_api: Vec::new() };
        let name: SecretName = "token".parse().unwrap();
        assert_eq!(secrets.test(&name).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(secrets.remove(&name).unwrap_err().kind(), ErrorKind::NotFound);

        let value = Zeroizing::new(b"a-value-of-the-test".to_vec());
        let set = secrets.writer().unwrap().set(&name, value).unwrap();
        assert_eq!(secrets.test(&name).unwrap().value, set.value);
        let listed = secrets.list().unwrap();
        let [SecretStatus { value: ValueState::Set { .. }, declared: None, .. }] = &listed[..]
        else {
            panic!("{listed:?}")
        };
        assert!(!format!("{listed:?}").contains("a-value-of-the-test"));

        secrets.remove(&name).unwrap();
        assert!(secrets.list().unwrap().is_empty());
    }
}
