//! The table of all acts, and the act `batch`, which performs many acts in one box.

use std::io::{BufRead, Write};
use std::process::Command;

use crate::result::{ActError, ActResult};
use crate::{bombs, calls, files, ipc, launch, processes, sockets};

/// One hostile operation that the probe can perform.
pub(crate) struct Act {
    pub(crate) name: &'static str,
    /// The description of the operation's arguments.
    pub(crate) takes: &'static str,
    pub(crate) run: fn(&Params<'_>) -> ActResult,
}

/// The arguments of an operation of the probe.
pub(crate) struct Params<'a>(&'a [String]);

impl Params<'_> {
    /// Returns an argument of the operation as text.
    pub(crate) fn text(&self, index: usize) -> Result<&str, ActError> {
        match self.0.get(index) {
            Some(text) => Ok(text),
            None => Err(ActError::Usage(format!("… argument {} is missing", index + 1))),
        }
    }

    /// Returns an argument of the operation, parsed as a number or address.
    pub(crate) fn number<T: std::str::FromStr>(&self, index: usize) -> Result<T, ActError> {
        let text = self.text(index)?;
        text.parse().map_err(|_| ActError::Usage(format!("… `{text}` is not a number")))
    }

    /// Returns an argument of the operation as a 64-bit integer: decimal, octal with `0o` or
    /// hexadecimal with `0x`.
    pub(crate) fn integer(&self, index: usize) -> Result<u64, ActError> {
        let text = self.text(index)?;
        let parsed = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
            (Some(hex), _) => u64::from_str_radix(hex, 16),
            (_, Some(octal)) => u64::from_str_radix(octal, 8),
            (None, None) => match text.strip_prefix('-') {
                Some(digits) => digits.parse::<u64>().map(u64::wrapping_neg),
                None => text.parse(),
            },
        };
        parsed.map_err(|_| ActError::Usage(format!("… `{text}` is not a number")))
    }

    /// Returns an argument of the operation as a string with a terminating NUL.
    pub(crate) fn c_string(&self, index: usize) -> Result<Vec<u8>, ActError> {
        let mut bytes = self.text(index)?.as_bytes().to_vec();
        bytes.push(0);
        Ok(bytes)
    }

    /// Returns all arguments of the operation from this index on.
    pub(crate) fn rest(&self, index: usize) -> &[String] {
        self.0.get(index..).unwrap_or_default()
    }
}

/// The operations of the probe that list or perform other operations.
const OWN: &[Act] = &[
    Act { name: "batch", takes: "(acts on standard input, one per line)", run: batch },
    Act { name: "acts", takes: "", run: list },
];

/// Returns the operations of all modules of the probe.
fn tables() -> [&'static [Act]; 8] {
    [
        OWN,
        calls::ACTS,
        files::ACTS,
        sockets::ACTS,
        processes::ACTS,
        ipc::ACTS,
        bombs::ACTS,
        launch::ACTS,
    ]
}

/// Performs the operation with this name.
pub(crate) fn perform(name: &str, params: &[String]) -> ActResult {
    match tables().into_iter().flatten().find(|act| act.name == name) {
        Some(act) => (act.run)(&Params(params)),
        None => {
            Err(ActError::Usage(format!("ACT [ARG…]; unknown act `{name}`; `acts` lists all acts")))
        }
    }
}

fn list(_: &Params<'_>) -> ActResult {
    let mut text = String::new();
    for act in tables().into_iter().flatten() {
        text.push_str(&format!("\n{} {}", act.name, act.takes));
    }
    Ok(text)
}

/// Performs the operation in each line of standard input in a separate process and prints `LINE =>
/// RESULT`. One box is then enough for many acts, and no act sees open files or memory of another.
#[expect(clippy::disallowed_methods, reason = "the probe starts only itself, inside the box")]
fn batch(_: &Params<'_>) -> ActResult {
    let own_program = std::env::current_exe()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let output = Command::new(&own_program).args(line.split_whitespace()).output()?;
        let result = String::from_utf8_lossy(&output.stdout);
        let result = match result.trim_end() {
            "" => format!("silent {}", output.status),
            result => result.to_owned(),
        };
        writeln!(std::io::stdout(), "{line} => {result}")?;
    }
    Err(ActError::AlreadyPrinted(0))
}
