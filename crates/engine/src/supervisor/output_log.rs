//! Writes the output of a program to two files of limited size. When the newer file is full, it replaces
//! the older file.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// The size at which the log of a named box is rotated, in bytes. `belljar logs` reads both files.
pub(super) const BOX_LOG_SIZE: u64 = 4 << 20;
/// The size at which the log of a task is rotated, in bytes.
pub(super) const TASK_LOG_SIZE: u64 = 64 << 10;

/// The log of a program's output.
#[derive(Debug)]
pub(super) struct OutputLog {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
}

impl OutputLog {
    /// Opens the log at `path`, which is rotated at `max_size` bytes. New output is appended to the output
    /// of earlier runs.
    pub(super) fn open(path: PathBuf, max_size: u64) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size, max_size })
    }

    /// Returns whether the log has no output of this or an earlier run.
    pub(super) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Appends output to the log. Output that cannot be written is dropped, so that a full disk does not
    /// stop the box.
    pub(super) fn write(&mut self, chunk: &[u8]) {
        if self.size >= self.max_size && self.rotate().is_err() {
            return;
        }
        if self.file.write_all(chunk).is_ok() {
            self.size += chunk.len() as u64;
        }
    }

    /// Renames the full log file and starts a new one.
    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, older(&self.path))?;
        self.file = File::options().create_new(true).append(true).open(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

/// Returns the path of the older file of a log.
fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Reads at most the last `max` bytes of a log. A missing older file is empty.
pub(crate) fn read_end(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let newer = end_of(path, max)?;
    let left = max.saturating_sub(newer.len() as u64);
    let mut bytes = end_of(&older(path), left).unwrap_or_default();
    bytes.extend(newer);
    Ok(bytes)
}

fn end_of(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(max)))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_a_bounded_amount_and_the_newest_output() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let mut log = OutputLog::open(path.clone(), BOX_LOG_SIZE).unwrap();
        let line = [b'x'; 4096];
        for _ in 0..4 * BOX_LOG_SIZE / 4096 {
            log.write(&line);
        }
        log.write(b"last");
        let kept: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!((BOX_LOG_SIZE..=2 * BOX_LOG_SIZE + 8192).contains(&kept), "{kept}");
        assert!(fs::read(path).unwrap().ends_with(b"last"));
    }

    #[test]
    fn read_end_returns_the_last_bytes_of_both_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = OutputLog::open(path.clone(), TASK_LOG_SIZE).unwrap();
        let mut written = Vec::new();
        for number in 0..30_000_u32 {
            let line = format!("line {number}\n");
            log.write(line.as_bytes());
            written.extend_from_slice(line.as_bytes());
            if number % 997 == 0 {
                let end = read_end(&path, TASK_LOG_SIZE).unwrap();
                assert_eq!(end.len() as u64, TASK_LOG_SIZE.min(written.len() as u64));
                assert!(written.ends_with(&end), "line {number}");
            }
        }
        read_end(&dir.path().join("missing"), TASK_LOG_SIZE).unwrap_err();
    }
}
