//! `apply.log`: the temporary names of an apply, recorded before the files are created.
//!
//! Each line is one JSON object; lines are only appended. An incomplete last line was not yet acted
//! upon.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::ApplyError;
use crate::at;
use crate::change::LinkTarget;
use crate::content::ContentHash;
use crate::layers::Layers;
use crate::path::RelPath;

const NAME: &str = "apply.log";
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Record {
    Begin(Begin),
    End {
        number: u64,
        how: String,
    },
    /// A directory was made writable for the apply and must get `mode` afterwards.
    Opened(Opened),
    Closed {
        path: RelPath,
    },
}

/// The start of an apply step: from here on a temporary file can exist beside `path`, and
/// `trash/<number>` can hold the old file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    pub number: u64,
    pub path: RelPath,
    /// The hash of the box's version of the file, to distinguish it from the user's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<LinkTarget>,
    /// The device and inode of the user's file, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<(u64, u64)>,
}

/// A directory of the user that an apply made writable temporarily.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Opened {
    pub path: RelPath,
    /// The mode to restore.
    pub mode: u32,
    /// The mode until then.
    #[serde(rename = "meanwhile")]
    pub temporary_mode: u32,
}

/// The steps and directories that an earlier apply began and did not finish.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    pub begun: Vec<Begin>,
    pub opened: Vec<Opened>,
}

/// The open and locked apply log of one run.
#[derive(Debug)]
pub(super) struct ApplyLog {
    file: File,
    buffer: Vec<u8>,
    last: u64,
}

impl ApplyLog {
    /// Opens and locks the apply log of a run, and returns the unfinished steps in it. Also returns
    /// the unfinished steps of earlier applies.
    pub(super) fn open(layers: &Layers) -> Result<(Self, Unfinished), ApplyError> {
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = rustix::fs::openat(layers.run(), NAME, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|errno| ApplyError::OpenLog { source: errno.into() })?;
        lock(&file)?;
        let mut log = Self { file, buffer: Vec::new(), last: 0 };
        let records = log.read()?;
        log.last = records.iter().map(number_of).max().unwrap_or(0);
        Ok((log, unfinished(records)))
    }

    /// Returns the number of the next apply step. A number is used once per run.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a record to the buffer of the apply log.
    pub(super) fn add(&mut self, record: &Record) -> Result<(), ApplyError> {
        serde_json::to_writer(&mut self.buffer, record)
            .map_err(|error| ApplyError::WriteLog { source: error.into() })?;
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Writes all buffered records to the apply log, so that killing the process loses none.
    pub(super) fn flush(&mut self) -> Result<(), ApplyError> {
        let fail = |source| ApplyError::WriteLog { source };
        self.file.write_all(&self.buffer).map_err(fail)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes all buffered records to the log and syncs the log, so that a power cut loses none.
    pub(super) fn sync(&mut self) -> Result<(), ApplyError> {
        self.flush()?;
        self.file.sync_data().map_err(|source| ApplyError::WriteLog { source })
    }

    fn read(&mut self) -> Result<Vec<Record>, ApplyError> {
        let fail = |source| ApplyError::ReadLog { source };
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(fail)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            self.file.set_len(whole as u64).map_err(fail)?;
            bytes.truncate(whole);
        }
        let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let parse = |(at, line): (usize, &[u8])| {
            serde_json::from_slice(line)
                .map_err(|source| ApplyError::DamagedLog { line: at + 1, source })
        };
        lines.enumerate().map(parse).collect()
    }
}

/// Locks the apply log exclusively. The lock is retried: a lock that was just released can live on
/// for a moment in a child process that has inherited the descriptor and not yet called exec.
fn lock(file: &File) -> Result<(), ApplyError> {
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(errno) => return Err(ApplyError::OpenLog { source: errno.into() }),
        }
    }
    Err(ApplyError::Busy)
}

/// Returns the start records of all apply steps, for the list of files in the trash.
pub(super) fn read_begun(layers: &Layers) -> Result<Vec<Begin>, ApplyError> {
    let file = match at::file(layers.run(), NAME.as_bytes()) {
        Ok((fd, _)) => File::from(fd),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ApplyError::OpenLog { source }),
    };
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).map_err(|source| ApplyError::ReadLog { source })?;
    // An incomplete last line was not yet acted upon.
    let records = bytes.split(|&byte| byte == b'\n').map(serde_json::from_slice::<Record>);
    Ok(records
        .filter_map(|record| match record {
            Ok(Record::Begin(begin)) => Some(begin),
            Ok(Record::End { .. } | Record::Opened(_) | Record::Closed { .. }) | Err(_) => None,
        })
        .collect())
}

const fn number_of(record: &Record) -> u64 {
    match record {
        Record::Begin(begin) => begin.number,
        Record::End { number, .. } => *number,
        Record::Opened(_) | Record::Closed { .. } => 0,
    }
}

fn unfinished(records: Vec<Record>) -> Unfinished {
    let mut begun = BTreeMap::new();
    let mut opened: Vec<Opened> = Vec::new();
    for record in records {
        match record {
            Record::Begin(begin) => drop(begun.insert(begin.number, begin)),
            Record::End { number, .. } => drop(begun.remove(&number)),
            Record::Opened(open) => opened.push(open),
            Record::Closed { path } => opened.retain(|open| open.path != path),
        }
    }
    Unfinished { begun: begun.into_values().collect(), opened }
}

/// Returns the temporary file name of an apply step, in the directory of its path.
pub(super) fn temporary_name(layers: &Layers, number: u64) -> Vec<u8> {
    let mut name = b".belljar-".to_vec();
    name.extend_from_slice(layers.run_name());
    name.extend_from_slice(format!("-{number}").as_bytes());
    name
}

/// Syncs a directory to disk, on file systems that support it.
pub(super) fn sync_dir(dir: impl AsFd) -> io::Result<()> {
    match rustix::fs::fsync(dir) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}
