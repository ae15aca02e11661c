//! Writes the output of a named box to two files, which `belljar logs` reads. When the newer file is
//! full, it replaces the older file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The size at which the log is rotated, in bytes.
const MAX_FILE_SIZE: u64 = 4 << 20;

/// The log of a named box's output.
#[derive(Debug)]
pub(super) struct OutputLog {
    path: PathBuf,
    file: File,
    size: u64,
}

impl OutputLog {
    /// Opens the output log in the directory of a box. New output is appended to the output of earlier
    /// runs.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join("output.log");
        let file = File::options().create(true).append(true).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size })
    }

    /// Appends output to the log. Output that cannot be written is dropped, so that a full disk does not
    /// stop the box.
    pub(super) fn write(&mut self, chunk: &[u8]) {
        if self.size >= MAX_FILE_SIZE && self.rotate().is_err() {
            return;
        }
        if self.file.write_all(chunk).is_ok() {
            self.size += chunk.len() as u64;
        }
    }

    /// Renames the full log file and starts a new one.
    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = File::options().create_new(true).append(true).open(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_a_bounded_amount_and_the_newest_output() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = OutputLog::open(dir.path()).unwrap();
        let line = [b'x'; 4096];
        for _ in 0..4 * MAX_FILE_SIZE / 4096 {
            log.write(&line);
        }
        log.write(b"last");
        let kept: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!((MAX_FILE_SIZE..=2 * MAX_FILE_SIZE + 8192).contains(&kept), "{kept}");
        assert!(fs::read(dir.path().join("output.log")).unwrap().ends_with(b"last"));
    }
}
