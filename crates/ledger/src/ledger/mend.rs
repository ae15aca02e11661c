//! Continues a damaged ledger after the operator accepted the damage.
//!
//! | damage | way on |
//! |---|---|
//! | head missing or damaged, events at the end missing | a new head for the events that are left |
//! | list of public keys damaged | the list is restored from the rotations in the log |
//! | file of salts missing or its header damaged | a new file with all complete records |
//! | log damaged before its end, or its key lost | the ledger is set aside, and a new one begins |
//!
//! Nothing is deleted: before a file is replaced, it is renamed and kept. The ledger records the damage,
//! the repair and the reason that the operator gave.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::open::{self, OpenError};
use super::tip::{self, Adopted};
use super::{Draft, Ledger};
use crate::anchor::{self, Anchor, AnchorError};
use crate::entry::{Entry, EntryView};
use crate::event::{Event, KeyRotated, LedgerRepaired};
use crate::frame::HEADER;
use crate::log::{Log, LogError};
use crate::merkle::Frontier;
use crate::note::VerifyingKey;
use crate::paths::LedgerPaths;
use crate::salts::Salts;

/// The result of mending a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mended {
    /// The ledger opens and all its events can be read; no repair was needed.
    Sound,
    /// The head was rebuilt from the log; `lost` events of the old head are missing.
    Continued { events: u64, lost: u64 },
    /// The list of public keys was restored from the log; the old list was moved to this path.
    KeysRestored { old: PathBuf },
    /// The file of salts was written again with its complete records; the old file was moved to this
    /// path.
    SaltsRestored { old: PathBuf, records: u64 },
    /// The ledger was moved to these paths, and a new one was created.
    SetAside { ledger: PathBuf, anchor: PathBuf },
}

/// One fault of a ledger.
enum Fault {
    /// The ledger does not open.
    Open(OpenError),
    /// The ledger opens, but its log is damaged before its end.
    Inside(String),
}

/// The maximum number of faults that one call repairs: each kind of damage, and one to spare.
const MAX_FAULTS: usize = 5;

/// Continues after a loss that the operator accepts, from the log if it is intact, else with a new
/// ledger.
pub fn mend(paths: &LedgerPaths, reason: &str) -> Result<Mended, OpenError> {
    let mut faults: Vec<String> = Vec::new();
    let mut mended = Mended::Sound;
    loop {
        let fault = match open::open(paths) {
            Ok(ledger) => match damage_inside(&ledger)? {
                None => {
                    record_repair(&ledger, &faults, reason)?;
                    return Ok(mended);
                }
                Some(text) => Fault::Inside(text),
            },
            Err(error) if faults.len() == MAX_FAULTS => return Err(error),
            Err(error) => Fault::Open(error),
        };
        faults.push(match &fault {
            Fault::Open(error) => describe(error),
            Fault::Inside(text) => text.clone(),
        });
        mended = repair(paths, fault)?;
    }
}

fn record_repair(ledger: &Ledger, faults: &[String], reason: &str) -> Result<(), OpenError> {
    if faults.is_empty() {
        return Ok(());
    }
    let what = faults.join("; ");
    let event = LedgerRepaired { what, offset: 0, bytes: 0, reason: Some(reason.to_owned()) };
    ledger.record(Draft::new(event)).map(drop)?;
    Ok(())
}

/// Repairs one fault.
fn repair(paths: &LedgerPaths, fault: Fault) -> Result<Mended, OpenError> {
    let error = match fault {
        Fault::Inside(_) => return set_aside(paths),
        Fault::Open(error) => error,
    };
    if let OpenError::Salts { .. } = error {
        return restore_salts(paths);
    }
    if let OpenError::Anchor(_) = error
        && let Err(AnchorError::Keys { .. }) = anchor::public_keys(paths)
        && Anchor::exists(paths)?
    {
        return restore_keys(paths)?.map_or_else(|| set_aside(paths), Ok);
    }
    if let OpenError::Rotation(_) = error
        && is_log_damaged(paths)?
    {
        return set_aside(paths);
    }
    if error.is_access_error() {
        return Err(error);
    }
    continued(paths)?.map_or_else(|| set_aside(paths), Ok)
}

