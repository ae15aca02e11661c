//! Snapshots of the command line: help texts, errors, lists and exit codes.
//!
//! They pin the text that users and their scripts see. Each test makes a transcript of commands, and
//! [`normal`] replaces ids, times, hashes and temporary paths, so that a transcript is the same on
//! every machine, as root and as a plain user.

#![forbid(unsafe_code)]

#[cfg(test)]
mod arguments;
#[cfg(test)]
mod codes;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod help;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod normal;
#[cfg(test)]
mod objects;

#[cfg(test)]
use belljar_testkit::{Ended, Lab, Program};

#[cfg(test)]
fn lab() -> Lab {
    Lab::new(belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar")))
}

/// The transcript of commands that are written as in a shell: words are separated by spaces, and a
/// word in single quotes may contain them. `LAB` is the directory of the lab.
#[cfg(test)]
fn transcript(lab: &Lab, commands: &[&str]) -> String {
    let entries = commands.iter().map(|command| {
        let ended = program(lab, command).run();
        entry(lab, command, &ended)
    });
    entries.collect::<Vec<_>>().join("\n")
}

/// One command that is not started yet.
#[cfg(test)]
fn program(lab: &Lab, command: &str) -> Program {
    let dir = lab.dir().display().to_string();
    lab.belljar(words(command).into_iter().map(|word| word.replace("LAB", &dir)))
}

/// One entry of a transcript: the command, its output, its errors and its exit code unless it is 0.
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
    normal::text(lab, &text)
}

#[cfg(test)]
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("a quote that ends"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}
