//! `belljar run`: one command in a fresh box.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::launch::{Stream, Streams};
use belljar_engine::policy::choose_workspace;
use belljar_engine::run::{self, RunEnd, RunOptions, StartedRun};
use belljar_engine::scope::Scoped;
use belljar_model::RunResult;
use belljar_model::spec::TerminalSize;
use clap::error::{ContextKind, ContextValue};

use crate::cli::{self, Cli, RunArgs};
use crate::exit::Outcome;
use crate::print;
use crate::scope::{self, host};
use crate::spec::{TypedIn, run_spec};
use crate::terminal::{self, Raw};
use belljar_engine::screen::guard::Guard;

pub(crate) fn run(cli: &Cli, args: &RunArgs) -> Outcome {
    refuse_unknown_option(args)?;
    let state = scope::open(cli.config.as_deref())?;
    let here = scope::here()?;
    if !args.no_workspace {
        choose_workspace(&state, &here, args.workspace.as_deref())?;
    }
    let size = || terminal::size(std::io::stdin()).unwrap_or((24, 80));
    let size = wants_terminal(args).then(size);
    let size = size.map(|(rows, columns)| TerminalSize { rows, columns });
    let home = host().user_home();
    let typed_in =
        TypedIn { directory: &here, home: home.as_deref(), config: cli.config.as_deref() };
    let spec = run_spec(args, size, typed_in).kind(ErrorKind::Invalid)?;
    let options = RunOptions { here };
    let started = run::start(&state, &spec, &options)?;
    let RunEnd { result, ended_in_newline } = attend(&state, started, size.is_some())?;
    say(&result, args);
    if args.json {
        print::out(if ended_in_newline { "" } else { "\n" }).kind(ErrorKind::Broken)?;
        print::json(&result).kind(ErrorKind::Broken)?;
    }
    Ok(result.exit_code())
}

/// Starts the program with the streams of this process, and waits for its end.
fn attend(state: &Scoped, started: StartedRun, interactive: bool) -> Result<RunEnd, EngineError> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let raw = (interactive && input.is_terminal()).then(|| Raw::enter(input.as_fd())).transpose();
    let raw = match raw.context("put the terminal into raw mode").kind(ErrorKind::CannotStart) {
        Ok(raw) => raw,
        Err(failure) => {
            started.abandon(state, &failure);
            return Err(failure);
        }
    };
    let (mut output_guard, mut error_guard) = (Guard::default(), Guard::default());
    let (guard_output, guard_error) = (output.is_terminal(), error.is_terminal());
    let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| match stream {
        Stream::Output if guard_output => output_guard.pass(chunk, kept),
        Stream::Error if guard_error => error_guard.pass(chunk, kept),
        Stream::Output | Stream::Error => kept.extend_from_slice(chunk),
    };
    let streams = Streams {
        input: input.as_fd(),
        output: output.as_fd(),
        error: error.as_fd(),
        filter: &mut filter,
        stop: None,
    };
    started.supervise(state, streams, || drop(raw))
}

/// Refuses a misspelled option, which clap accepts as the name of the program.
fn refuse_unknown_option(args: &RunArgs) -> Result<(), EngineError> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let before = typed.len().checked_sub(args.command.len() + 1).and_then(|index| typed.get(index));
    let first = args.command.first().map_or(&[][..], |word| word.as_bytes());
    if first.starts_with(b"-") && before.is_none_or(|word| word != "--") {
        let first = String::from_utf8_lossy(first);
        let hint = match similar_option(typed) {
            Some(option) => format!("did you mean {option}?"),
            None => "`belljar run --help` lists the options".to_owned(),
        };
        return Err(invalid(format!(
            "unknown option {first}; {hint} (write `--` before a program whose name starts with `-`)"
        )));
    }
    Ok(())
}

/// Returns the option of `run` that clap suggests instead of an unknown one.
fn similar_option(typed: Vec<OsString>) -> Option<String> {
    let strict = cli::command().mut_subcommand("run", |run| {
        run.mut_arg("command", |program| program.allow_hyphen_values(false))
    });
    let error = strict.try_get_matches_from(typed).err()?;
    let ContextValue::String(option) = error.get(ContextKind::SuggestedArg)? else { return None };
    Some(option.clone())
}

/// What the operator should know beyond the program's own output.
fn say(result: &RunResult, args: &RunArgs) {
    if result.reason.is_limit() {
        print::note(result.reason.sentence());
    }
    if let Some(changed) = result.changed_files.filter(|changed| *changed > 0)
        && std::io::stderr().is_terminal()
        && !args.json
    {
        let id = result
            .name
            .as_ref()
            .map_or_else(|| result.run.to_string(), |name| name.as_str().to_owned());
        print::note(&format!(
            "{changed} changed; look: belljar diff {id}, take: belljar apply {id}, drop: belljar discard {id}"
        ));
    }
}

fn wants_terminal(args: &RunArgs) -> bool {
    let is_terminal = |fd: BorrowedFd<'_>| rustix::termios::isatty(fd);
    if args.tty || args.no_tty {
        return args.tty && !args.no_tty;
    }
    is_terminal(std::io::stdin().as_fd()) && is_terminal(std::io::stdout().as_fd())
}
