//! What a program wrote, for the record: its hash, or the whole of it if the template asks.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use belljar_box::Stream;
use belljar_ledger::{Body, Committing, Digest, Salt};
use belljar_model::Record;
use rustix::fs::{Mode, OFlags};

use crate::record::LedgerHandle;

/// Both outputs of one program.
#[derive(Debug)]
pub struct OutputRecorder {
    output: Track,
    error: Track,
}

#[derive(Debug)]
enum Track {
    None,
    Hash(Committing),
    /// A file without a name: it is gone with us.
    Keep(File, io::Result<()>),
}

impl OutputRecorder {
    pub fn new(record: Record, dir: &Path) -> anyhow::Result<Self> {
        Ok(Self { output: Track::new(record, dir)?, error: Track::new(record, dir)? })
    }

    /// Records nothing.
    pub const fn none() -> Self {
        Self { output: Track::None, error: Track::None }
    }

    pub fn write(&mut self, stream: Stream, chunk: &[u8]) {
        match stream {
            Stream::Output => self.output.write(chunk),
            Stream::Error => self.error.write(chunk),
        }
    }

    pub fn finish(
        self,
        ledger: &LedgerHandle,
        policy: Digest,
    ) -> anyhow::Result<[Option<Body>; 2]> {
        Ok([self.output.finish(ledger, policy)?, self.error.finish(ledger, policy)?])
    }
}

impl Track {
    fn new(record: Record, dir: &Path) -> anyhow::Result<Self> {
        Ok(match record {
            Record::None => Self::None,
            Record::Hashes => Self::Hash(Committing::new(Salt::random()?)),
            Record::Bodies => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
                Self::Keep(file.context("make a file for the program's output")?.into(), Ok(()))
            }
        })
    }

    fn write(&mut self, chunk: &[u8]) {
        match self {
            Self::None => {}
            Self::Hash(committing) => committing.update(chunk),
            Self::Keep(file, written) => {
                if written.is_ok() {
                    *written = file.write_all(chunk);
                }
            }
        }
    }

    fn finish(self, ledger: &LedgerHandle, policy: Digest) -> anyhow::Result<Option<Body>> {
        match self {
            Self::None => Ok(None),
            // That nothing was written is no secret that would need a salt.
            Self::Hash(committing) => Ok(Some(committing.finish()).filter(|body| body.size() > 0)),
            Self::Keep(mut file, written) => {
                written.and_then(|()| file.rewind()).context("keep the program's output")?;
                Ok(Some(ledger.keep(policy, &mut file).context("keep the program's output")?))
            }
        }
    }
}
