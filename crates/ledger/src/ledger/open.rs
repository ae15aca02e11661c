//! Opening: beginning a ledger, and finding out how the last process left it.
//!
//! | anchor | log | answer |
//! |---|---|---|
//! | none | none | a new ledger |
//! | empty head | none | beginning it was cut short: go on |
//! | none | there | refuse: nothing vouches for it |
//! | head | shorter than the head, or none | refuse: something is missing |
//! | head | longer, whole batches | take them over |
//! | head | longer, then a rest that is no batch, nothing whole behind it | cut it off, keep it, say so |
//! | head | damaged, whole batches behind it | refuse |

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::queue::Queue;
use super::recent::Recent;
use super::tip::{self, Adopted, Link, Tip};
use super::turn::Lock;
use super::{Draft, Ledger, RecordError};
use crate::anchor::{self, Anchor, AnchorError};
use crate::event::{Event, LedgerCreated, LedgerRepaired};
use crate::frame::{self, HEADER, LOG_MAGIC};
use crate::head::Head;
use crate::index::Query;
use crate::log::{Log, LogError};
use crate::merkle::Frontier;
use crate::paths::LedgerPaths;
use crate::random;
use crate::reader::{Reader, ReaderError};
use crate::salts::Salts;

/// Why the ledger cannot be used. Nothing may be done that it would have to record.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("use the ledger's keys")]
    Anchor(#[from] AnchorError),
    #[error("open {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is there, but not the keys that belong to it ({})", log.display(), anchor.display())]
    NoAnchor { log: PathBuf, anchor: PathBuf },
    #[error("the ledger is gone: {} had {events} events", path.display())]
    Gone { path: PathBuf, events: u64 },
    #[error("{} belongs to another ledger than {}", log.display(), anchor.display())]
    Foreign { log: PathBuf, anchor: PathBuf },
    #[error(
        "the log was cut short: it had {events} events in {vouched} bytes, and has {length} bytes"
    )]
    CutShort { events: u64, vouched: u64, length: u64 },
    #[error("the log is damaged")]
    Damaged(#[source] LogError),
    #[error("finish the exchange of the key")]
    Rotation(#[source] Box<ReaderError>),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Something that was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Where the log was cut.
    pub offset: u64,
    /// How many bytes an unfinished append had left behind.
    pub bytes: u64,
    /// Where they are kept.
    pub kept: PathBuf,
}

/// Why a rest was not cut off.
pub(super) enum Uncut {
    Damaged(LogError),
    File(io::Error),
}

pub(super) fn open(paths: &LedgerPaths) -> Result<Ledger, OpenError> {
    let mut lock = lock_file(paths)?;
    let turn = lock.take()?;
    begin(paths)?;
    let anchor = Anchor::open(paths)?;
    let log = open_log(paths, &anchor)?;
    let head = anchor.head(paths)?;
    let length = log.length().map_err(OpenError::Damaged)?;
    if length < head.end {
        let events = head.frontier.size();
        return Err(OpenError::CutShort { events, vouched: head.end, length });
    }
    let (mut tip, repairs) = read_on(paths, lock, anchor, log, head)?;
    tip.record(paths, told(tip.frontier.size(), &repairs)).map(drop)?;
    finish_rotation(&mut tip, paths)?;
    drop(turn);
    Ok(Ledger {
        paths: paths.clone(),
        id: tip.log.id(),
        repairs,
        tip: Mutex::new(tip),
        known: Mutex::new(Recent::new()),
        queue: Mutex::new(Queue::default()),
        gathered: std::sync::Condvar::new(),
    })
}

/// What is to be recorded of the opening itself.
fn told(events: u64, repairs: &[Repair]) -> Vec<Draft> {
    let version = || env!("CARGO_PKG_VERSION").to_owned();
    let created =
        (events == 0).then(|| Draft::new(LedgerCreated { version: version(), reason: None }));
    created.into_iter().chain(repairs.iter().map(Repair::told)).collect()
}

impl Repair {
    /// The event that tells of it.
    pub(super) fn told(&self) -> Draft {
        Draft::new(LedgerRepaired {
            what: "an append that was cut short was taken away".to_owned(),
            offset: self.offset,
            bytes: self.bytes,
            reason: None,
        })
    }
}

/// Puts a new key in use that was recorded and then not put in place. The caller has the turn.
fn finish_rotation(tip: &mut Tip, paths: &LedgerPaths) -> Result<(), OpenError> {
    if tip.anchor.next(paths).is_none() {
        return Ok(());
    }
    let query = Query {
        kind: Some("key.rotated".to_owned()),
        newest_first: true,
        limit: Some(1),
        ..Query::default()
    };
    let newest = Reader::open(paths).and_then(|reader| {
        let row = reader.events(&query)?.into_iter().next();
        row.map(|row| reader.read(&row)).transpose()
    });
    let entry = newest.map_err(|error| OpenError::Rotation(Box::new(error)))?;
    let recorded = entry.and_then(|entry| match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::KeyRotated(event)) => Some(event.new),
        _ => None,
    });
    // One that is not on record is overwritten by the next exchange.
    if let Some(key) = recorded {
        tip.anchor.follow(paths, &key)?;
        tip.write_head();
    }
    Ok(())
}

