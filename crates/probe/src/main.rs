//! Performs one hostile act and says in one line how the kernel answered.
//!
//! `belljar-probe ACT [ARG…]` prints `ok [detail]`, `errno NAME [detail]` or `killed SIGNAL` and leaves
//! with 0 when the act was granted, 1 when it was refused, 2 when it was not understood. The attack
//! suite runs the same act outside a box, where it must be granted (or be refused with another error),
//! and inside, where it must not.
//!
//! Outside a box an act must do no harm: it touches only what its arguments name, and the calls that
//! could change the machine are made with arguments that the kernel turns down.

#![forbid(unsafe_code)]

mod acts;
mod answer;
mod bombs;
mod calls;
mod files;
mod ipc;
mod processes;
mod sockets;
mod stage;

use std::io::Write;
use std::process::ExitCode;

use crate::answer::{Answer, Stop};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let answer = match words.split_first() {
        Some((name, rest)) => acts::perform(name, rest),
        None => Err(Stop::Usage("ACT [ARG…]; `acts` lists them".to_owned())),
    };
    tell(&answer)
}

fn tell(answer: &Answer) -> ExitCode {
    let (line, code) = match answer {
        Ok(detail) if detail.is_empty() => ("ok".to_owned(), 0),
        Ok(detail) => (format!("ok {detail}"), 0),
        Err(Stop::Told(code)) => return ExitCode::from(*code),
        Err(stop) => (stop.to_string(), stop.code()),
    };
    // Standard output may be the very thing under attack; the exit code still tells.
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::from(3),
    }
}
