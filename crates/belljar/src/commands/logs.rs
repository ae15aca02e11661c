//! `belljar logs`: what a box wrote, from the files that its keeper bounds.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::boxes::terminals::LogsArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::screen::guard::Guard;

/// How often is looked whether there is more.
const REST: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &LogsArgs) -> Outcome {
    let state = scope::open(None)?;
    let of = NamedBox::find(&state, &args.name)?;
    let mut reader = Reader { path: of.dir.join("output.log"), file: None };
    let mut text = read_before(&reader.path).context("read the log").kind(ErrorKind::Broken)?;
    // Whoever is up now may write until the last look.
    let mut was_up = of.is_up();
    reader.read(&mut text).context("read the log").kind(ErrorKind::Broken)?;
    if text.is_empty() && !args.follow {
        print::note(&format!("box {} has written nothing", of.name()));
    }
    let begin = args.tail.map_or(0, |lines| last_lines(&text, lines));
    let mut out = Out::new();
    let mut goes_on = out.write(text.get(begin..).unwrap_or_default()).kind(ErrorKind::Broken)?;
    while args.follow && goes_on {
        text.clear();
        reader.read(&mut text).context("read the log").kind(ErrorKind::Broken)?;
        goes_on = out.write(&text).kind(ErrorKind::Broken)?;
        if text.is_empty() {
            if !was_up {
                break;
            }
            was_up = of.is_up();
            std::thread::sleep(REST);
        }
    }
    Ok(0)
}

/// The file that is being written, wherever it was read to.
struct Reader {
    path: PathBuf,
    file: Option<File>,
}

impl Reader {
    /// Appends everything new. Goes on to the next file when this one was set aside.
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
                file.read_to_end(into)?; // what came before it was set aside
            }
            self.file = Some(next);
        }
    }
}

/// What was set aside before.
fn read_before(path: &std::path::Path) -> io::Result<Vec<u8>> {
    match std::fs::read(path.with_extension("log.1")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// Where the last so many lines begin.
fn last_lines(text: &[u8], lines: usize) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    if lines == 0 {
        return text.len();
    }
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(index, _)| index + 1).nth(lines - 1).unwrap_or(0)
}

/// Standard output, with the guard before it if it is a terminal.
struct Out {
    guard: Option<Guard>,
}

impl Out {
    fn new() -> Self {
        Self { guard: io::stdout().is_terminal().then(Guard::default) }
    }

    /// False when nobody reads any more.
    fn write(&mut self, text: &[u8]) -> io::Result<bool> {
        let mut kept = Vec::new();
        let text = match &mut self.guard {
            Some(guard) => {
                guard.pass(text, &mut kept);
                &kept
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
        assert_eq!(text.get(last_lines(text.as_bytes(), lines)..), Some(expect), "{lines}");
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc", 1, "c");
        check("a\nb\n", 9, "a\nb\n");
        check("a\nb\n", 0, "");
        check("", 3, "");
        check("\n\n", 1, "\n");
    }

    #[test]
    fn a_file_that_is_set_aside_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let mut reader = Reader { path: path.clone(), file: None };
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
