//! `apply.log`: which names an apply may leave behind, written down before it makes them.
//!
//! One JSON object per line, appended. A line that was torn by a crash was not yet acted upon.

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
use crate::change::Target;
use crate::content::ContentHash;
use crate::layers::Layers;
use crate::path::RelPath;

const NAME: &str = "apply.log";
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Record {
    Begin(Begin),
    End {
        number: u64,
        how: String,
    },
    /// A directory was made writable for us and is to get `mode` afterwards.
    Opened(Opened),
    Closed {
        path: RelPath,
    },
}

/// From here on a temporary name may stand beside `path`, and `trash/<number>` may hold what was
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    pub number: u64,
    pub path: RelPath,
    /// What the box left, to tell ours from the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Device and inode of what the user has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Opened {
    pub path: RelPath,
    /// The mode that it is to get.
    pub mode: u32,
    /// The mode that it has meanwhile.
    pub meanwhile: u32,
}

/// What an earlier apply began and did not end.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    pub begun: Vec<Begin>,
    pub opened: Vec<Opened>,
}

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    buffer: Vec<u8>,
    last: u64,
}

impl Journal {
    pub(super) fn open(layers: &Layers) -> Result<(Self, Unfinished), ApplyError> {
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = rustix::fs::openat(layers.run(), NAME, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|errno| ApplyError::OpenJournal { source: errno.into() })?;
        lock(&file)?;
        let mut journal = Self { file, buffer: Vec::new(), last: 0 };
        let records = journal.read()?;
        journal.last = records.iter().map(number_of).max().unwrap_or(0);
        Ok((journal, unfinished(records)))
    }

    /// The number of the next step; each is used once in the life of a run.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn add(&mut self, record: &Record) -> Result<(), ApplyError> {
        serde_json::to_writer(&mut self.buffer, record)
            .map_err(|error| ApplyError::WriteJournal { source: error.into() })?;
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Hands all records to the kernel; a killed process loses none of them.
    pub(super) fn flush(&mut self) -> Result<(), ApplyError> {
        let fail = |source| ApplyError::WriteJournal { source };
        self.file.write_all(&self.buffer).map_err(fail)?;
        self.buffer.clear();
        Ok(())
    }

    /// As `flush`, and a power cut loses none either.
    pub(super) fn sync(&mut self) -> Result<(), ApplyError> {
        self.flush()?;
        self.file.sync_data().map_err(|source| ApplyError::WriteJournal { source })
    }

    fn read(&mut self) -> Result<Vec<Record>, ApplyError> {
        let fail = |source| ApplyError::ReadJournal { source };
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
                .map_err(|source| ApplyError::DamagedJournal { line: at + 1, source })
        };
        lines.enumerate().map(parse).collect()
    }
}

/// Takes the log for us alone. A lock that was just given up may live on for a moment in a process
/// that this one is starting, which has our descriptors until its exec; so we ask more than once.
fn lock(file: &File) -> Result<(), ApplyError> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(errno) => return Err(ApplyError::OpenJournal { source: errno.into() }),
        }
    }
    Err(ApplyError::Busy)
}

/// All that was ever begun, for the list of what is in the trash.
pub(super) fn read_begun(layers: &Layers) -> Result<Vec<Begin>, ApplyError> {
    let file = match at::file(layers.run(), NAME.as_bytes()) {
        Ok((fd, _)) => File::from(fd),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ApplyError::OpenJournal { source }),
    };
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).map_err(|source| ApplyError::ReadJournal { source })?;
    // A torn line at the end was not yet acted upon.
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

/// The temporary name of a step, in the directory of its path.
pub(super) fn temporary_name(layers: &Layers, number: u64) -> Vec<u8> {
    let mut name = b".belljar-".to_vec();
    name.extend_from_slice(layers.run_name());
    name.extend_from_slice(format!("-{number}").as_bytes());
    name
}

/// Writes what happened to the names in a directory to disk, on file systems that can be asked to.
pub(super) fn sync_dir(dir: impl AsFd) -> io::Result<()> {
    match rustix::fs::fsync(dir) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}
