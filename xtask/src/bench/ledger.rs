//! Shared code of the ledger benchmarks: the measured program, and large ledgers for it.
//!
//! xtask does not link Belljar, so the measured program is an example of `belljar-ledger`. It measures
//! its own time and prints the result as one line of JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::lab::Lab;
use crate::dist;
use crate::shell::{as_from_a_shell, read};

/// The number of events of a large ledger.
pub(super) const MANY: u64 = 1_000_000;

/// The measured program: an example of `belljar-ledger`.
#[derive(Debug)]
pub(super) struct LedgerTool(PathBuf);

/// A generated ledger.
#[derive(Debug)]
pub(super) struct TestLedger {
    pub(super) dir: PathBuf,
    pub(super) log: PathBuf,
    /// A description of the ledger for the notes of a report.
    pub(super) note: String,
}

impl LedgerTool {
    pub(super) fn build() -> Result<Self> {
        dist::build(&["--package", "belljar-ledger", "--example", "bench"])?;
        Ok(Self(dist::output_dir()?.join("examples/bench")))
    }

    pub(super) fn command(&self, action: &str, path: &Path, numbers: &[u64]) -> Command {
        let mut command = as_from_a_shell(&self.0);
        command.arg(action).arg(path).args(numbers.iter().map(u64::to_string));
        command
    }

    /// Runs the program and returns its result.
    pub(super) fn run(&self, action: &str, path: &Path, numbers: &[u64]) -> Result<Value> {
        parse(&read(&mut self.command(action, path, numbers))?)
    }

    /// Returns a ledger with this number of events. It is generated once for all benchmarks of a run.
    pub(super) fn test_ledger(&self, lab: &Lab, events: u64) -> Result<TestLedger> {
        let dir = ledgers_dir(lab).join(format!("{events}-events"));
        let info = dir.join("made.json");
        if !info.exists() {
            println!("generating a ledger with {events} events");
            let result = self.run("make", &dir, &[events])?;
            std::fs::write(&info, result.to_string())
                .with_context(|| format!("cannot write {}", info.display()))?;
        }
        let text = std::fs::read_to_string(&info)
            .with_context(|| format!("cannot read {}", info.display()))?;
        let result = parse(&text)?;
        let log = result.get("log").and_then(Value::as_str).context("the result has no `log`")?;
        let note = format!(
            "a ledger of {events} events: {:.0} interleaved runs, a log of {:.1} MB, generated in {:.1} s",
            number(&result, "runs")?,
            number(&result, "bytes")? / 1e6,
            number(&result, "seconds")?,
        );
        Ok(TestLedger { log: log.into(), note, dir })
    }
}

/// Parses the JSON line that the measured program printed.
pub(super) fn parse(output: &str) -> Result<Value> {
    serde_json::from_str(output)
        .with_context(|| format!("cannot parse the output `{}`", output.trim()))
}

/// Returns a number of a result by its name.
pub(super) fn number(result: &Value, name: &str) -> Result<f64> {
    let number = result.get(name).and_then(Value::as_f64);
    number.with_context(|| format!("the result {result} has no number `{name}`"))
}

/// Returns the directory for ledgers, on the same disk as the target directory.
pub(super) fn ledgers_dir(lab: &Lab) -> PathBuf {
    lab.scratch.join("ledgers")
}

/// Removes all generated ledgers.
pub(super) fn remove(lab: &Lab) -> Result<()> {
    remove_dir(&ledgers_dir(lab))
}

/// Removes a directory if it exists.
pub(super) fn remove_dir(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_fails_for_a_missing_or_non_numeric_field() {
        let result = parse("{\"seconds\":0.5,\"log\":\"x\"}\n").unwrap();
        assert_eq!(number(&result, "seconds").unwrap(), 0.5);
        assert!(number(&result, "log").is_err());
        assert!(number(&result, "cpu").is_err());
        assert!(parse("panicked").is_err());
    }
}
