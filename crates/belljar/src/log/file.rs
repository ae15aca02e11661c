//! A log file with a bounded size.
//!
//! A full file is renamed to `NAME.1`, in place of an earlier one, and a new file is begun. A locked
//! process cannot open files, so its log ends with a line that says so.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use tracing_subscriber::fmt::MakeWriter;

/// The size at which a file is full. One process so has at most twice as much.
pub(super) const LIMIT: u64 = 64 << 20; // bytes

/// What happens when a file is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    Rotate,
    /// The log ends with this line.
    End(&'static str),
}

#[derive(Debug)]
pub(super) struct LogFile(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
    when_full: WhenFull,
    has_ended: bool,
}

impl LogFile {
    pub(super) fn open(path: PathBuf, limit: u64, when_full: WhenFull) -> io::Result<Self> {
        let file = open(&path)?;
        // A process that had the same pid may have written to it.
        let size = file.metadata()?.len();
        Ok(Self(Mutex::new(Lines { path, file, size, limit, when_full, has_ended: false })))
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Takes whole lines: the subscriber writes each with one call.
impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.has_ended && self.size.saturating_add(line.len() as u64) > self.limit {
            self.make_room()?;
        }
        if self.has_ended {
            return Ok(());
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        match self.when_full {
            WhenFull::Rotate => {
                let mut earlier = self.path.clone().into_os_string();
                earlier.push(".1");
                fs::rename(&self.path, &earlier)?;
                self.file = open(&self.path)?;
                self.size = 0;
                Ok(())
            }
            WhenFull::End(line) => {
                self.has_ended = true;
                self.file.write_all(line.as_bytes())
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const LINE: &[u8] = b"0123456789abcde\n";

    fn written(when_full: WhenFull, lines: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("command-1.log");
        let log = LogFile::open(path.clone(), 4 * LINE.len() as u64, when_full).unwrap();
        for _ in 0..lines {
            (&log).write_all(LINE).unwrap();
        }
        (dir, path)
    }

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
    fn log_file_is_rotated_when_full_and_only_one_earlier_file_is_kept() {
        let line = LINE.len() as u64;
        let (dir, _) = written(WhenFull::Rotate, 4);
        assert_eq!(
            sizes(dir.path()),
            [("command-1.log".to_owned(), 4 * line)],
            "control: not full"
        );
        for (lines, now) in [(5, 1), (8, 4), (9, 1), (101, 1)] {
            let (dir, path) = written(WhenFull::Rotate, lines);
            let expect = [("command-1.log", now * line), ("command-1.log.1", 4 * line)];
            assert_eq!(sizes(dir.path()), expect.map(|(name, size)| (name.to_owned(), size)));
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn log_of_a_locked_process_ends_when_its_file_is_full_and_says_so() {
        let (dir, path) = written(WhenFull::End("full\n"), 100);
        assert_eq!(fs::read(path).unwrap(), [&LINE.repeat(4)[..], b"full\n"].concat());
        assert_eq!(sizes(dir.path()).len(), 1);
    }

    #[test]
    fn log_file_of_an_earlier_process_counts() {
        let (dir, path) = written(WhenFull::Rotate, 4);
        let log = LogFile::open(path, 4 * LINE.len() as u64, WhenFull::Rotate).unwrap();
        (&log).write_all(LINE).unwrap();
        assert_eq!(sizes(dir.path()).len(), 2);
    }
}
