//! A log file that keeps the end of what a program writes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// The number of bytes at the end of the output that are always kept.
const KEPT: usize = 64 << 10;
/// The size at which the file is replaced by its end.
const MAX_SIZE: usize = 2 * KEPT;

/// A log file of at most [`MAX_SIZE`] bytes plus one chunk, with at least the last [`KEPT`] bytes.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    size: usize,
    end: VecDeque<u8>,
}

impl LogFile {
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let file = File::create(&path)?;
        Ok(Self { path, file, size: 0, end: VecDeque::new() })
    }

    /// Appends a chunk. A chunk that cannot be written is dropped, so that a full disk does not stop the
    /// program.
    pub(crate) fn write(&mut self, chunk: &[u8]) {
        self.end.extend(chunk.iter().skip(chunk.len().saturating_sub(KEPT)));
        self.end.drain(..self.end.len().saturating_sub(KEPT));
        if self.size + chunk.len() > MAX_SIZE {
            self.replace().ok(); // tried again with the next chunk
        } else if self.file.write_all(chunk).is_ok() {
            self.size += chunk.len();
        }
    }

    /// Replaces the file by its end. A reader sees the old or the new content.
    fn replace(&mut self) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(self.end.make_contiguous())?;
        fs::rename(&temporary, &self.path)?;
        (self.file, self.size) = (file, self.end.len());
        Ok(())
    }
}

/// Reads the end of a file: at most [`KEPT`] bytes.
pub(crate) fn read_end(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = super::open_input(path.parent().unwrap_or(path), &name(path))?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(KEPT as u64)))?;
    let mut bytes = Vec::new();
    file.take(KEPT as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_file_keeps_its_size_limit_and_always_the_last_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::create(path.clone()).unwrap();
        let mut written = Vec::new();
        for number in 0..20_000_u32 {
            let line = format!("line {number}\n");
            log.write(line.as_bytes());
            written.extend_from_slice(line.as_bytes());
            if number % 997 == 0 {
                let content = fs::read(&path).unwrap();
                assert!(content.len() <= MAX_SIZE, "{}", content.len());
                assert!(content.len() >= written.len().min(KEPT), "{}", content.len());
                assert!(written.ends_with(&content), "line {number}");
            }
        }
        let end = read_end(&path).unwrap();
        assert_eq!(end.len(), KEPT);
        assert!(written.ends_with(&end));
    }

    #[test]
    fn log_file_accepts_a_chunk_that_is_longer_than_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::create(path.clone()).unwrap();
        let chunk: Vec<u8> = (0..=255).cycle().take(3 * MAX_SIZE).collect();
        log.write(&chunk);
        let content = fs::read(&path).unwrap();
        assert!(content.len() <= MAX_SIZE && chunk.ends_with(&content), "{}", content.len());
        assert!(content.len() >= KEPT, "{}", content.len());
    }
}
