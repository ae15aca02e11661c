//! A log file with a bounded size.
//!
//! When a file is full, it is renamed to `NAME.1`, which replaces an older `NAME.1`, and a new file is
//! created. A locked-down process cannot open files. Its log ends with a line that reports the limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use tracing_subscriber::fmt::MakeWriter;

/// The maximum size of a log file. With the rotated file, a process uses at most twice this size.
pub(super) const MAX_FILE_SIZE: u64 = 64 << 20; // bytes

/// The action when a log file has reached its maximum size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// Rename the file to `NAME.1` and start a new file.
    Rotate,
    /// Write this last line and drop all further lines.
    End(&'static str),
}

/// A log file with a size limit, which threads can share.
#[derive(Debug)]
pub(super) struct LogFile(Mutex<FileState>);

/// The open file of a log and its current size.
#[derive(Debug)]
struct FileState {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
    when_full: WhenFull,
    is_closed: bool,
}

impl LogFile {
    /// Opens or creates a log file; `limit` is its maximum size in bytes.
    pub(super) fn open(path: PathBuf, limit: u64, when_full: WhenFull) -> io::Result<Self> {
        let file = open(&path)?;
        // An earlier process with the same pid may have written to this file.
        let size = file.metadata()?.len();
        Ok(Self(Mutex::new(FileState { path, file, size, limit, when_full, is_closed: false })))
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Writes whole lines: the subscriber passes each line in one call.
impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileState {
    /// Appends a line, unless the log was closed because it is full.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.is_closed && self.size.saturating_add(line.len() as u64) > self.limit {
            self.handle_full_file()?;
        }
        if self.is_closed {
            return Ok(());
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Rotates the file, or closes the log, as `when_full` says.
    fn handle_full_file(&mut self) -> io::Result<()> {
        match self.when_full {
            WhenFull::Rotate => {
                let mut rotated = self.path.clone().into_os_string();
                rotated.push(".1");
                fs::rename(&self.path, &rotated)?;
                self.file = open(&self.path)?;
                self.size = 0;
                Ok(())
            }
            WhenFull::End(line) => {
                self.is_closed = true;
                self.file.write_all(line.as_bytes())
            }
        }
    }
}

/// Opens a file for appending, with access for its owner only. Symbolic links are not followed.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const LINE: &[u8] = b"0123456789abcde\n";

    /// Writes the given number of lines to a log that is full after four lines.
    fn log_with_lines(when_full: WhenFull, lines: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("command-1.log");
        let log = LogFile::open(path.clone(), 4 * LINE.len() as u64, when_full).unwrap();
        for _ in 0..lines {
            (&log).write_all(LINE).unwrap();
        }
        (dir, path)
    }

    /// Returns the names and sizes of the files in a directory, sorted.
    fn sizes(dir: &Path) -> Vec<(String, u64)> {
        let mut sizes: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
            })
            .collect();
        sizes.sort();
        sizes
    }

    #[test]
    fn log_file_is_rotated_when_full_and_only_one_rotated_file_is_kept() {
        let line = LINE.len() as u64;
        let (dir, _) = log_with_lines(WhenFull::Rotate, 4);
        assert_eq!(
            sizes(dir.path()),
            [("command-1.log".to_owned(), 4 * line)],
            "control: not full"
        );
        for (lines, current) in [(5, 1), (8, 4), (9, 1), (101, 1)] {
            let (dir, path) = log_with_lines(WhenFull::Rotate, lines);
            let expect = [("command-1.log", current * line), ("command-1.log.1", 4 * line)];
            assert_eq!(sizes(dir.path()), expect.map(|(name, size)| (name.to_owned(), size)));
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn log_of_a_locked_process_ends_with_a_notice_when_its_file_is_full() {
        let (dir, path) = log_with_lines(WhenFull::End("full\n"), 100);
        assert_eq!(fs::read(path).unwrap(), [&LINE.repeat(4)[..], b"full\n"].concat());
        assert_eq!(sizes(dir.path()).len(), 1);
    }

    #[test]
    fn log_file_of_an_earlier_process_counts_toward_the_size_limit() {
        let (dir, path) = log_with_lines(WhenFull::Rotate, 4);
        let log = LogFile::open(path, 4 * LINE.len() as u64, WhenFull::Rotate).unwrap();
        (&log).write_all(LINE).unwrap();
        assert_eq!(sizes(dir.path()).len(), 2);
    }
}
