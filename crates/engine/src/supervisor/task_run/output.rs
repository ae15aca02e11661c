//! The output of a task: a file with a limit and a commitment.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use belljar_ledger::{Committing, Salt};

use super::result::TaskOutput;

/// The output file of a task that is being written.
///
/// Bytes that cannot be written, because the disk is full, stay in memory until [`OutputFile::sync`]
/// succeeds. The limit of the output bounds them.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    limit: u64,
    size: u64,
    held: Vec<u8>,
    salt: Salt,
    commitment: Option<Committing>,
}

impl OutputFile {
    /// Creates the output file with a limit in bytes.
    pub(crate) fn create(path: &Path, limit: u64) -> io::Result<Self> {
        let (file, salt) = (File::create_new(path)?, Salt::random()?);
        let commitment = Some(Committing::new(salt));
        Ok(Self { file, limit, size: 0, held: Vec::new(), salt, commitment })
    }

    /// Appends a chunk. Returns `false` if the output exceeds its limit.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> bool {
        self.size = self.size.saturating_add(chunk.len() as u64);
        if self.is_too_large() {
            self.held = Vec::new();
            return false;
        }
        if let Some(commitment) = &mut self.commitment {
            commitment.update(chunk);
        }
        if self.held.is_empty() {
            let written = write(&mut self.file, chunk);
            self.held.extend_from_slice(chunk.get(written..).unwrap_or_default());
        } else {
            self.held.extend_from_slice(chunk);
        }
        true
    }

    pub(crate) const fn is_too_large(&self) -> bool {
        self.size > self.limit
    }

    /// Writes what is still in memory, and waits until the whole output is on disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let written = write(&mut self.file, &self.held);
        self.held.drain(..written);
        if let Some(first) = self.held.first() {
            self.file.write_all(&[*first])?; // fails with the cause
            self.held.remove(0);
            return self.sync();
        }
        self.file.sync_data()
    }

    /// Returns the size and the commitment of the output, or `None` if it was too large.
    pub(crate) fn finish(&mut self) -> Option<TaskOutput> {
        let commitment = self.commitment.take().filter(|_| !self.is_too_large())?;
        Some(TaskOutput::new(&commitment.finish(), self.salt))
    }
}

/// Writes as much as possible, and returns the number of written bytes.
fn write(file: &mut File, bytes: &[u8]) -> usize {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(count) => written += count,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn output_file_has_all_bytes_and_a_commitment_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output");
        let mut output = OutputFile::create(&path, 10).unwrap();
        assert!(output.push(b"hello") && output.push(b"world"));
        output.sync().unwrap();
        let committed = output.finish().unwrap();
        assert_eq!(committed.size(), 10);
        assert!(committed.matches(&mut fs::File::open(&path).unwrap()).unwrap());
        assert!(!committed.matches(&mut &b"helloworlD"[..]).unwrap());
        assert!(!committed.matches(&mut &b"helloworld."[..]).unwrap());
    }

    #[test]
    fn output_file_that_exceeds_its_limit_by_one_byte_has_no_result() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = OutputFile::create(&dir.path().join("output"), 10).unwrap();
        assert!(output.push(b"helloworld"), "control: the limit itself is allowed");
        assert!(!output.push(b"."));
        assert!(output.is_too_large() && output.finish().is_none());
    }
}
