//! `belljar code`: runs one program that a model wrote.

use crate::scope::host;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use belljar_model::{Mode, Reason, display};
use tokio_util::sync::CancellationToken;

use crate::cli::Cli;
use crate::cli::code::CodeArgs;
use crate::exit::Outcome;
use crate::interrupt;
use crate::print;
use crate::scope;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::policy::open_workspace;
use belljar_engine::programs::{
    ClientNumber, Language, Listener, Program, ProgramOutcome, ProgramReport, Programs, RunError,
    Stream, Work, WorkspaceSpec, close_session,
};
use belljar_engine::screen::guard::Guard;

/// The maximum size of a program in bytes.
const MAX_CODE: u64 = 4 << 20;

/// Runs `belljar code`.
pub(crate) fn run(cli: &Cli, args: &CodeArgs) -> Outcome {
    if args.languages {
        return languages();
    }
    let workspace = workspace(args.workspace.as_deref(), args.mode)?;
    let program = program(args)?;
    let apis = match (&args.apis[..], args.no_apis) {
        ([], false) => None,
        (some, _) => Some(some.iter().cloned().collect()),
    };
    let timeout = args.timeout.map(Duration::from_secs);
    let work = Work { program, apis, timeout };
    let answer = execute(cli, workspace, work, args.json)?;
    report(&answer, args.json)
}

/// Runs one program in a new box, and prints its output while it runs unless `is_quiet`.
pub(crate) fn execute(
    cli: &Cli,
    workspace: Option<WorkspaceSpec>,
    work: Work,
    is_quiet: bool,
) -> Result<ProgramOutcome, EngineError> {
    let programs =
        Programs::open(&scope::open(cli.config.as_deref())?, scope::current_dir()?, workspace, 0)?;
    let cancelled = CancellationToken::new();
    let signals = interrupt::watch(cancelled.clone()).kind(ErrorKind::Broken)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime").kind(ErrorKind::Broken)?;
    let answer = runtime.block_on(async {
        let session = programs.new_session()?;
        let mut printer = OutputPrinter::new(is_quiet);
        let answer =
            programs.run(&session, work, ClientNumber::default(), &mut printer, &cancelled).await;
        programs.servers.stop().await;
        tokio::task::spawn_blocking(move || close_session(session)).await.ok(); // a panic in that task was already reported
        answer
    });
    drop(signals);
    answer.map_err(|error: RunError| match error {
        RunError::Usage(message) => invalid(message),
        RunError::Broken(error) => EngineError::new(ErrorKind::CannotStart, error),
    })
}

/// Checks the options `--workspace` and `--mode`, and returns the workspace of programs.
pub(crate) fn workspace(
    path: Option<&Path>,
    mode: Option<Mode>,
) -> Result<Option<WorkspaceSpec>, EngineError> {
    let Some(path) = path else { return Ok(None) };
    let path = open_workspace(&scope::open(None)?, path)?.path;
    let mode = mode.unwrap_or(Mode::Overlay);
    if mode == Mode::Direct {
        return Err(invalid(
            "--mode direct does not work for programs of models, because their changes are reviewed; use overlay or read-only",
        ));
    }
    if host().user_home().is_some_and(|home| home == path) {
        return Err(invalid(format!(
            "--workspace: {} is your home directory with all its keys; choose the directory of a project",
            path.display()
        )));
    }
    Ok(Some(WorkspaceSpec { path, mode }))
}

/// Reads the program from its file or from standard input, and checks its size and its input.
fn program(args: &CodeArgs) -> Result<Program, EngineError> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let language = args.lang.or_else(|| file.and_then(Language::of_file));
    let language = language.unwrap_or(Language::TypeScript);
    let mut code = String::new();
    let read = match file {
        Some(file) => std::fs::File::open(file)
            .and_then(|file| file.take(MAX_CODE + 1).read_to_string(&mut code))
            .with_context(|| format!("cannot read the program {}", file.display())),
        None => {
            if std::io::stdin().is_terminal() {
                print::note("reading the program from the terminal; press Ctrl-D at its end");
            }
            std::io::stdin()
                .take(MAX_CODE + 1)
                .read_to_string(&mut code)
                .context("cannot read the program from standard input")
        }
    };
    read.kind(ErrorKind::Invalid)?;
    if code.len() as u64 > MAX_CODE {
        return Err(invalid(format!("the program is larger than {MAX_CODE} bytes")));
    }
    if let Some(input) = &args.input {
        serde_json::from_str::<serde::de::IgnoredAny>(input)
            .context("--input is not valid JSON")
            .kind(ErrorKind::Invalid)?;
    }
    Ok(Program::Code { code, language, input: args.input.clone() })
}

