//! Snapshot tests of the command line: help texts, errors, lists and exit codes.
//!
//! The snapshots fix the text that users and their scripts see. Each test makes a transcript of
//! commands. [`normalize`] replaces ids, times, hashes and temporary paths, so that a transcript is
//! the same on every machine, as root and as a plain user.

#![forbid(unsafe_code)]

#[cfg(test)]
mod arguments;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod help;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod missing_objects;
#[cfg(test)]
mod normalize;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod wrong_state;

#[cfg(test)]
use belljar_testkit::{Ended, Lab, Program};

/// Creates a temporary home, project and state directory for one test.
#[cfg(test)]
fn lab() -> Lab {
    Lab::new(belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar")))
}

/// Runs commands and returns their transcript: commands, output and exit codes. Each command is
/// written as in a shell: spaces separate arguments, except in single quotes. `LAB` stands for the
/// temporary directory of the test.
#[cfg(test)]
fn transcript(lab: &Lab, commands: &[&str]) -> String {
    let entries = commands.iter().map(|command| {
        let ended = program(lab, command).run();
        entry(lab, command, &ended)
    });
    entries.collect::<Vec<_>>().join("\n")
}

/// Returns the program for one command line of `belljar`, ready to be started.
#[cfg(test)]
fn program(lab: &Lab, command: &str) -> Program {
    let dir = lab.dir().display().to_string();
    lab.belljar(split_arguments(command).into_iter().map(|argument| argument.replace("LAB", &dir)))
}

/// Returns one entry of a transcript: the command, its standard output, its standard error, and its
/// exit code unless it is 0.
#[cfg(test)]
fn entry(lab: &Lab, command: &str, ended: &Ended) -> String {
    let mut text = format!("$ belljar {command}\n");
    for stream in [&ended.stdout, &ended.stderr] {
        text.push_str(&String::from_utf8_lossy(stream));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if ended.code() != 0 {
        text.push_str(&format!("[exit {}]\n", ended.code()));
    }
    normalize::normalize(lab, &text)
}

/// Splits a command line at spaces, except in single quotes.
#[cfg(test)]
fn split_arguments(command: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        let (argument, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("a closing quote"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        arguments.push(argument.to_owned());
        rest = after.trim_start();
    }
    arguments
}
