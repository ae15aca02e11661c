//! `belljar logs`: prints the output of a box or of a task from log files, whose size its supervisor limits.
//!
//! The output of a terminal is rendered as text by a screen process, so that it cannot change a mode of the
//! user's terminal or make the terminal answer. `--raw` prints the recorded bytes, but not to a terminal.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::boxes::terminals::{BoxTarget, LogsArgs};
use crate::cli::runs::TaskTarget;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::{control, host, view};
use belljar_engine::scope::Scoped;
use belljar_engine::screen::{self, guard::Guard};
use belljar_model::RunId;
use belljar_model::boxes::BoxName;

/// The interval between two reads of the log with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `belljar logs`.
pub(crate) fn run(args: &LogsArgs) -> Outcome {
    let state = scope::open(None)?;
    if args.raw && io::stdout().is_terminal() {
        let text = "--raw prints control sequences of the program, which can change your terminal";
        let error = EngineError::message(ErrorKind::Invalid, text.to_owned());
        return Err(error.advise("write the output to a file: `belljar logs NAME --raw > FILE`"));
    }
    let Source { path, name, rendered, is_up } = match &args.of {
        BoxTarget::Box(name) => Source::of_box(&state, name)?,
        BoxTarget::Task(target) => Source::of_task(&state, target)?,
    };
    let cannot_read = || format!("cannot read the log of {name}");
    let mut reader = LogReader { path, file: None };
    let mut text = read_rotated(&reader.path).with_context(cannot_read).kind(ErrorKind::Broken)?;
    // Checked before the read: a box that runs now may write more before the next check.
    let mut was_up = is_up();
    reader.read(&mut text).with_context(cannot_read).kind(ErrorKind::Broken)?;
    if text.is_empty() && !args.follow {
        print::note(&format!("{name} has no output"));
    }
    let mut out = GuardedStdout::new(args.raw);
    if let Some(run) = rendered.filter(|_| !args.raw && !args.follow) {
        let (program, is_terminal) = (state.host().role_program(), io::stdout().is_terminal());
        let render = screen::render_log(program, run, &text, is_terminal);
        text = render.context("cannot render the log").kind(ErrorKind::Broken)?;
    }
    let begin = args.tail.map_or(0, |lines| tail_offset(&text, lines));
    let mut is_open = out.write(text.get(begin..).unwrap_or_default()).kind(ErrorKind::Broken)?;
    while args.follow && is_open {
        text.clear();
        reader.read(&mut text).with_context(cannot_read).kind(ErrorKind::Broken)?;
        is_open = out.write(&text).kind(ErrorKind::Broken)?;
        if text.is_empty() {
            if !was_up {
                break;
            }
            was_up = is_up();
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(0)
}

/// A log, and the program that writes it.
struct Source {
    path: PathBuf,
    /// The box or the task in messages.
    name: String,
    /// The run whose terminal wrote the log; `None` if the program had no terminal.
    rendered: Option<RunId>,
    /// Returns whether the program can write more.
    is_up: Box<dyn Fn() -> bool>,
}

impl Source {
    fn of_box(state: &Scoped, name: &BoxName) -> Result<Self, EngineError> {
        let named_box = NamedBox::find(state, name)?;
        Ok(Self {
            path: named_box.dir.join("output.log"),
            name: format!("box {}", named_box.name()),
            rendered: named_box
                .run()
                .filter(|_| named_box.record.spec.terminal)
                .map(|run| run.record.id),
            is_up: Box::new(move || named_box.is_up()),
        })
    }

    /// The log of the last attempt of a task: what it wrote to standard error.
    fn of_task(state: &Scoped, target: &TaskTarget) -> Result<Self, EngineError> {
        let TaskTarget { run, task: of } = target;
        let run = view::find(state, run)?;
        let view = view::run(state, run)?;
        let task = view.task(of).ok_or_else(|| control::no_task(run, of))?;
        let no_box = || {
            let text =
                format!("task {of} of run {run} has no log, because no box of it was started");
            EngineError::message(ErrorKind::WrongState, text)
        };
        let box_run = task.box_run.ok_or_else(no_box)?;
        let state = state.clone();
        Ok(Self {
            path: host::log(&state, box_run),
            name: format!("the standard error of task {of}"),
            rendered: None,
            is_up: Box::new(move || host::is_running(&state, box_run)),
        })
    }
}

/// A reader of the current log file, which continues where the last read ended.
struct LogReader {
    path: PathBuf,
    file: Option<File>,
}

impl LogReader {
    /// Appends all new output to `into`; continues with the next file if the log was rotated.
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        loop {
            if let Some(file) = &mut self.file {
                file.read_to_end(into)?;
            }
            let next = match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                next => next?,
            };
            if let Some(file) = &mut self.file {
                if file.metadata()?.ino() == next.metadata()?.ino() {
                    return Ok(());
                }
                file.read_to_end(into)?; // output from before the rotation
            }
            self.file = Some(next);
        }
    }
}

/// Returns the content of the rotated log file, if there is one.
fn read_rotated(path: &std::path::Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path.with_extension("log.1")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// Returns the offset at which the last `lines` lines of a text start.
fn tail_offset(text: &[u8], lines: usize) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    if lines == 0 {
        return text.len();
    }
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(index, _)| index + 1).nth(lines - 1).unwrap_or(0)
}

/// Standard output, which gets text only, and colours if it is a terminal.
struct GuardedStdout {
    guard: Option<Guard>,
}

impl GuardedStdout {
    fn new(is_raw: bool) -> Self {
        let guard = match io::stdout().is_terminal() {
            true => Guard::with_colours(),
            false => Guard::text_only(),
        };
        Self { guard: (!is_raw).then_some(guard) }
    }

    /// Writes a text; returns false if standard output was closed.
    fn write(&mut self, text: &[u8]) -> io::Result<bool> {
        let mut filtered = Vec::new();
        let text = match &mut self.guard {
            Some(guard) => {
                guard.pass(text, &mut filtered);
                &filtered
            }
            None => text,
        };
        let mut out = io::stdout().lock();
        match out.write_all(text).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, lines: usize, expect: &str) {
        assert_eq!(text.get(tail_offset(text.as_bytes(), lines)..), Some(expect), "{lines}");
    }

    #[test]
    fn logs_tail_counts_lines_from_the_end() {
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc", 1, "c");
        check("a\nb\n", 9, "a\nb\n");
        check("a\nb\n", 0, "");
        check("", 3, "");
        check("\n\n", 1, "\n");
    }

    #[test]
    fn logs_reader_reads_a_rotated_file_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let mut reader = LogReader { path: path.clone(), file: None };
        let mut text = Vec::new();
        reader.read(&mut text).unwrap();
        std::fs::write(&path, "one").unwrap();
        reader.read(&mut text).unwrap();
        std::fs::write(&path, "onetwo").unwrap();
        std::fs::rename(&path, path.with_extension("log.1")).unwrap();
        std::fs::write(&path, "three").unwrap();
        reader.read(&mut text).unwrap();
        assert_eq!(text, b"onetwothree");
    }
}
