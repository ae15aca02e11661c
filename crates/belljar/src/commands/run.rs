//! `belljar run`: runs one program in a new box.

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
use crate::spec::{Invocation, run_spec};
use crate::terminal::{self, RawMode};
use belljar_engine::screen::guard::Guard;

const LOST_OUTPUT: &str = "cannot write the output of the program; the program ran to its end, which is recorded, and its \
                           changes are kept: `belljar runs` shows the run";

/// Runs `belljar run`.
pub(crate) fn run(cli: &Cli, args: &RunArgs) -> Outcome {
    refuse_unknown_option(args)?;
    let state = scope::open(cli.config.as_deref())?;
    let current_dir = scope::current_dir()?;
    if !args.no_workspace {
        choose_workspace(&state, &current_dir, args.workspace.as_deref())?;
    }
    let size = || terminal::size(std::io::stdin()).unwrap_or((24, 80));
    let size = wants_terminal(args).then(size);
    let size = size.map(|(rows, columns)| TerminalSize { rows, columns });
    let home = host().user_home();
    let invocation = Invocation {
        directory: &current_dir,
        home: home.as_deref(),
        config: cli.config.as_deref(),
    };
    let spec = run_spec(args, size, invocation).kind(ErrorKind::Invalid)?;
    let options = RunOptions { current_dir };
    let started = run::start(&state, &spec, &options)?;
    let RunEnd { result, ended_in_newline, recorded, lost_output } =
        supervise(&state, started, size.is_some())?;
    print_notes(&result, args);
    if let Some(error) = lost_output {
        return Err(error).context(LOST_OUTPUT).kind(ErrorKind::Broken);
    }
    if args.json {
        print::out(if ended_in_newline { "" } else { "\n" }).kind(ErrorKind::Broken)?;
        print::json(&result).kind(ErrorKind::Broken)?;
    }
    recorded?;
    Ok(result.exit_code())
}

/// Connects the program of a run to the standard streams of this process, and waits until it ends.
fn supervise(
    state: &Scoped,
    started: StartedRun,
    interactive: bool,
) -> Result<RunEnd, EngineError> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let raw =
        (interactive && input.is_terminal()).then(|| RawMode::enter(input.as_fd())).transpose();
    let raw =
        match raw.context("cannot switch the terminal to raw mode").kind(ErrorKind::CannotStart) {
            Ok(raw) => raw,
            Err(failure) => {
                started.abandon(state, &failure);
                return Err(failure);
            }
        };
    let (mut output_guard, mut error_guard) = (Guard::default(), Guard::default());
    let (guard_output, guard_error) = (output.is_terminal(), error.is_terminal());
    let mut filter = |stream: Stream, chunk: &[u8], passed: &mut Vec<u8>| match stream {
        Stream::Output if guard_output => output_guard.pass(chunk, passed),
        Stream::Error if guard_error => error_guard.pass(chunk, passed),
        Stream::Output | Stream::Error => passed.extend_from_slice(chunk),
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

/// Refuses a misspelled option, which clap takes for the name of the program.
fn refuse_unknown_option(args: &RunArgs) -> Result<(), EngineError> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let previous =
        arguments.len().checked_sub(args.command.len() + 1).and_then(|index| arguments.get(index));
    let program = args.command.first().map_or(&[][..], |word| word.as_bytes());
    if program.starts_with(b"-") && previous.is_none_or(|word| word != "--") {
        let program = String::from_utf8_lossy(program);
        let hint = match similar_option(arguments) {
            Some(option) => format!("did you mean {option}?"),
            None => "`belljar run --help` lists the options".to_owned(),
        };
        return Err(invalid(format!(
            "unknown option {program}; {hint} (write `--` before a program whose name starts with `-`)"
        )));
    }
    Ok(())
}

/// Returns the option of `belljar run` that clap suggests in place of an unknown option.
fn similar_option(arguments: Vec<OsString>) -> Option<String> {
    let strict = cli::command().mut_subcommand("run", |run| {
        run.mut_arg("command", |program| program.allow_hyphen_values(false))
    });
    let error = strict.try_get_matches_from(arguments).err()?;
    let ContextValue::String(option) = error.get(ContextKind::SuggestedArg)? else { return None };
    Some(option.clone())
}

/// Prints notes about a finished run: the limit that ended it, and the changes that wait for review.
fn print_notes(result: &RunResult, args: &RunArgs) {
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
            "changed files: {changed}; show them with `belljar diff {id}`, copy them with `belljar apply {id}`, drop them with `belljar discard {id}`"
        ));
    }
}

/// Returns whether the program gets a terminal: as the options say, else if input and output are terminals.
fn wants_terminal(args: &RunArgs) -> bool {
    let is_terminal = |fd: BorrowedFd<'_>| rustix::termios::isatty(fd);
    if args.tty || args.no_tty {
        return args.tty && !args.no_tty;
    }
    is_terminal(std::io::stdin().as_fd()) && is_terminal(std::io::stdout().as_fd())
}
