//! Where the value of a secret comes from. Never from an argument.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use belljar_model::net::SecretName;
use zeroize::Zeroizing;

use crate::cli::secret::From;
use crate::prompt;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::secrets::MAX_VALUE;

/// A value with the line break after it.
const MAX_READ: usize = MAX_VALUE + 2;

pub(super) fn read(name: &SecretName, from: &From) -> Result<Zeroizing<Vec<u8>>, EngineError> {
    let From { from_env, from_file, from_command } = from;
    match (from_env, from_file, from_command) {
        (Some(variable), _, _) => variable_of(variable),
        (_, Some(file), _) => file_of(file).kind(ErrorKind::Broken),
        (_, _, Some(command)) => output_of(command).kind(ErrorKind::Broken),
        (None, None, None) if io::stdin().is_terminal() => {
            prompt::hidden(&format!("Value of {name} (not shown): "), MAX_VALUE)
                .with_context(|| format!("{name} was not set"))
                .kind(ErrorKind::Broken)
        }
        (None, None, None) => {
            bounded(io::stdin().lock()).context("read standard input").kind(ErrorKind::Broken)
        }
    }
}

fn variable_of(variable: &str) -> Result<Zeroizing<Vec<u8>>, EngineError> {
    match std::env::var_os(variable) {
        Some(value) => Ok(Zeroizing::new(value.into_vec())),
        None => Err(invalid(format!("--from-env {variable}: there is no such variable"))),
    }
}

fn file_of(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let doing = || format!("--from-file {}", path.display());
    let file = std::fs::File::open(path).with_context(doing)?;
    bounded(file).with_context(doing)
}

fn output_of(command: &[OsString]) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let Some((program, args)) = command.split_first() else { bail!("--from-command needs one") };
    let doing = || format!("--from-command {}", program.display());
    let mut child = Command::new(program)
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{}: start it", doing()))?;
    let output = child.stdout.take().map(bounded);
    let status = child.wait().with_context(doing)?;
    if !status.success() {
        bail!("{}: {status}", doing());
    }
    output.with_context(|| format!("{}: no output", doing()))?.with_context(doing)
}

/// All of an input, but no more than one byte above what a value may have.
fn bounded(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // All at once, so that growing leaves no copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_READ + 64));
    let limit = u64::try_from(MAX_READ + 1).map_err(io::Error::other)?;
    from.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