/// Makes what is not there yet.
fn begin(paths: &LedgerPaths) -> Result<(), OpenError> {
    let log = paths.log();
    if !Anchor::exists(paths) {
        if log.exists() {
            return Err(OpenError::NoAnchor { log, anchor: paths.anchor().to_owned() });
        }
        let events = Anchor::events_without_key(paths);
        if events > 0 {
            return Err(OpenError::Gone { path: log, events });
        }
        make_dir(paths.anchor())?;
        Anchor::create(paths)?;
    }
    if !log.exists() {
        let anchor = Anchor::open(paths)?;
        let head = anchor.head(paths)?;
        if head.frontier.size() > 0 {
            return Err(OpenError::Gone { path: log, events: head.frontier.size() });
        }
        make_log(paths, &anchor)?;
    }
    Ok(())
}

/// Makes a directory that stays: what is acknowledged in it must not go with its name.
fn make_dir(path: &Path) -> Result<(), OpenError> {
    anchor::make_dir(path).map_err(plain)?;
    path.parent().map_or(Ok(()), |parent| anchor::sync_dir(parent).map_err(plain))
}

/// The error about a file, without speaking of keys.
fn plain(error: AnchorError) -> OpenError {
    match error {
        AnchorError::File { path, source } => OpenError::File { path, source },
        AnchorError::Key { .. }
        | AnchorError::Keys { .. }
        | AnchorError::NoHead { .. }
        | AnchorError::Unsigned { .. } => OpenError::Anchor(error),
    }
}

fn make_log(paths: &LedgerPaths, anchor: &Anchor) -> Result<(), OpenError> {
    let log = paths.log();
    let id =
        anchor::ledger_of(anchor.origin()).ok_or_else(|| AnchorError::Key { path: paths.key() })?;
    // Nothing was recorded yet, so whatever an earlier try left here is of no use.
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

/// Reads what was appended after the head was written.
fn read_on(
    paths: &LedgerPaths,
    lock: Lock,
    anchor: Anchor,
    log: Log,
    head: Head,
) -> Result<(Tip, Vec<Repair>), OpenError> {
    let path = paths.log();
    let file = OpenOptions::new().append(true).open(&path);
    let file = file.map_err(|source| file_error(&path, source))?;
    let salts_path = paths.salts();
    let salts = Salts::open(&salts_path, log.id());
    let salts = salts.map_err(|source| file_error(&salts_path, source))?;
    let mut frontier = head.frontier;
    let mut adopted = Adopted::default();
    let mut repairs = Vec::new();
    let end = match tip::adopt(&log, head.end, &mut frontier, &mut adopted) {
        Ok(end) => end,
        Err((end, error)) => {
            let cut = cut_torn_tail(paths, &log, &file, end, error);
            repairs.push(cut.map_err(|error| match error {
                Uncut::Damaged(error) => OpenError::Damaged(error),
                Uncut::File(source) => file_error(&path, source),
            })?);
            end
        }
    };
    let own = head.own.map(|(sequence, hash)| Link { sequence, hash });
    let writer = random::bytes().map_err(|error| file_error(&path, error.into()))?;
    let mut tip = Tip {
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
        boot: boot_id(),
        broken: false,
    };
    if adopted.events > 0 {
        tip.write_head();
    }
    Ok((tip, repairs))
}

/// Cuts off a rest that is no batch, unless whole batches stand behind it: then it is damage. The
/// caller has the turn.
pub(super) fn cut_torn_tail(
    paths: &LedgerPaths,
    log: &Log,
    file: &File,
    end: u64,
    error: LogError,
) -> Result<Repair, Uncut> {
    let is_torn = matches!(error, LogError::Batch { .. });
    if !is_torn || log.has_batch_behind(end).map_err(Uncut::Damaged)? {
        return Err(Uncut::Damaged(error));
    }
    let bytes = log.length().map_err(Uncut::Damaged)?.saturating_sub(end);
    let mut kept = paths.ledger().join(format!("torn-{end}"));
    if kept.exists() {
        // It was torn here before, and what was kept then stays.
        kept.set_file_name(format!("torn-{end}-{}", tip::now().time));
    }
    let cut = || -> io::Result<()> {
        let mut rest = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        log.file().read_exact_at(&mut rest, end)?;
        fs::write(&kept, rest)?;
        file.set_len(end)?;
        file.sync_all()
    };
    cut().map_err(Uncut::File)?;
    Ok(Repair { offset: end, bytes, kept })
}

fn lock_file(paths: &LedgerPaths) -> Result<Lock, OpenError> {
    if !paths.ledger().exists() {
        make_dir(paths.ledger())?;
    }
    Lock::open(paths).map_err(|source| file_error(&paths.lock(), source))
}

/// The kernel's name for this boot; zeros where it does not tell.
fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

fn file_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::File { path: path.to_owned(), source }
}

