//! The table of acts by name, and the batch that performs many of them in one box.

use std::io::{BufRead, Write};
use std::process::Command;

use crate::answer::{Answer, Stop};
use crate::{bombs, calls, files, ipc, processes, sockets, stage};

/// One thing that the probe can do.
pub(crate) struct Act {
    pub(crate) name: &'static str,
    /// Its arguments, for people.
    pub(crate) takes: &'static str,
    pub(crate) run: fn(&Words<'_>) -> Answer,
}

/// The arguments of an act.
pub(crate) struct Words<'a>(&'a [String]);

impl Words<'_> {
    pub(crate) fn text(&self, place: usize) -> Result<&str, Stop> {
        match self.0.get(place) {
            Some(word) => Ok(word),
            None => Err(Stop::Usage(format!("… argument {} is missing", place + 1))),
        }
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, place: usize) -> Result<T, Stop> {
        let word = self.text(place)?;
        word.parse().map_err(|_| Stop::Usage(format!("… `{word}` is not a number")))
    }

    /// A number as the kernel takes it: decimal, octal with `0o` or hexadecimal with `0x`.
    pub(crate) fn word(&self, place: usize) -> Result<u64, Stop> {
        let word = self.text(place)?;
        let parsed = match (word.strip_prefix("0x"), word.strip_prefix("0o")) {
            (Some(hex), _) => u64::from_str_radix(hex, 16),
            (_, Some(octal)) => u64::from_str_radix(octal, 8),
            (None, None) => match word.strip_prefix('-') {
                Some(digits) => digits.parse::<u64>().map(u64::wrapping_neg),
                None => word.parse(),
            },
        };
        parsed.map_err(|_| Stop::Usage(format!("… `{word}` is not a number")))
    }

    /// The text with a NUL behind it, as the kernel takes it.
    pub(crate) fn c_text(&self, place: usize) -> Result<Vec<u8>, Stop> {
        let mut bytes = self.text(place)?.as_bytes().to_vec();
        bytes.push(0);
        Ok(bytes)
    }

    pub(crate) fn from(&self, place: usize) -> &[String] {
        self.0.get(place..).unwrap_or_default()
    }
}

const OWN: &[Act] = &[
    Act { name: "batch", takes: "(acts on standard input, one a line)", run: batch },
    Act { name: "acts", takes: "", run: list },
];

fn tables() -> [&'static [Act]; 8] {
    [
        OWN,
        calls::ACTS,
        files::ACTS,
        sockets::ACTS,
        processes::ACTS,
        ipc::ACTS,
        bombs::ACTS,
        stage::ACTS,
    ]
}

pub(crate) fn perform(name: &str, words: &[String]) -> Answer {
    match tables().into_iter().flatten().find(|act| act.name == name) {
        Some(act) => (act.run)(&Words(words)),
        None => Err(Stop::Usage(format!("ACT [ARG…]; there is no act `{name}`"))),
    }
}

fn list(_: &Words<'_>) -> Answer {
    let mut text = String::new();
    for act in tables().into_iter().flatten() {
        text.push_str(&format!("\n{} {}", act.name, act.takes));
    }
    Ok(text)
}

/// Performs each line of standard input in a process of its own and prints `LINE => ANSWER`, so that a
/// hundred acts cost one box and none of them sees what another left behind.
#[expect(clippy::disallowed_methods, reason = "the probe starts only itself, inside the box")]
fn batch(_: &Words<'_>) -> Answer {
    let me = std::env::current_exe()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let output = Command::new(&me).args(line.split_whitespace()).output()?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let answer = match answer.trim_end() {
            "" => format!("silent {}", output.status),
            answer => answer.to_owned(),
        };
        writeln!(std::io::stdout(), "{line} => {answer}")?;
    }
    Err(Stop::Told(0))
}
