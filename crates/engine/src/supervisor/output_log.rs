//! The output of a named box in two files, which `belljar logs` reads. The older file is replaced when the
//! newer one is full.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The size at which a new file is begun.
const HALF: u64 = 4 << 20; // bytes

#[derive(Debug)]
pub(super) struct OutputLog {
    path: PathBuf,
    file: File,
    length: u64,
}

impl OutputLog {
    /// Opens the log, which goes on where the last run of the box ended.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join("output.log");
        let file = File::options().create(true).append(true).open(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, length })
    }

    /// Appends output. On a full disk the log loses it, and the box goes on.
    pub(super) fn write(&mut self, chunk: &[u8]) {
        if self.length >= HALF && self.rotate().is_err() {
            return;
        }
        if self.file.write_all(chunk).is_ok() {
            self.length += chunk.len() as u64;
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = File::options().create_new(true).append(true).open(&self.path)?;
        self.length = 0;
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
        for _ in 0..4 * HALF / 4096 {
            log.write(&line);
        }
        log.write(b"last");
        let kept: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!((HALF..=2 * HALF + 8192).contains(&kept), "{kept}");
        assert!(fs::read(dir.path().join("output.log")).unwrap().ends_with(b"last"));
    }
}
