//! Opens or creates a ledger and decides about the state that the last process left.
//!
//! | anchor | log | result |
//! |---|---|---|
//! | none | none | a new ledger |
//! | empty head | none | the creation was interrupted: continue it |
//! | none | exists | refuse: the log cannot be verified |
//! | head | shorter than the head, or none | refuse: events are missing |
//! | head | longer, complete batches | adopt the batches |
//! | head | longer, torn append at the end | move the torn bytes to a file and report it |
//! | head | damaged, complete batches after the damage | refuse |

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::host::{HostLock, Taken};
use super::lock::LockFile;
use super::queue::Queue;
use super::recent::Recent;
use super::tip::{self, Adopted, Link, Tip};
use super::{Draft, Ledger, RecordError};
use crate::anchor::{self, Anchor, AnchorError};
use crate::event::{Event, LedgerCreated, LedgerRepaired};
use crate::frame::{self, LOG_MAGIC};
use crate::head::Head;
use crate::index::Query;
use crate::log::{Log, LogError, next_data};
use crate::paths::LedgerPaths;
use crate::random;
use crate::reader::{Reader, ReaderError};
use crate::salts::Salts;

/// Why the ledger cannot be opened; no action that must be recorded is allowed then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use the keys of the ledger")]
    Anchor(#[from] AnchorError),
    #[error("cannot open {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} exists, but its keys are missing in {}", log.display(), anchor.display())]
    NoAnchor { log: PathBuf, anchor: PathBuf },
    #[error("the ledger is missing: {} had {events} events", path.display())]
    Gone { path: PathBuf, events: u64 },
    #[error("{} and {} belong to different ledgers", log.display(), anchor.display())]
    Foreign { log: PathBuf, anchor: PathBuf },
    #[error(
        "the log was truncated: it had {events} events in {vouched} bytes, but has {length} bytes"
    )]
    CutShort { events: u64, vouched: u64, length: u64 },
    #[error(
        "{} is in use by processes of the host {name:?}; one ledger cannot be used by two hosts at the same time",
        path.display()
    )]
    OtherHost { path: PathBuf, name: String },
    #[error("the log is damaged")]
    Damaged(#[source] LogError),
    #[error("the salts in {} are missing or damaged", path.display())]
    Salts { path: PathBuf, source: io::Error },
    #[error("cannot finish the rotation of the signing key")]
    Rotation(#[source] Box<ReaderError>),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl OpenError {
    /// Returns whether the ledger itself can be intact and only access to its files failed.
    pub fn is_access_error(&self) -> bool {
        match self {
            Self::Record(_) | Self::File { .. } | Self::OtherHost { .. } | Self::Rotation(_) => {
                true
            }
            Self::Damaged(LogError::Read { source, .. })
            | Self::Anchor(AnchorError::File { source, .. }) => {
                source.kind() != io::ErrorKind::NotFound
            }
            Self::Damaged(_)
            | Self::Anchor(_)
            | Self::NoAnchor { .. }
            | Self::Gone { .. }
            | Self::Foreign { .. }
            | Self::CutShort { .. }
            | Self::Salts { .. } => false,
        }
    }
}

/// A repair of the log that was made on opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The offset at which the log was truncated.
    pub offset: u64,
    /// The number of bytes of the torn append.
    pub bytes: u64,
    /// The path of the file with the removed bytes.
    pub kept: PathBuf,
}

/// The size of one read while a torn append is copied.
const COPY_WINDOW: usize = 1 << 20;

/// Why a torn append was not removed.
pub(super) enum CutError {
    Damaged(LogError),
    File(io::Error),
}

pub(super) fn open(paths: &LedgerPaths) -> Result<Ledger, OpenError> {
    let mut lock = lock_file(paths)?;
    let held = lock.take()?;
    let boot = boot_id();
    let host = lock_host(paths, boot)?;
    begin(paths)?;
    let anchor = Anchor::open(paths)?;
    let log = open_log(paths, &anchor)?;
    let head = anchor.head(paths)?;
    let length = log.length().map_err(OpenError::Damaged)?;
    if length < head.end {
        let events = head.frontier.size();
        return Err(OpenError::CutShort { events, vouched: head.end, length });
    }
    let signed = head.end;
    let (mut tip, repairs) = read_on(paths, lock, anchor, log, head, boot)?;
    finish_rotation(&mut tip, paths)?;
    if tip.end > signed {
        tip.write_head();
    }
    tip.record(paths, opening_events(tip.frontier.size(), &repairs)).map(drop)?;
    drop(held);
    Ok(Ledger {
        paths: paths.clone(),
        id: tip.log.id(),
        repairs,
        _host: host,
        tip: Mutex::new(tip),
        known: Mutex::new(Recent::new()),
        queue: Mutex::new(Queue::default()),
        gathered: std::sync::Condvar::new(),
    })
}