/// Returns `None` for a missing or damaged file. If only the access to the file failed, its ledger
/// must not be replaced, so that is an error.
fn usable<T>(opened: Result<T, OpenError>) -> Result<Option<T>, OpenError> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.is_access_error() => Err(error),
        Err(_) => Ok(None),
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Reads the whole log of a ledger that opens, and returns the damage before its head.
///
/// Opening reads only the events after the head. The index, a receipt and the verifier need all of
/// them.
fn damage_inside(ledger: &Ledger) -> Result<Option<String>, OpenError> {
    let (end, signed) = {
        let tip = ledger.tip();
        (tip.end, tip.frontier.clone())
    };
    let log = Log::open(&ledger.paths.log()).map_err(OpenError::Damaged)?;
    let mut frontier = Frontier::default();
    let mut scan = log.scan(HEADER as u64, 0);
    while scan.offset() < end {
        let batch = match scan.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(Some("the log ended while it was read".to_owned())),
            Err(error @ LogError::Read { .. }) => return Err(OpenError::Damaged(error)),
            Err(error) => return Ok(Some(describe(&error))),
        };
        for event in batch.events() {
            if let Err(error) = EntryView::parse(event.bytes) {
                return Ok(Some(format!("event {} cannot be read: {error}", event.index)));
            }
            frontier.push(event.leaf);
        }
    }
    let is_signed = scan.offset() == end && frontier == signed;
    Ok((!is_signed).then(|| "the events before the signed head were changed".to_owned()))
}

/// Returns whether the log cannot be read to its end.
fn is_log_damaged(paths: &LedgerPaths) -> Result<bool, OpenError> {
    match Log::open(&paths.log()) {
        Ok(log) => {
            let (mut frontier, mut adopted) = (Frontier::default(), Adopted::default());
            Ok(tip::adopt(&log, HEADER as u64, &mut frontier, &mut adopted).is_err())
        }
        Err(error @ LogError::Read { .. }) => Err(OpenError::Damaged(error)),
        Err(_) => Ok(true),
    }
}

/// Writes a new head for a log that can be read to its end; `None` if the log or its keys are
/// unusable.
fn continued(paths: &LedgerPaths) -> Result<Option<Mended>, OpenError> {
    let mut lock = open::lock_file(paths)?;
    let _held = lock.take()?;
    let log = usable(Log::open(&paths.log()).map_err(OpenError::Damaged))?;
    let anchor = usable(Anchor::open_without_head(paths).map_err(OpenError::Anchor))?;
    let (Some(log), Some(mut anchor)) = (log, anchor) else { return Ok(None) };
    if log.id().origin() != anchor.origin() {
        return Ok(None);
    }
    let mut frontier = Frontier::default();
    let mut adopted = Adopted::default();
    let end = match tip::adopt(&log, HEADER as u64, &mut frontier, &mut adopted) {
        Ok(end) => end,
        // A torn append at the end does not require a new ledger.
        Err((end, LogError::Batch { .. }))
            if !log.has_batch_behind(end).map_err(OpenError::Damaged)? =>
        {
            end
        }
        Err(_) => return Ok(None),
    };
    // A key that the log retired or never named must not sign.
    let is_current = match &adopted.key {
        Some(newest) => anchor.follow(paths, newest).and_then(|()| anchor.list_key(paths)).is_ok(),
        None => anchor.is_listed_last(paths)?,
    };
    if !is_current {
        return Ok(None);
    }
    let own = adopted.own.map(|link| (link.sequence, link.hash));
    let events = frontier.size();
    let before = anchor.replace_head(paths, end, own, frontier)?;
    Ok(Some(Mended::Continued { events, lost: before.saturating_sub(events) }))
}

