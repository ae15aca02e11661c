//! The secrets of the vault: boxes use them and no function returns their values (B19).
//!
//! belljar.toml declares where a secret may go; its value lies sealed in the vault. The key of the vault
//! leaves this module as a descriptor, so that a process that passes it on does not know it.

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

/// The most bytes that a value may have.
pub use belljar_broker::vault::MAX_VALUE;

/// The secrets of one tenant, with the declarations of the operator's configuration file.
#[derive(Debug)]
pub struct Secrets {
    state: Scoped,
    config: Config,
}

/// One secret, without its value.
#[derive(Clone, Debug)]
pub struct SecretStatus {
    pub name: SecretName,
    pub value: ValueState,
    /// Where it may go; `None` if belljar.toml does not declare it.
    pub declared: Option<SecretDecl>,
}

/// Whether the vault holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueState {
    NotSet,
    /// There is a file, and its header cannot be read.
    Damaged,
    /// Set at this time, in nanoseconds since 1970.
    Set {
        at: u64,
    },
}

impl Secrets {
    /// Opens the secrets. Only the operator's own file is read: a project declares no secrets.
    pub fn open(state: &Scoped) -> Result<Self, EngineError> {
        let (config, _) = state.load_config(None)?;
        Ok(Self { state: state.clone(), config })
    }

    /// Opens the ledger, the vault and its key, so that errors come before a person types a value.
    pub fn writer(&self) -> Result<SecretWriter<'_>, EngineError> {
        keep_out_of_core_dumps()?;
        let ledger = record::open(&self.state).kind(ErrorKind::Broken)?;
        let store = Store::create(self.state.home()).kind(ErrorKind::Broken)?;
        let key = key_or_new(&self.config, &store).kind(ErrorKind::Broken)?;
        Ok(SecretWriter { secrets: self, ledger, store, key })
    }

    /// Every secret that is set or that the operator declared, by name. Secrets that only a preset
    /// declares are missing until they are set.
    pub fn list(&self) -> Result<Vec<SecretStatus>, EngineError> {
        let stored = stored(&self.state)?;
        let is_stored = |name: &SecretName| stored.iter().any(|stored| stored.name == *name);
        let declared = self.config.declared_secrets().filter(|name| !is_stored(name));
        let mut all: Vec<SecretStatus> =
            declared.map(|name| self.status(name, ValueState::NotSet)).collect();
        all.extend(stored.iter().map(|Stored { name, set_at }| {
            self.status(name, set_at.map_or(ValueState::Damaged, |at| ValueState::Set { at }))
        }));
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    /// Opens a secret and compares its value with its declaration.
    pub fn test(&self, name: &SecretName) -> Result<SecretStatus, EngineError> {
        keep_out_of_core_dumps()?;
        let store = self.store_with(name)?;
        let at = self.check(&store, name).kind(ErrorKind::Broken)?;
        Ok(self.status(name, ValueState::Set { at }))
    }

    /// Removes the value of a secret, on record first.
    pub fn remove(&self, name: &SecretName) -> Result<(), EngineError> {
        let store = self.store_with(name)?;
        let ledger = record::open(&self.state).kind(ErrorKind::Broken)?;
        let event = SecretRemoved { name: name.to_string() };
        let recorded = ledger.record(Draft::new(event)).context("record that a secret is removed");
        let recorded = recorded.kind(ErrorKind::Broken)?;
        match store.remove(name, &recorded).kind(ErrorKind::Broken)? {
            true => Ok(()),
            // Another process removed it in the meantime.
            false => Err(not_set(name)),
        }
    }

    fn status(&self, name: &SecretName, value: ValueState) -> SecretStatus {
        SecretStatus { name: name.clone(), value, declared: self.config.secret(name).cloned() }
    }

    /// The vault, if it has this secret.
    fn store_with(&self, name: &SecretName) -> Result<Store, EngineError> {
        let store = Store::open(self.state.home()).kind(ErrorKind::Broken)?;
        let store = store.ok_or_else(|| not_set(name))?;
        match store.file(name).kind(ErrorKind::Broken)? {
            Some(_) => Ok(store),
            None => Err(not_set(name)),
        }
    }

    /// The time at which the secret was set, if its value opens and fits its declaration.
    fn check(&self, store: &Store, name: &SecretName) -> anyhow::Result<u64> {
        let (source, from) = key_descriptor(self.config.key_command(), store)?;
        let key = Key::read(source, &from)?;
        let file = store.file(name)?.context("the sealed file went away")?;
        let unsealed = sealed::unseal(&key, name, &file)?;
        if let Some(declared) = self.config.secret(name) {
            unsealed.value.check(&declared.kind).with_context(|| format!("{name} is of no use"))?;
        }
        Ok(unsealed.set_at)
    }
}

