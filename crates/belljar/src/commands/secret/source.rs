//! Reads the value of a secret from the terminal, a variable, a file or a command.
//!
//! The value is never an argument.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use belljar_model::net::SecretName;
use zeroize::Zeroizing;

use crate::cli::secret::SecretSourceArgs;
use crate::prompt;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::secrets::MAX_VALUE;

/// The maximum number of bytes that are read: a value and a line break.
const MAX_READ: usize = MAX_VALUE + 2;

/// Reads the value of a secret from the source that the options choose.
pub(super) fn read(
    name: &SecretName,
    from: &SecretSourceArgs,
) -> Result<Zeroizing<Vec<u8>>, EngineError> {
    let SecretSourceArgs { from_env, from_file, from_command } = from;
    match (from_env, from_file, from_command) {
        (Some(variable), _, _) => read_variable(variable),
        (_, Some(file), _) => read_file(file).kind(ErrorKind::Broken),
        (_, _, Some(command)) => read_command_output(command).kind(ErrorKind::Broken),
        (None, None, None) if io::stdin().is_terminal() => {
            prompt::read_hidden_line(&format!("Value of {name} (not shown): "), MAX_VALUE)
                .with_context(|| format!("cannot store the secret {name}"))
                .kind(ErrorKind::Broken)
        }
        (None, None, None) => read_limited(io::stdin().lock())
            .context("cannot read the secret from standard input")
            .kind(ErrorKind::Broken),
    }
}

/// Reads the value from an environment variable.
fn read_variable(variable: &str) -> Result<Zeroizing<Vec<u8>>, EngineError> {
    match std::env::var_os(variable) {
        Some(value) => Ok(Zeroizing::new(value.into_vec())),
        None => Err(invalid(format!("--from-env: the environment variable {variable} is not set"))),
    }
}

/// Reads the value from a file.
fn read_file(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let failure = || format!("--from-file: cannot read {}", path.display());
    let file = std::fs::File::open(path).with_context(failure)?;
    read_limited(file).with_context(failure)
}

/// Reads the value from the standard output of a command.
fn read_command_output(command: &[OsString]) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let Some((program, args)) = command.split_first() else {
        bail!("--from-command needs the name of a program")
    };
    let failure = || format!("--from-command: cannot read the output of {}", program.display());
    let mut child = Command::new(program)
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("--from-command: cannot start {}", program.display()))?;
    let output = child.stdout.take().map(read_limited);
    let status = child.wait().with_context(failure)?;
    if !status.success() {
        bail!("--from-command: {} failed with {status}", program.display());
    }
    output.with_context(failure)?.with_context(failure)
}

/// Reads a whole input, but at most one byte more than a value can have.
fn read_limited(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocated once: growing the vector would leave copies of the secret in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_READ + 64));
    let limit = u64::try_from(MAX_READ + 1).map_err(io::Error::other)?;
    from.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