/// Prints the result of a program and returns its exit code.
pub(crate) fn report(answer: &ProgramOutcome, is_json: bool) -> Outcome {
    let report = ProgramReport::of(answer);
    if is_json {
        print::json(&report).kind(ErrorKind::Broken)?;
        return Ok(exit_code(answer));
    }
    for line in answer.remarks.iter().chain(&answer.ending.notes) {
        print::note(line);
    }
    for line in &answer.ending.denied {
        print::note(&format!("denied: {line}"));
    }
    if answer.ending.reason != Reason::Exited {
        print::note(answer.ending.reason.sentence());
    }
    let done = answer.ending.done.as_ref();
    if let Some(trouble) = done.and_then(|done| done.trouble.as_ref()) {
        let at = trouble
            .line
            .map(|line| format!(" (line {line}, column {})", trouble.column.unwrap_or(1)));
        let message = format!("{}: {}{}", trouble.name, trouble.message, at.unwrap_or_default());
        print::note(&display::safe_multiline(message));
        if let Some(stack) = &trouble.stack {
            print::ask(&format!("{}\n", stack.trim_end()));
        }
    }
    if let Some(value) = done.and_then(|done| done.value.as_ref()) {
        let value: serde_json::Value = serde_json::from_str(value.get()).kind(ErrorKind::Broken)?;
        let text = serde_json::to_string_pretty(&value).kind(ErrorKind::Broken)?;
        let text =
            if std::io::stdout().is_terminal() { display::safe_multiline(text) } else { text };
        print::out(&format!("{text}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(exit_code(answer))
}

/// Returns the exit code of `belljar code` for a finished program.
fn exit_code(answer: &ProgramOutcome) -> u8 {
    let ending = &answer.ending;
    let failed = ending.done.as_ref().is_some_and(|done| done.trouble.is_some());
    if ending.is_unrecorded || ending.reason == Reason::Exited && failed {
        return 1;
    }
    ending.reason.exit_code(ending.exit, ending.signal)
}

/// Prints the languages of code mode.
fn languages() -> Outcome {
    for language in Language::ALL {
        let state = if language.is_installed() { "" } else { " (not available on this machine)" };
        print::out(&format!("{:<5} {}{state}\n", language.name(), language.about()))
            .kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Prints the output of a program while it runs, filtered by the terminal guard on a terminal.
struct OutputPrinter {
    is_quiet: bool,
    output: Option<Guard>,
    error: Option<Guard>,
}

impl OutputPrinter {
    fn new(is_quiet: bool) -> Self {
        let guarded = |is_terminal: bool| is_terminal.then(Guard::default);
        let output = guarded(std::io::stdout().is_terminal());
        Self { is_quiet, output, error: guarded(std::io::stderr().is_terminal()) }
    }
}

impl Listener for OutputPrinter {
    fn output(&mut self, stream: Stream, text: &str) {
        if self.is_quiet {
            return;
        }
        let guard = match stream {
            Stream::Stdout => &mut self.output,
            Stream::Stderr => &mut self.error,
        };
        let mut filtered = Vec::new();
        match guard {
            Some(guard) => guard.pass(text.as_bytes(), &mut filtered),
            None => filtered.extend_from_slice(text.as_bytes()),
        }
        // A closed standard output does not end the program.
        match stream {
            Stream::Stdout => std::io::stdout().lock().write_all(&filtered).ok(),
            Stream::Stderr => std::io::stderr().lock().write_all(&filtered).ok(),
        };
    }

    fn progress(&mut self, _: Duration, _: usize) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exit_code_of_a_program_whose_end_is_not_recorded_is_1() {
        let outcome = |is_unrecorded: Option<bool>| {
            let mut ending = json!({
                "reason": "exited", "exit": 0, "signal": null, "wall_micros": 1, "cpu_micros": 1,
                "peak_memory": null, "done": null, "stdout_truncated": false,
                "stderr_truncated": false, "requests": [], "more_requests": 0, "denied": [],
                "notes": [],
            });
            if let Some(is_unrecorded) = is_unrecorded {
                ending["is_unrecorded"] = is_unrecorded.into();
            }
            ProgramOutcome {
                run: String::new(),
                ending: serde_json::from_value(ending).unwrap(),
                stdout: String::new(),
                stderr: String::new(),
                remarks: Vec::new(),
            }
        };
        assert_eq!(exit_code(&outcome(Some(true))), 1);
        assert_eq!(exit_code(&outcome(Some(false))), 0, "control");
        assert_eq!(exit_code(&outcome(None)), 0, "an older supervisor does not have the field");
    }
}
