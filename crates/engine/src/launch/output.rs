//! Records the output of a program: its hash, or the complete output if the template requires that.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use belljar_box::Stream;
use belljar_ledger::{Body, Committing, Digest, Salt};
use belljar_model::Record;
use rustix::fs::{Mode, OFlags};

use crate::record::LedgerHandle;

/// Records the standard output and the standard error of one program.
#[derive(Debug)]
pub struct OutputRecorder {
    output: StreamRecorder,
    error: StreamRecorder,
}

/// Records one output stream.
#[derive(Debug)]
enum StreamRecorder {
    /// Nothing is recorded.
    None,
    /// The salted hash of the output is recorded.
    Hash(Committing),
    /// The complete output is recorded. Until then it is in a temporary file without a name.
    Body(File, io::Result<()>),
}

impl OutputRecorder {
    /// Creates a recorder for the output of a program. Temporary files are created in `dir`.
    pub fn new(record: Record, dir: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            output: StreamRecorder::new(record, dir)?,
            error: StreamRecorder::new(record, dir)?,
        })
    }

    /// Returns a recorder that records nothing.
    pub const fn none() -> Self {
        Self { output: StreamRecorder::None, error: StreamRecorder::None }
    }

    /// Adds a chunk of program output to the record.
    pub fn write(&mut self, stream: Stream, chunk: &[u8]) {
        match stream {
            Stream::Output => self.output.write(chunk),
            Stream::Error => self.error.write(chunk),
        }
    }

    /// Stores the output in the ledger and returns the bodies of standard output and standard error.
    pub fn finish(
        self,
        ledger: &LedgerHandle,
        policy: Digest,
    ) -> anyhow::Result<[Option<Body>; 2]> {
        Ok([self.output.finish(ledger, policy)?, self.error.finish(ledger, policy)?])
    }
}

impl StreamRecorder {
    fn new(record: Record, dir: &Path) -> anyhow::Result<Self> {
        Ok(match record {
            Record::None => Self::None,
            Record::Hashes => Self::Hash(Committing::new(Salt::random()?)),
            Record::Bodies => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
                Self::Body(
                    file.context("cannot create a temporary file for the output of the program")?
                        .into(),
                    Ok(()),
                )
            }
        })
    }

    fn write(&mut self, chunk: &[u8]) {
        match self {
            Self::None => {}
            Self::Hash(committing) => committing.update(chunk),
            Self::Body(file, written) => {
                if written.is_ok() {
                    *written = file.write_all(chunk);
                }
            }
        }
    }

    fn finish(self, ledger: &LedgerHandle, policy: Digest) -> anyhow::Result<Option<Body>> {
        match self {
            Self::None => Ok(None),
            // Empty output needs no salted hash.
            Self::Hash(committing) => Ok(Some(committing.finish()).filter(|body| body.size() > 0)),
            Self::Body(mut file, written) => {
                written
                    .and_then(|()| file.rewind())
                    .context("cannot write the output of the program to a temporary file")?;
                Ok(Some(
                    ledger
                        .keep(policy, &mut file)
                        .context("cannot store the output of the program in the ledger")?,
                ))
            }
        }
    }
}