/// The opened vault, ready for a value.
#[derive(Debug)]
pub struct SecretWriter<'a> {
    secrets: &'a Secrets,
    ledger: LedgerHandle,
    store: Store,
    key: Key,
}

impl SecretWriter<'_> {
    /// Seals a value and puts it into the vault, on record first. A value that does not fit the
    /// declaration of the secret is refused.
    pub fn set(
        &self,
        name: &SecretName,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<SecretStatus, EngineError> {
        let was_not_set = || format!("{name} was not set");
        let value = Value::new(value).with_context(was_not_set).kind(ErrorKind::Broken)?;
        let declared = self.secrets.config.secret(name);
        if let Some(declared) = declared {
            value.check(&declared.kind).with_context(was_not_set).kind(ErrorKind::Broken)?;
        }
        let at = self.secrets.state.clock().nanos();
        let prepared = self.store.prepare(&self.key, name, &value, at).kind(ErrorKind::Broken)?;
        // The sealed file is on the disk by now: after the record only a rename is left.
        let event = SecretSet {
            name: name.to_string(),
            hosts: declared.map_or_else(Vec::new, |declared| texts(&declared.hosts)),
            slots: declared.map_or_else(Vec::new, |declared| texts(&declared.slots)),
        };
        let recorded = self.ledger.record(Draft::new(event)).context("record that a secret is set");
        prepared.place(&recorded.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)?;
        Ok(self.secrets.status(name, ValueState::Set { at }))
    }
}

/// The secrets that have a file in the vault.
pub(crate) fn stored(state: &Scoped) -> Result<Vec<Stored>, EngineError> {
    match Store::open(state.home()).kind(ErrorKind::Broken)? {
        Some(store) => store.list().kind(ErrorKind::Broken),
        None => Ok(Vec::new()),
    }
}

fn not_set(name: &SecretName) -> EngineError {
    EngineError::message(
        ErrorKind::NotFound,
        format!("no secret {name} is set; `belljar secret list` shows those that are"),
    )
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// While a value is in memory, the process writes no core dump and no other process of the user reads
/// its memory.
fn keep_out_of_core_dumps() -> Result<(), EngineError> {
    let set = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    set.context("keep the value out of core dumps").kind(ErrorKind::Broken)
}

/// Where the key can be read: the key file, or the output of the operator's `key-command`.
pub(crate) fn key_descriptor(
    key_command: Option<&[String]>,
    store: &Store,
) -> anyhow::Result<(KeySource, File)> {
    if let Some(command) = key_command {
        return Ok((KeySource::Command, output_of(command)?));
    }
    let gone = "the vault has no key; put `vault/key` back, or set the secrets again";
    Ok((KeySource::File, store.key_file()?.context(gone)?))
}

/// The key, made if there is none.
pub(crate) fn key_or_new(config: &Config, store: &Store) -> anyhow::Result<Key> {
    match config.key_command() {
        Some(command) => {
            let (source, from) = key_descriptor(Some(command), store)?;
            Ok(Key::read(source, &from)?)
        }
        None => Ok(store.key()?),
    }
}

/// The output of a command, unread: it goes into memory that only a descriptor leads to.
fn output_of(command: &[String]) -> anyhow::Result<File> {
    let Some((program, args)) = command.split_first() else {
        bail!("`key-command` names no program");
    };
    let doing = || format!("`key-command` {program}");
    let memory = rustix::fs::memfd_create("key", MemfdFlags::CLOEXEC).with_context(doing)?;
    let mut memory = File::from(memory);
    let output = memory.try_clone().with_context(doing)?;
    let status = Command::new(program).args(args).stdout(output).status().with_context(doing)?;
    if !status.success() {
        bail!("{}: {status}", doing());
    }
    memory.rewind().with_context(doing)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;

    #[test]
    fn secret_is_listed_from_set_to_removal_without_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets { state: of_test(dir.path()), config: Config::built_in() };
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
