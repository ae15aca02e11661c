//! `belljar code`: one program of a model, from the shell.

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
    Answer, Language, Listener, Program, ProgramReport, Programs, RunError, Stream, Work,
    WorkspaceSpec, put_away,
};
use belljar_engine::screen::guard::Guard;

/// Far above any program that somebody wrote.
const MAX_CODE: u64 = 4 << 20;

pub(crate) fn run(cli: &Cli, args: &CodeArgs) -> Outcome {
    if args.languages {
        return languages();
    }
    let ground = ground(args.workspace.as_deref(), args.mode)?;
    let program = program(args)?;
    let apis = match (&args.apis[..], args.no_apis) {
        ([], false) => None,
        (some, _) => Some(some.iter().cloned().collect()),
    };
    let timeout = args.timeout.map(Duration::from_secs);
    let work = Work { program, apis, timeout };
    let answer = execute(cli, ground, work, args.json)?;
    told(&answer, args.json)
}

/// Runs one program in a programs of its own. What it writes is shown as it comes, unless `is_quiet`.
pub(crate) fn execute(
    cli: &Cli,
    ground: Option<WorkspaceSpec>,
    work: Work,
    is_quiet: bool,
) -> Result<Answer, EngineError> {
    let programs = Programs::open(&scope::open(cli.config.as_deref())?, scope::here()?, ground, 0)?;
    let cancelled = CancellationToken::new();
    let signals = interrupt::watch(cancelled.clone()).kind(ErrorKind::Broken)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start a runtime").kind(ErrorKind::Broken)?;
    let answer = runtime.block_on(async {
        let room = programs.room()?;
        let mut shown = Shown::new(is_quiet);
        let answer = programs.run(&room, work, &mut shown, &cancelled).await;
        programs.servers.stop().await;
        tokio::task::spawn_blocking(move || put_away(room)).await.ok(); // a panic there is said already
        answer
    });
    drop(signals);
    answer.map_err(|error: RunError| match error {
        RunError::Usage(message) => invalid(message),
        RunError::Broken(error) => EngineError::new(ErrorKind::CannotStart, error),
    })
}

/// The directory that programs are given.
pub(crate) fn ground(
    path: Option<&Path>,
    mode: Option<Mode>,
) -> Result<Option<WorkspaceSpec>, EngineError> {
    let Some(asked) = path else { return Ok(None) };
    let path = open_workspace(&scope::open(None)?, asked)?.path;
    let mode = mode.unwrap_or(Mode::Overlay);
    if mode == Mode::Direct {
        return Err(invalid(
            "--mode direct: programs of models are reviewed; use overlay or read-only",
        ));
    }
    if host().user_home().is_some_and(|home| home == path) {
        return Err(invalid(format!(
            "--workspace {}: this is your home directory with all its keys; choose a project",
            path.display()
        )));
    }
    Ok(Some(WorkspaceSpec { path, mode }))
}

fn program(args: &CodeArgs) -> Result<Program, EngineError> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let language = args.lang.or_else(|| file.and_then(Language::of_file));
    let language = language.unwrap_or(Language::TypeScript);
    let mut code = String::new();
    let read = match file {
        Some(file) => std::fs::File::open(file)
            .and_then(|file| file.take(MAX_CODE + 1).read_to_string(&mut code))
            .with_context(|| format!("read {}", file.display())),
        None => {
            if std::io::stdin().is_terminal() {
                print::note("reading the program from the terminal; end it with Ctrl-D");
            }
            std::io::stdin()
                .take(MAX_CODE + 1)
                .read_to_string(&mut code)
                .context("read the program")
        }
    };
    read.kind(ErrorKind::Invalid)?;
    if code.len() as u64 > MAX_CODE {
        return Err(invalid(format!("the program has more than {MAX_CODE} bytes")));
    }
    if let Some(input) = &args.input {
        serde_json::from_str::<serde::de::IgnoredAny>(input)
            .context("--input: not JSON")
            .kind(ErrorKind::Invalid)?;
    }
    Ok(Program::Code { code, language, input: args.input.clone() })
}

/// What is said of a program that is over.
pub(crate) fn told(answer: &Answer, is_json: bool) -> Outcome {
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

fn exit_code(answer: &Answer) -> u8 {
    let ending = &answer.ending;
    let failed = ending.done.as_ref().is_some_and(|done| done.trouble.is_some());
    if ending.reason == Reason::Exited && failed {
        return 1;
    }
    ending.reason.exit_code(ending.exit, ending.signal)
}

fn languages() -> Outcome {
    for language in Language::ALL {
        let state = if language.is_here() { "" } else { " (not here)" };
        print::out(&format!("{:<5} {}{state}\n", language.name(), language.about()))
            .kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Passes output on as it comes; what goes to a terminal goes through the guard.
struct Shown {
    is_quiet: bool,
    output: Option<Guard>,
    error: Option<Guard>,
}

impl Shown {
    fn new(is_quiet: bool) -> Self {
        let guarded = |is_terminal: bool| is_terminal.then(Guard::default);
        let output = guarded(std::io::stdout().is_terminal());
        Self { is_quiet, output, error: guarded(std::io::stderr().is_terminal()) }
    }
}

impl Listener for Shown {
    fn output(&mut self, stream: Stream, text: &str) {
        if self.is_quiet {
            return;
        }
        let guard = match stream {
            Stream::Stdout => &mut self.output,
            Stream::Stderr => &mut self.error,
        };
        let mut kept = Vec::new();
        match guard {
            Some(guard) => guard.pass(text.as_bytes(), &mut kept),
            None => kept.extend_from_slice(text.as_bytes()),
        }
        // A reader that went away does not end the program.
        match stream {
            Stream::Stdout => std::io::stdout().lock().write_all(&kept).ok(),
            Stream::Stderr => std::io::stderr().lock().write_all(&kept).ok(),
        };
    }

    fn still(&mut self, _: Duration, _: usize) {}
}