/// Restores the list of public keys from the log; `None` if the log does not lead to the signing key.
fn restore_keys(paths: &LedgerPaths) -> Result<Option<Mended>, OpenError> {
    let mut lock = open::lock_file(paths)?;
    let _held = lock.take()?;
    let log = usable(Log::open(&paths.log()).map_err(OpenError::Damaged))?;
    let own = usable(anchor::read_key(&paths.key()).map_err(OpenError::Anchor))?;
    let (Some(log), Some(own)) = (log, own) else { return Ok(None) };
    let own = own.verifying();
    let keys = match rotations(&log) {
        Some(keys) if keys.is_empty() => vec![own],
        Some(keys) if keys.last() == Some(&own) => keys,
        Some(_) | None => return Ok(None),
    };
    if keys.iter().any(|key| key.name() != log.id().origin()) {
        return Ok(None);
    }
    let old = keep_old(&paths.keys())?;
    anchor::write_keys(paths, &keys)?;
    Ok(Some(Mended::KeysRestored { old }))
}

/// Returns all keys that the log names, oldest first; `None` if the log or a rotation is invalid.
fn rotations(log: &Log) -> Option<Vec<VerifyingKey>> {
    let mut keys: Vec<VerifyingKey> = Vec::new();
    let mut scan = log.scan(HEADER as u64, 0);
    while let Some(batch) = scan.next().ok()? {
        for event in batch.events() {
            let entry = Entry::decode(event.bytes).ok()?;
            let Ok(Event::KeyRotated(rotated)) = Event::read(&entry.kind, &entry.fields) else {
                continue;
            };
            let KeyRotated { old, new, endorsement } = rotated;
            let (old, new): (VerifyingKey, VerifyingKey) = (old.parse().ok()?, new.parse().ok()?);
            if keys.is_empty() {
                keys.push(old.clone());
            }
            let is_valid = keys.last() == Some(&old)
                && old.verify_bytes(&anchor::endorsed(&new), &endorsement);
            is_valid.then(|| keys.push(new))?;
        }
    }
    Some(keys)
}

/// Writes the file of salts again, with all complete records.
fn restore_salts(paths: &LedgerPaths) -> Result<Mended, OpenError> {
    let mut lock = open::lock_file(paths)?;
    let _held = lock.take()?;
    let log = Log::open(&paths.log()).map_err(OpenError::Damaged)?;
    let path = paths.salts();
    let failed = |source| OpenError::File { path: path.clone(), source };
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(failed)?,
    };
    let old = keep_old(&path)?;
    let records = Salts::restore(&path, log.id(), &bytes).map_err(failed)?;
    anchor::sync_dir(paths.ledger())?;
    Ok(Mended::SaltsRestored { old, records })
}

/// Copies a file to a free name beside it, and returns that name. A missing file has no copy.
fn keep_old(path: &Path) -> Result<PathBuf, OpenError> {
    let old = aside(path);
    match fs::copy(path, &old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::File { path: old, source: error })
        }
        _ => Ok(old),
    }
}

/// Renames the directories of the ledger out of the way.
fn set_aside(paths: &LedgerPaths) -> Result<Mended, OpenError> {
    let mut lock = open::lock_file(paths)?;
    let _held = lock.take()?;
    let move_aside = |path: &Path| -> Result<PathBuf, OpenError> {
        let to = aside(path);
        match fs::rename(path, &to) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(OpenError::File { path: path.to_owned(), source })
            }
            _ => Ok(to),
        }
    };
    Ok(Mended::SetAside {
        ledger: move_aside(paths.ledger())?,
        anchor: move_aside(paths.anchor())?,
    })
}

/// Returns a free path for a file or directory that is replaced.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stamp = tip::now().time / 1_000_000_000;
    let at = |stamp| path.with_file_name(format!("{name}-aside-{stamp}"));
    (stamp..).map(at).find(|path| !path.exists()).unwrap_or_else(|| at(stamp))
}
