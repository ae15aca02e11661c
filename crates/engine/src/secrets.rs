//! The key of the vault, as a descriptor: whoever passes it on does not know it.

use std::fs::File;
use std::io::Seek as _;
use std::process::Command;

use anyhow::{Context as _, bail};
use belljar_broker::vault::sealed::{Key, KeySource};
use belljar_broker::vault::store::Store;
use belljar_model::Config;
use rustix::fs::MemfdFlags;

/// Where the key can be read: the key file, or what the operator's `key-command` wrote.
pub fn key_descriptor(
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
pub fn key_or_new(config: &Config, store: &Store) -> anyhow::Result<Key> {
    match config.key_command() {
        Some(command) => {
            let (source, from) = key_descriptor(Some(command), store)?;
            Ok(Key::read(source, &from)?)
        }
        None => Ok(store.key()?),
    }
}

/// What a command writes, without reading it: it goes into memory that only a descriptor leads to.
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
