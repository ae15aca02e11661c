//! `belljar ledger get`: checks one recorded body and prints it.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use belljar_ledger::{BodyReference, Digest, Reader};
use belljar_model::display;

use super::LedgerHome;
use crate::cli::ledger::GetArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::bodies::{self, BodyState, Found};
use belljar_engine::record::sentences;

/// The maximum number of bytes of a body that are printed on a terminal.
const MAX_SHOWN_BYTES: usize = 1 << 20;
/// The minimum number of digits in a hash prefix.
const MIN_DIGITS: usize = 8;

/// Runs `belljar ledger get`.
pub(crate) fn run(args: &GetArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let reference = find_body(&reader, &args.hash)?;
    let hash = reference.hash;
    if let Some(path) = &args.output {
        let mut file = LazyFile { path, file: None };
        copy(&reader, &reference, &mut file)?;
        file.open().with_context(|| write_failure(path)).kind(ErrorKind::Broken)?;
    } else if io::stdout().is_terminal() {
        let mut prefix = PrefixBuffer(Vec::new());
        let size = copy(&reader, &reference, &mut prefix)?;
        print_on_terminal(&prefix.0, size, hash)?;
    } else {
        let mut out = StdoutWriter { out: io::stdout().lock(), is_closed: false };
        copy(&reader, &reference, &mut out)?;
    }
    Ok(0)
}

/// Returns the only recorded body whose hash starts with this prefix.
pub(super) fn find_body(reader: &Reader, hash: &str) -> Result<BodyReference, EngineError> {
    let is_hex = hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || !(MIN_DIGITS..=2 * Digest::LENGTH).contains(&hash.len()) {
        return Err(invalid(format!(
            "HASH: {hash:?} is not a hash; use 8 to 64 digits of 0-9 and a-f"
        )));
    }
    match bodies::find(reader, hash)? {
        Found::One(reference) => Ok(reference),
        Found::None => Err(invalid(format!("HASH: the ledger has no body with the hash {hash}"))),
        Found::Several => {
            Err(invalid(format!("HASH: the prefix {hash} matches several bodies; use more digits")))
        }
    }
}

/// Checks a body and copies its content to `out`; returns its size.
fn copy(
    reader: &Reader,
    reference: &BodyReference,
    out: &mut dyn Write,
) -> Result<u64, EngineError> {
    let hash = reference.hash;
    let Err(error) = reader.body(hash, out) else { return Ok(reference.size) };
    // The ledger may know why the content is missing, which is better than "no such file".
    match bodies::state(reader, hash, reference.is_kept)? {
        BodyState::Kept | BodyState::Lost { .. } => Err(error)
            .with_context(|| format!("cannot read the body {hash}"))
            .kind(ErrorKind::Broken),
        state @ (BodyState::HashOnly | BodyState::Redacted { .. } | BodyState::Pruned { .. }) => {
            let error = anyhow!("the content of body {hash} is not available: {}", state.words());
            Err(EngineError::new(ErrorKind::Broken, error))
        }
    }
}

/// Prints a body on the terminal with control characters escaped, or only its size if it is not text.
fn print_on_terminal(prefix: &[u8], size: u64, hash: Digest) -> Result<(), EngineError> {
    let is_truncated = size > prefix.len() as u64;
    let text = std::str::from_utf8(prefix);
    let is_text =
        text.is_ok() || text.is_err_and(|error| is_truncated && error.error_len().is_none());
    if !is_text || prefix.contains(&0) {
        print::note(&format!(
            "the body has {} and is not text; `belljar ledger get {} -o FILE` writes it to a file",
            sentences::size(size),
            sentences::brief(&hash)
        ));
        return Ok(());
    }
    let mut text = display::safe_multiline(prefix);
    if !text.ends_with('\n') && !text.is_empty() {
        text.push('\n');
    }
    print::page(&text).kind(ErrorKind::Broken)?;
    if is_truncated {
        print::note(&format!(
            "only the first {} of {} are shown; `-o FILE` writes the whole body",
            sentences::size(MAX_SHOWN_BYTES as u64),
            sentences::size(size)
        ));
    }
    Ok(())
}

/// Returns the error text for a file that cannot be written.
fn write_failure(path: &Path) -> String {
    format!("-o: cannot write {}", display::safe(path.as_os_str().as_bytes()))
}

/// A file that is created at the first write, so that a damaged body does not overwrite an existing file.
struct LazyFile<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl LazyFile<'_> {
    /// Creates the file if it is not open yet.
    fn open(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::create(self.path)?,
        };
        Ok(self.file.insert(file))
    }
}

impl Write for LazyFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that keeps only the first [`MAX_SHOWN_BYTES`] bytes.
struct PrefixBuffer(Vec<u8>);

impl Write for PrefixBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let free = MAX_SHOWN_BYTES.saturating_sub(self.0.len());
        self.0.extend(bytes.iter().take(free));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer to standard output that ignores a closed pipe.
struct StdoutWriter<'a> {
    out: io::StdoutLock<'a>,
    is_closed: bool,
}

impl Write for StdoutWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        match self.out.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(bytes.len())
            }
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed { Ok(()) } else { self.out.flush() }
    }
}
