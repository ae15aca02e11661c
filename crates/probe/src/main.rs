//! Performs one hostile operation, called an act, and prints the result in one line.
//!
//! `belljar-probe ACT [ARG…]` prints `ok [detail]`, `errno NAME [detail]` or `killed SIGNAL`. Its exit
//! status is 0 if the act succeeded, 1 if the kernel refused it, and 2 for invalid arguments. The attack
//! suite runs the same act outside a box, where it must succeed (or fail with another error), and inside
//! a box, where it must be refused.
//!
//! Outside a box an act must be harmless: it changes only the files and processes in its arguments, and
//! system calls that could change the machine have arguments that the kernel refuses.

#![forbid(unsafe_code)]

mod acts;
mod bombs;
mod calls;
mod files;
mod ipc;
mod launch;
mod processes;
mod result;
mod sockets;

use std::io::Write;
use std::process::ExitCode;

use crate::result::{ActError, ActResult};

fn main() -> ExitCode {
    let params: Vec<String> = std::env::args().skip(1).collect();
    let result = match params.split_first() {
        Some((name, rest)) => acts::perform(name, rest),
        None => Err(ActError::Usage("ACT [ARG…]; the act `acts` lists all acts".to_owned())),
    };
    print_result(&result)
}

/// Prints the result of an operation as one line and returns the exit status.
fn print_result(result: &ActResult) -> ExitCode {
    let (line, code) = match result {
        Ok(detail) if detail.is_empty() => ("ok".to_owned(), 0),
        Ok(detail) => (format!("ok {detail}"), 0),
        Err(ActError::AlreadyPrinted(code)) => return ExitCode::from(*code),
        Err(error) => (error.to_string(), error.code()),
    };
    // The act can have made standard output unusable; then only the exit status reports the result.
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::from(3),
    }
}