/// Returns the events about the opening itself.
fn opening_events(events: u64, repairs: &[Repair]) -> Vec<Draft> {
    let version = || env!("CARGO_PKG_VERSION").to_owned();
    let created =
        (events == 0).then(|| Draft::new(LedgerCreated { version: version(), reason: None }));
    created.into_iter().chain(repairs.iter().map(Repair::event)).collect()
}

impl Repair {
    /// Returns the event that records the repair.
    pub(super) fn event(&self) -> Draft {
        Draft::new(LedgerRepaired {
            what: "an append that was cut short was taken away".to_owned(),
            offset: self.offset,
            bytes: self.bytes,
            reason: None,
        })
    }
}

/// Activates a new key that was recorded but not put in place, and lists a key that is not listed yet;
/// the caller holds the lock.
///
/// No file is changed for a key that the log does not name.
fn finish_rotation(tip: &mut Tip, paths: &LedgerPaths) -> Result<(), OpenError> {
    if tip.anchor.is_listed_last(paths)? && tip.anchor.next(paths)?.is_none() {
        return Ok(());
    }
    let recorded = newest_key(paths).map_err(|error| OpenError::Rotation(Box::new(error)))?;
    // A next key that is not recorded is overwritten by the next rotation.
    match recorded {
        Some(key) => {
            tip.anchor.follow(paths, &key)?;
            tip.anchor.list_key(paths)?;
            tip.write_head();
            Ok(())
        }
        None if tip.anchor.is_listed_last(paths)? => Ok(()),
        None => Err(OpenError::Anchor(AnchorError::NotOfLedger { path: paths.key() })),
    }
}

/// Returns the newest signing key that the log names; `None` if the key was never rotated.
fn newest_key(paths: &LedgerPaths) -> Result<Option<String>, ReaderError> {
    let query = Query {
        kind: Some("key.rotated".to_owned()),
        newest_first: true,
        limit: Some(1),
        ..Query::default()
    };
    let reader = Reader::open(paths)?;
    let row = reader.events(&query)?.into_iter().next();
    let entry = row.map(|row| reader.read(&row)).transpose()?;
    Ok(entry.and_then(|entry| match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::KeyRotated(event)) => Some(event.new),
        _ => None,
    }))
}

/// Creates the missing files of a new ledger.
fn begin(paths: &LedgerPaths) -> Result<(), OpenError> {
    let log = paths.log();
    let has_log = exists(&log)?;
    if !Anchor::exists(paths)? {
        if has_log {
            return Err(OpenError::NoAnchor { log, anchor: paths.anchor().to_owned() });
        }
        let events = Anchor::events_without_key(paths)?;
        if events > 0 {
            return Err(OpenError::Gone { path: log, events });
        }
        make_dir(paths.anchor())?;
        Anchor::create(paths)?;
    }
    if !has_log {
        let anchor = Anchor::open(paths)?;
        let head = anchor.head(paths)?;
        if head.frontier.size() > 0 {
            return Err(OpenError::Gone { path: log, events: head.frontier.size() });
        }
        make_log(paths, &anchor)?;
    }
    Ok(())
}

/// Creates a directory and syncs its name, because acknowledged events must not disappear with it.
fn make_dir(path: &Path) -> Result<(), OpenError> {
    anchor::make_dir(path).map_err(without_context)?;
    path.parent().map_or(Ok(()), |parent| anchor::sync_dir(parent).map_err(without_context))
}

/// Converts an error about a directory to an error without the context of keys.
fn without_context(error: AnchorError) -> OpenError {
    match error {
        AnchorError::File { path, source } => OpenError::File { path, source },
        AnchorError::Key { .. }
        | AnchorError::Keys { .. }
        | AnchorError::NoHead { .. }
        | AnchorError::NotOfLedger { .. }
        | AnchorError::Retired { .. }
        | AnchorError::Unsigned { .. } => OpenError::Anchor(error),
    }
}

fn make_log(paths: &LedgerPaths, anchor: &Anchor) -> Result<(), OpenError> {
    let log = paths.log();
    let id =
        anchor::ledger_of(anchor.origin()).ok_or_else(|| AnchorError::Key { path: paths.key() })?;
    // No event is recorded yet, so files of an earlier attempt have no value.
    let salts = paths.salts();
    Salts::create(&salts, id).map_err(|source| file_error(&salts, source))?;
    let new = log.with_extension("new");
    let write = || -> io::Result<()> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all_at(&frame::header(LOG_MAGIC, id), 0)?;
        file.sync_all()?;
        fs::rename(&new, &log)
    };
    write().map_err(|source| file_error(&log, source))?;
    anchor::sync_dir(paths.ledger())?;
    Ok(())
}

fn open_log(paths: &LedgerPaths, anchor: &Anchor) -> Result<Log, OpenError> {
    let log = Log::open(&paths.log()).map_err(OpenError::Damaged)?;
    match log.id().origin() == anchor.origin() {
        true => Ok(log),
        false => Err(OpenError::Foreign { log: paths.log(), anchor: paths.anchor().to_owned() }),
    }
}

