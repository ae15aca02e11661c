//! What a box wrote, in two files of which the older one is thrown away: `belljar logs` reads them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// How long one of the two files gets.
const HALF: u64 = 4 << 20; // bytes

#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    file: File,
    length: u64,
}

impl History {
    /// Goes on where the last run of the box ended.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join("output.log");
        let file = File::options().create(true).append(true).open(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, length })
    }

    /// Keeps what was written. A full disk costs the log its end, and the box nothing.
    pub(super) fn write(&mut self, chunk: &[u8]) {
        if self.length >= HALF && self.turn_over().is_err() {
            return;
        }
        if self.file.write_all(chunk).is_ok() {
            self.length += chunk.len() as u64;
        }
    }

    fn turn_over(&mut self) -> io::Result<()> {
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
    fn only_so_much_is_kept_and_the_newest_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::open(dir.path()).unwrap();
        let line = [b'x'; 4096];
        for _ in 0..4 * HALF / 4096 {
            history.write(&line);
        }
        history.write(b"last");
        let kept: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!((HALF..=2 * HALF + 8192).contains(&kept), "{kept}");
        assert!(fs::read(dir.path().join("output.log")).unwrap().ends_with(b"last"));
    }
}
