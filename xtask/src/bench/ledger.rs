//! What the benches of the ledger share: the program that is measured, and a ledger to measure.
//!
//! Nothing of Belljar is linked in here, so the measured code is an example of its crate. It times
//! itself and answers in one line of JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::lab::Lab;
use crate::dist;
use crate::shell::{as_from_a_shell, read};

/// How many events a large ledger has.
pub(super) const MANY: u64 = 1_000_000;

/// The measured program.
#[derive(Debug)]
pub(super) struct Measured(PathBuf);

/// A ledger that was made to be measured.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) dir: PathBuf,
    pub(super) log: PathBuf,
    /// What a reader of the report should know about it.
    pub(super) note: String,
}

impl Measured {
    pub(super) fn build() -> Result<Self> {
        dist::build(&["--package", "belljar-ledger", "--example", "bench"])?;
        Ok(Self(dist::built()?.join("examples/bench")))
    }

    pub(super) fn command(&self, act: &str, place: &Path, numbers: &[u64]) -> Command {
        let mut command = as_from_a_shell(&self.0);
        command.arg(act).arg(place).args(numbers.iter().map(u64::to_string));
        command
    }

    pub(super) fn ask(&self, act: &str, place: &Path, numbers: &[u64]) -> Result<Value> {
        parse(&read(&mut self.command(act, place, numbers))?)
    }

    /// The ledger of so many events; made once, for all benches of this run.
    pub(super) fn make(&self, lab: &Lab, events: u64) -> Result<Made> {
        let dir = place(lab).join(format!("{events}-events"));
        let told = dir.join("made.json");
        if !told.exists() {
            println!("making a ledger of {events} events");
            let answer = self.ask("make", &dir, &[events])?;
            std::fs::write(&told, answer.to_string())
                .with_context(|| format!("write {}", told.display()))?;
        }
        let text =
            std::fs::read_to_string(&told).with_context(|| format!("read {}", told.display()))?;
        let answer = parse(&text)?;
        let log = answer.get("log").and_then(Value::as_str).context("no `log` in the answer")?;
        let note = format!(
            "a ledger of {events} events: {:.0} runs mixed with one another, a log of {:.1} MB, made in {:.1} s",
            number(&answer, "runs")?,
            number(&answer, "bytes")? / 1e6,
            number(&answer, "seconds")?,
        );
        Ok(Made { log: log.into(), note, dir })
    }
}

pub(super) fn parse(answer: &str) -> Result<Value> {
    serde_json::from_str(answer).with_context(|| format!("`{}` is no answer", answer.trim()))
}

pub(super) fn number(answer: &Value, name: &str) -> Result<f64> {
    let number = answer.get(name).and_then(Value::as_f64);
    number.with_context(|| format!("no `{name}` in the answer {answer}"))
}

/// Where ledgers are made, on the disk that everything here is built on.
pub(super) fn place(lab: &Lab) -> PathBuf {
    lab.scratch.join("ledgers")
}

/// Takes away what was made.
pub(super) fn remove(lab: &Lab) -> Result<()> {
    empty(&place(lab))
}

/// Takes away a directory if it is there.
pub(super) fn empty(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("empty {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_the_number_is_no_sample() {
        let answer = parse("{\"seconds\":0.5,\"log\":\"x\"}\n").unwrap();
        assert_eq!(number(&answer, "seconds").unwrap(), 0.5);
        assert!(number(&answer, "log").is_err());
        assert!(number(&answer, "cpu").is_err());
        assert!(parse("panicked").is_err());
    }
}