/// What the operator decided about a ledger that would not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mended {
    /// It opens; there was nothing to decide.
    Sound,
    /// Its head was made anew from the log; `lost` events that it had are not there.
    Continued { events: u64, lost: u64 },
    /// It was set aside here, and a new one begun.
    SetAside { ledger: PathBuf, anchor: PathBuf },
}

/// Goes on after a loss that the operator knows of: from the log if it is whole up to its end, else
/// with a new ledger. Nothing is deleted, and the record says what was done and why.
pub fn mend(paths: &LedgerPaths, reason: &str) -> Result<Mended, OpenError> {
    let error = match open(paths) {
        Ok(_) => return Ok(Mended::Sound),
        Err(error) if is_of_the_disk(&error) => return Err(error),
        Err(error) => error,
    };
    let what = describe(&error);
    let mended = match continued(paths)? {
        Some(mended) => mended,
        None => set_aside(paths)?,
    };
    let ledger = open(paths)?;
    let event = LedgerRepaired { what, offset: 0, bytes: 0, reason: Some(reason.to_owned()) };
    ledger.record(Draft::new(event)).map(drop)?;
    Ok(mended)
}

/// Whether nothing is wrong with the ledger, only with getting at it.
fn is_of_the_disk(error: &OpenError) -> bool {
    match error {
        OpenError::Record(_) | OpenError::File { .. } | OpenError::Rotation(_) => true,
        OpenError::Damaged(error) => matches!(error, LogError::Read { .. }),
        OpenError::Anchor(AnchorError::File { source, .. }) => {
            source.kind() != io::ErrorKind::NotFound
        }
        OpenError::Anchor(_)
        | OpenError::NoAnchor { .. }
        | OpenError::Gone { .. }
        | OpenError::Foreign { .. }
        | OpenError::CutShort { .. } => false,
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A new head for a log that can be read from end to end.
fn continued(paths: &LedgerPaths) -> Result<Option<Mended>, OpenError> {
    let mut lock = lock_file(paths)?;
    let _turn = lock.take()?;
    let (Ok(log), Ok(mut anchor)) = (Log::open(&paths.log()), Anchor::open_without_head(paths))
    else {
        return Ok(None);
    };
    if log.id().origin() != anchor.origin() {
        return Ok(None);
    }
    let mut frontier = Frontier::default();
    let mut adopted = Adopted::default();
    let end = match tip::adopt(&log, HEADER as u64, &mut frontier, &mut adopted) {
        Ok(end) => end,
        // The rest of an append that was cut short is no reason to give the ledger up.
        Err((end, LogError::Batch { .. }))
            if !log.has_batch_behind(end).map_err(OpenError::Damaged)? =>
        {
            end
        }
        Err(_) => return Ok(None),
    };
    let own = adopted.own.map(|link| (link.sequence, link.hash));
    let events = frontier.size();
    let before = anchor.replace_head(paths, end, own, frontier)?;
    Ok(Some(Mended::Continued { events, lost: before.saturating_sub(events) }))
}

/// Puts the directories of the ledger out of the way.
fn set_aside(paths: &LedgerPaths) -> Result<Mended, OpenError> {
    let stamp = tip::now().time / 1_000_000_000;
    let aside = |path: &Path| -> Result<PathBuf, OpenError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let to = path.with_file_name(format!("{name}-aside-{stamp}"));
        match fs::rename(path, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path, error)),
            _ => Ok(to),
        }
    };
    Ok(Mended::SetAside { ledger: aside(paths.ledger())?, anchor: aside(paths.anchor())? })
}
