//! `belljar ledger get`: one body, checked before its first byte comes out.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use belljar_ledger::{BodyReference, Digest, Reader};
use belljar_model::display;

use super::Home;
use super::show::{self, Standing};
use crate::cli::ledger::GetArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::sentences;

/// So much of a body is shown on a terminal.
const SHOWN: usize = 1 << 20;
/// Fewer digits are no name.
const DIGITS: usize = 8;

pub(crate) fn run(args: &GetArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let naming = named(&reader, &args.hash)?;
    let hash = naming.hash;
    if let Some(path) = &args.output {
        let mut file = Late { path, file: None };
        copy(&reader, &naming, &mut file)?;
        file.open().with_context(|| told(path)).kind(ErrorKind::Broken)?;
    } else if io::stdout().is_terminal() {
        let mut start = Start(Vec::new());
        let size = copy(&reader, &naming, &mut start)?;
        present(&start.0, size, hash)?;
    } else {
        let mut out = Piped { out: io::stdout().lock(), gone: false };
        copy(&reader, &naming, &mut out)?;
    }
    Ok(0)
}

/// The only body whose hash begins so.
pub(super) fn named(reader: &Reader, hash: &str) -> Result<BodyReference, EngineError> {
    let is_hex = hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || !(DIGITS..=2 * Digest::LENGTH).contains(&hash.len()) {
        return Err(invalid(format!("HASH {hash:?}: it has 8 to 64 digits of 0-9 and a-f")));
    }
    let found = reader.find_bodies(hash).kind(ErrorKind::Broken)?;
    let Some(first) = found.first().copied() else {
        return Err(invalid(format!("HASH {hash}: no event names a body of this hash")));
    };
    if found.iter().any(|naming| naming.hash != first.hash) {
        return Err(invalid(format!("HASH {hash}: several bodies begin so; write more of it")));
    }
    // If any event says that the content was kept, it was.
    Ok(BodyReference { is_kept: found.iter().any(|naming| naming.is_kept), ..first })
}

fn copy(reader: &Reader, naming: &BodyReference, out: &mut dyn Write) -> Result<u64, EngineError> {
    let hash = naming.hash;
    let Err(error) = reader.body(hash, out) else { return Ok(naming.size) };
    // What the record says about it is more than that a file is missing.
    match show::standing_of(reader, hash, naming.is_kept)? {
        Standing::Kept | Standing::Lost { .. } => {
            Err(error).with_context(|| format!("get body {hash}")).kind(ErrorKind::Broken)
        }
        standing @ (Standing::HashOnly | Standing::Redacted { .. } | Standing::Pruned { .. }) => {
            let error = anyhow!("body {hash} is not to be had: {}", standing.words());
            Err(EngineError::new(ErrorKind::Broken, error))
        }
    }
}

/// Text as it is, but for what would steer the terminal; of anything else only what it is.
fn present(start: &[u8], size: u64, hash: Digest) -> Result<(), EngineError> {
    let cut = size > start.len() as u64;
    let text = std::str::from_utf8(start);
    let is_text = text.is_ok() || text.is_err_and(|error| cut && error.error_len().is_none());
    if !is_text || start.contains(&0) {
        print::note(&format!(
            "{}, not text; `belljar ledger get {} -o FILE` writes it to a file",
            sentences::size(size),
            sentences::brief(&hash)
        ));
        return Ok(());
    }
    let mut text = display::safe_multiline(start);
    if !text.ends_with('\n') && !text.is_empty() {
        text.push('\n');
    }
    print::page(&text).kind(ErrorKind::Broken)?;
    if cut {
        print::note(&format!(
            "these are the first {} of {}; `-o FILE` writes all",
            sentences::size(SHOWN as u64),
            sentences::size(size)
        ));
    }
    Ok(())
}

fn told(path: &Path) -> String {
    format!("-o {}", display::safe(path.as_os_str().as_bytes()))
}

/// A file that is made when there is something to write: a body that is damaged leaves what was.
struct Late<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl Late<'_> {
    fn open(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::create(self.path)?,
        };
        Ok(self.file.insert(file))
    }
}

impl Write for Late<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the beginning.
struct Start(Vec<u8>);

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = SHOWN.saturating_sub(self.0.len());
        self.0.extend(bytes.iter().take(room));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard output, whose reader may leave when they have seen enough.
struct Piped<'a> {
    out: io::StdoutLock<'a>,
    gone: bool,
}

impl Write for Piped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(bytes.len());
        }
        match self.out.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(bytes.len())
            }
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gone { Ok(()) } else { self.out.flush() }
    }
}