/// Reads the batches that were appended after the head was written.
fn read_on(
    paths: &LedgerPaths,
    lock: LockFile,
    mut anchor: Anchor,
    log: Log,
    head: Head,
    boot: [u8; 16],
) -> Result<(Tip, Vec<Repair>), OpenError> {
    let path = paths.log();
    let file = OpenOptions::new().append(true).open(&path);
    let file = file.map_err(|source| file_error(&path, source))?;
    let salts_path = paths.salts();
    let salts = Salts::open(&salts_path, log.id());
    let salts = salts.map_err(|source| {
        // The file itself can be at fault, or only the access to it.
        let is_damage =
            [io::ErrorKind::NotFound, io::ErrorKind::InvalidData].contains(&source.kind());
        match is_damage {
            true => OpenError::Salts { path: salts_path, source },
            false => file_error(&salts_path, source),
        }
    })?;
    let mut frontier = head.frontier;
    let mut adopted = Adopted::default();
    let mut repairs = Vec::new();
    let end = match tip::adopt(&log, head.end, &mut frontier, &mut adopted) {
        Ok(end) => end,
        Err((end, error)) => {
            let cut = cut_torn_tail(paths, &log, &file, end, error);
            repairs.push(cut.map_err(|error| match error {
                CutError::Damaged(error) => OpenError::Damaged(error),
                CutError::File(source) => file_error(&path, source),
            })?);
            end
        }
    };
    if let Some(newest) = &adopted.key {
        // The head is older than a rotation: the rotation was interrupted, or an old anchor restored.
        anchor.follow(paths, newest)?;
    }
    let own = head.own.map(|(sequence, hash)| Link { sequence, hash });
    let writer = random::bytes().map_err(|error| file_error(&path, error.into()))?;
    let tip = Tip {
        log,
        file,
        lock,
        salts,
        anchor,
        writer: u64::from_ne_bytes(writer),
        generation: head.generation,
        end,
        frontier,
        own: adopted.own.or(own),
        runs: Recent::new(),
        boot,
        broken: false,
    };
    Ok((tip, repairs))
}

/// Truncates a torn append, or returns an error if complete batches follow, which means damage.
///
/// The caller holds the lock.
pub(super) fn cut_torn_tail(
    paths: &LedgerPaths,
    log: &Log,
    file: &File,
    end: u64,
    error: LogError,
) -> Result<Repair, CutError> {
    let is_torn = matches!(error, LogError::Batch { .. });
    if !is_torn || log.has_batch_behind(end).map_err(CutError::Damaged)? {
        return Err(CutError::Damaged(error));
    }
    let bytes = log.length().map_err(CutError::Damaged)?.saturating_sub(end);
    let mut kept = paths.ledger().join(format!("torn-{end}"));
    if kept.exists() {
        // Bytes of an earlier torn append at this offset stay.
        kept.set_file_name(format!("torn-{end}-{}", tip::now().time));
    }
    let cut = || -> io::Result<()> {
        copy_tail(log.file(), end, bytes, &File::create(&kept)?)?;
        file.set_len(end)?;
        file.sync_all()
    };
    cut().map_err(CutError::File)?;
    Ok(Repair { offset: end, bytes, kept })
}

/// Copies the `bytes` bytes of `log` from `end` on. Holes stay holes, because a crash can leave a tail
/// that is longer than the memory and the free disk space.
fn copy_tail(log: &File, end: u64, bytes: u64, copy: &File) -> io::Result<()> {
    copy.set_len(bytes)?;
    let mut window = vec![0; COPY_WINDOW];
    let mut at = next_data(log, end);
    while at < end + bytes {
        let wanted = usize::try_from(end + bytes - at).unwrap_or(usize::MAX).min(COPY_WINDOW);
        let part = window.get_mut(..wanted).unwrap_or_default();
        log.read_exact_at(part, at)?;
        copy.write_all_at(part, at - end)?;
        at = next_data(log, at + wanted as u64);
    }
    Ok(())
}

pub(super) fn lock_file(paths: &LedgerPaths) -> Result<LockFile, OpenError> {
    if !exists(paths.ledger())? {
        make_dir(paths.ledger())?;
    }
    LockFile::open(paths).map_err(|source| file_error(&paths.lock(), source))
}

/// Takes the lock of this host; the caller holds the lock of the ledger.
fn lock_host(paths: &LedgerPaths, boot: [u8; 16]) -> Result<HostLock, OpenError> {
    let path = paths.host();
    match HostLock::take(&path, boot).map_err(|source| file_error(&path, source))? {
        Taken::Locked(lock) => Ok(lock),
        Taken::OtherHost { name } => {
            Err(OpenError::OtherHost { path: paths.ledger().to_owned(), name })
        }
    }
}

/// Returns the boot id of the kernel, or zeros if it is not available.
fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// Returns whether a file exists. A file that cannot be looked up, for example because of its
/// permissions, is an error and not a missing file.
fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::File { path: path.to_owned(), source }
}
