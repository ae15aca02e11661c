//! The tools that run JavaScript: each program has a worker of its own, as a child of this one.
//!
//! So a program that loops for ever is killed, and no state of a program reaches the next one.

use std::io;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use belljar_wire::{self as wire, Dialect, FromWorker, Job, ProgramResult, Script};
use serde_json::Value;
use tokio::time::timeout;

use super::process::{kill, program, wait};
use super::{MAX_RESULT, MAX_TIME, Outcome, TIME, ToolPlaces};

/// The number of bytes of the printed text that are kept.
const MAX_PRINTED: usize = 4 * MAX_RESULT;
/// The program of `grep`. Its input is an object with `pattern`, `path` and `ignore_case`.
const GREP: &str = include_str!("grep.js");

/// Runs a TypeScript program, and returns what it printed and its value.
pub(super) async fn execute(
    places: &ToolPlaces,
    code: &str,
    memory: u64,
    limit: Duration,
) -> Outcome {
    let (printed, done) = run(places, script(code, Dialect::Ts, None, memory), limit).await?;
    if let Some(error) = done.trouble {
        let place = error.line.map_or_else(String::new, |line| format!(" (line {line})"));
        return Err(format!("{}: {}{place}\n{printed}", error.name, error.message));
    }
    let value = done.value.as_ref().map_or("undefined", |value| value.get());
    Ok(format!("{printed}result: {value}"))
}

/// Returns the lines of files that match a regular expression.
pub(super) async fn grep(places: &ToolPlaces, input: &Value, memory: u64) -> Outcome {
    let script = script(GREP, Dialect::Js, Some(input.to_string()), memory);
    let (printed, done) = run(places, script, Duration::from_secs(TIME)).await?;
    match done.trouble {
        Some(error) => Err(error.message),
        None if printed.is_empty() => Ok("no line matches".to_owned()),
        None => Ok(printed),
    }
}

fn script(code: &str, language: Dialect, input: Option<String>, memory: u64) -> Script {
    Script {
        code: code.to_owned(),
        language,
        file: "main.ts".to_owned(),
        input,
        modules: Vec::new(),
        apis: Vec::new(),
        tools: Vec::new(),
        memory,
    }
}

/// Runs a script in a worker of its own, and returns what it printed and its result.
async fn run(
    places: &ToolPlaces,
    script: Script,
    limit: Duration,
) -> Result<(String, ProgramResult), String> {
    let failed = |error: io::Error| format!("cannot run the program: {error}");
    let mut worker = program(&places.worker);
    worker.current_dir(&places.workspace).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = worker.stderr(Stdio::null()).spawn().map_err(failed)?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (group, _ended) = wait(child);
    let Some((input, output)) = pipes else { return Err("cannot run the program".to_owned()) };
    let talk = tokio::task::spawn_blocking(move || exchange(input, output, script));
    let done = timeout(limit.min(Duration::from_secs(MAX_TIME)), talk).await;
    kill(group); // a program can leave processes behind, and a worker that is killed sends nothing more
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(format!("cannot run the program: {error}")),
        Err(_) => Err(format!("the program was killed after {} s", limit.as_secs())),
    }
}

/// Sends the job to a worker, and reads its messages until the result.
fn exchange(
    mut input: ChildStdin,
    mut output: ChildStdout,
    script: Script,
) -> Result<(String, ProgramResult), String> {
    let sent = wire::write(&mut input, &Job::Script(script));
    sent.map_err(|error| format!("cannot send the program to its worker: {error}"))?;
    let mut printed = String::new();
    loop {
        match wire::read::<FromWorker>(&mut output) {
            Ok(Some(FromWorker::Output { text, .. })) if printed.len() < MAX_PRINTED => {
                printed.push_str(&text);
            }
            Ok(Some(FromWorker::Output { .. } | FromWorker::Ready)) => {}
            Ok(Some(FromWorker::Done(done))) => return Ok((printed, done)),
            Ok(Some(FromWorker::Call { .. })) => {
                return Err("the program called a tool, which it does not have".to_owned());
            }
            Ok(None) => {
                return Err(format!("the program ended without a result\n{printed}"));
            }
            Err(error) => return Err(format!("the worker of the program failed: {error}")),
        }
    }
}
