//! The end of the log, and the only code that appends to the log.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use belljar_model::RunId;
use rustix::time::{ClockId, clock_gettime};

use super::lock::{self, LockFile};
use super::open::{self, CutError};
use super::queue::{Pending, RecordResult};
use super::recent::Recent;
use super::{Draft, Receipt, RecordError, anchor_error};
use crate::anchor::Anchor;
use crate::bodies::Bodies;
use crate::body::Salt;
use crate::digest::Digest;
use crate::entry::{Entry, EntryView, Moment};
use crate::event::KeyRotated;
use crate::field::Raw;
use crate::frame::{self, MAX_PAYLOAD};
use crate::head::Head;
use crate::index::Index;
use crate::log::{Located, Log, LogError};
use crate::merkle::Frontier;
use crate::note::VerifyingKey;
use crate::paths::LedgerPaths;
use crate::salts::Salts;

/// The state at the end of the log, as of the last read or write of this process.
#[derive(Debug)]
pub(super) struct Tip {
    pub(super) log: Log,
    /// The file of `log`, open for appending.
    pub(super) file: File,
    pub(super) lock: LockFile,
    pub(super) salts: Salts,
    pub(super) anchor: Anchor,
    /// A random number drawn on opening, which marks the batches of this writer.
    pub(super) writer: u64,
    pub(super) generation: u64,
    pub(super) end: u64,
    pub(super) frontier: Frontier,
    pub(super) own: Option<Link>,
    /// The last event of each run that was recently written or looked up.
    pub(super) runs: Recent<Link>,
    pub(super) boot: [u8; 16],
    pub(super) broken: bool,
}

/// The sequence number and hash of an event, to which the next event of its run links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) sequence: u64,
    pub(super) hash: Digest,
}

/// Encoded events that are about to be written together.
#[derive(Default)]
struct Batch {
    entries: Vec<Vec<u8>>,
    leaves: Vec<Digest>,
    payload: usize,
    salts: Vec<(Digest, Salt)>,
    /// Bodies whose content was stored with earlier events.
    borrowed: Vec<Digest>,
    own: Option<Link>,
    runs: HashMap<RunId, Link>,
    results: Vec<(u64, Vec<Receipt>)>,
}

impl Tip {
    /// Writes the events of all waiting callers and returns one result per caller.
    pub(super) fn commit(
        &mut self,
        paths: &LedgerPaths,
        waiting: Vec<Pending>,
    ) -> Vec<(u64, RecordResult)> {
        let tickets: Vec<u64> = waiting.iter().map(|pending| pending.ticket).collect();
        let mut results = Vec::with_capacity(tickets.len());
        if let Err(error) = self.commit_locked(paths, waiting, &mut results) {
            let done: Vec<u64> = results.iter().map(|(ticket, _)| *ticket).collect();
            let rest = tickets.into_iter().filter(|ticket| !done.contains(ticket));
            results.extend(rest.map(|ticket| (ticket, Err(error.clone()))));
        }
        results
    }

    fn commit_locked(
        &mut self,
        paths: &LedgerPaths,
        waiting: Vec<Pending>,
        results: &mut Vec<(u64, RecordResult)>,
    ) -> Result<(), RecordError> {
        let _held = self.lock.take()?;
        self.catch_up(paths)?;
        let mut batch = Batch::default();
        for pending in waiting {
            let ticket = pending.ticket;
            match self.add(paths, &batch, pending) {
                Ok(more) if batch.payload + more.payload <= MAX_PAYLOAD => batch.append(more),
                Ok(more) => {
                    self.write(std::mem::take(&mut batch), results)?;
                    batch.append(more);
                }
                Err(error) => results.push((ticket, Err(error))),
            }
        }
        self.write(batch, results)
    }

    /// Records events immediately; the caller holds the lock.
    pub(super) fn record(
        &mut self,
        paths: &LedgerPaths,
        drafts: Vec<Draft>,
    ) -> Result<Vec<Receipt>, RecordError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let pending = Pending { ticket: 0, drafts, moment: now() };
        let batch = self.add(paths, &Batch::default(), pending)?;
        let mut results = Vec::new();
        self.write(batch, &mut results)?;
        results.pop().map_or(Err(RecordError::Broken), |(_, answer)| answer)
    }

    /// Reads the events that other processes appended since the last read; the caller holds the
    /// lock.
    fn catch_up(&mut self, paths: &LedgerPaths) -> Result<(), RecordError> {
        if self.broken {
            return Err(RecordError::Broken);
        }
        // Events appended to a file that was moved or removed would be lost.
        if let Some(path) = self.exchanged(paths) {
            return Err(changed(LogError::Exchanged { path }));
        }
        let length = self.log.length().map_err(changed)?;
        if length == self.end {
            return Ok(());
        }
        if length < self.end {
            return Err(changed(LogError::Shrunk { expected: self.end, found: length }));
        }
        let mut adopted = Adopted::default();
        let read = adopt(&self.log, self.end, &mut self.frontier, &mut adopted);
        self.own = adopted.own.or(self.own);
        for (run, link) in adopted.runs {
            self.runs.update(run, link);
        }
        let (end, damage) = match read {
            Ok(end) => (end, None),
            Err((end, error)) => (end, Some(error)),
        };
        self.end = end;
        if let Some(key) = adopted.key {
            self.anchor.follow(paths, &key).map_err(anchor_error)?;
        }
        let head = self.anchor.newest();
        let is_other =
            |head: &Head| head.end > end || head.end == end && head.frontier != self.frontier;
        // The signed head does not continue the events read here: the log was cut and then
        // continued.
        if head.as_ref().is_some_and(is_other) {
            self.broken = true;
            return Err(changed(LogError::Exchanged { path: paths.log() }));
        }
        self.generation = head.map_or(0, |head| head.generation).max(self.generation);
        match damage {
            Some(error) => self.repair(paths, error),
            None => Ok(()),
        }
    }

    /// Returns the path of the first ledger file that is no longer the file open here.
    fn exchanged(&self, paths: &LedgerPaths) -> Option<PathBuf> {
        let files = [(&self.file, paths.log()), (self.salts.file(), paths.salts())];
        files.into_iter().find(|(file, path)| !lock::is_file_at(file, path)).map(|(_, path)| path)
    }

    /// Returns whether the log still contains all events that were read here.
    pub(super) fn is_current(&self, paths: &LedgerPaths) -> bool {
        let is_whole = self.log.length().is_ok_and(|length| length >= self.end);
        !self.broken && is_whole && self.exchanged(paths).is_none()
    }

    /// Removes the torn append of a process that just died, as on opening, and records the repair.
    fn repair(&mut self, paths: &LedgerPaths, error: LogError) -> Result<(), RecordError> {
        let cut = open::cut_torn_tail(paths, &self.log, &self.file, self.end, error);
        let repair = cut.map_err(|error| match error {
            CutError::Damaged(error) => changed(error),
            CutError::File(error) => doing("remove a torn append")(error),
        })?;
        self.record(paths, vec![repair.event()]).map(drop)
    }

    /// Encodes the events of one caller, to follow the events of `batch`.
    fn add(
        &mut self,
        paths: &LedgerPaths,
        batch: &Batch,
        pending: Pending,
    ) -> Result<Batch, RecordError> {
        let mut more = Batch::default();
        let first = self.frontier.size() + batch.entries.len() as u64;
        let count = pending.drafts.len();
        let mut receipts = Vec::with_capacity(count);
        for (index, draft) in (first..).zip(pending.drafts) {
            if let Some(cause) = draft.cause.filter(|cause| *cause >= index) {
                return Err(RecordError::Cause { cause, index });
            }
            let before = self.last_link(paths, [&more, batch], &draft)?;
            check_after(&draft, before)?;
            let moment = Moment { boot: self.boot, ..pending.moment };
            receipts.push(more.encode(index, before, moment, &draft)?);
        }
        // Stored content can have been dropped since; the lock is held, so this check stays true.
        if let Some(hash) = more.borrowed.iter().find(|hash| !Bodies::open(paths).has(**hash)) {
            return Err(RecordError::BodyGone { hash: *hash });
        }
        if more.payload > MAX_PAYLOAD {
            return Err(RecordError::TooMany { count });
        }
        more.results.push((pending.ticket, receipts));
        Ok(more)
    }

    /// Returns the last event so far of the draft's run.
    fn last_link(
        &mut self,
        paths: &LedgerPaths,
        [newer, older]: [&Batch; 2],
        draft: &Draft,
    ) -> Result<Option<Link>, RecordError> {
        let Some(run) = draft.run else { return Ok(newer.own.or(older.own).or(self.own)) };
        let waiting =
            [&newer.runs, &older.runs].into_iter().find_map(|runs| runs.get(&run)).copied();
        if let Some(link) = waiting.or_else(|| self.runs.get(run)) {
            return Ok(Some(link));
        }
        if draft.is_first {
            return look_up(paths, &self.log, run);
        }
        if draft.event.begins_run() {
            return Ok(None);
        }
        let link = look_up(paths, &self.log, run)?.ok_or(RecordError::NoRun { run })?;
        self.runs.insert(run, link);
        Ok(Some(link))
    }

    /// Writes a batch to disk and adds the results; after an error no event of the batch is
    /// acknowledged.
    fn write(
        &mut self,
        batch: Batch,
        results: &mut Vec<(u64, RecordResult)>,
    ) -> Result<(), RecordError> {
        if batch.entries.is_empty() {
            return Ok(());
        }
        if !batch.salts.is_empty() {
            self.salts.append(&batch.salts).map_err(doing("write the salts of the ledger"))?;
        }
        let first = self.frontier.size();
        let bytes = frame::batch(first, self.writer, &batch.entries, &batch.leaves);
        self.append(&bytes)?;
        batch.leaves.iter().for_each(|leaf| self.frontier.push(*leaf));
        self.end += bytes.len() as u64;
        self.own = batch.own.or(self.own);
        self.runs.extend(batch.runs);
        self.write_head();
        results.extend(batch.results.into_iter().map(|(ticket, receipts)| (ticket, Ok(receipts))));
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let before = self.end;
        let written = (&self.file).write_all(bytes);
        let length = self.file.metadata().map(|meta| meta.len());
        let grown = before + bytes.len() as u64;
        if let Err(error) = written {
            // The lock is held, so all bytes after the old end belong to this append.
            self.broken = self.file.set_len(before).is_err();
            return Err(doing("append to the ledger")(error));
        }
        if length.map_or(true, |length| length != grown) {
            self.broken = true;
            let error = io::Error::other("another process wrote to the log without its lock");
            return Err(doing("append to the ledger")(error));
        }
        if let Err(error) = self.file.sync_data() {
            // The state of the disk is unknown now, and a second sync could succeed without the
            // data.
            self.broken = true;
            self.file.set_len(before).ok(); // the next opening decides
            return Err(doing("sync the ledger to disk")(error));
        }
        Ok(())
    }

    /// Writes the signed head; failures are ignored, because the head only repeats facts of the
    /// log.
    pub(super) fn write_head(&mut self) {
        let Some(note) = self.anchor.sign(&self.frontier) else { return };
        self.generation += 1;
        let head = Head {
            generation: self.generation,
            end: self.end,
            own: self.own.map(|link| (link.sequence, link.hash)),
            frontier: self.frontier.clone(),
            note,
        };
        self.anchor.write(&head).ok(); // the log has all events already
    }

    /// Writes the signed head and syncs it, for steps that depend on the head.
    pub(super) fn sign_durably(&mut self) -> Result<(), RecordError> {
        // Another process may have signed the same events again, without an append to read.
        let newest = self.anchor.newest().map_or(0, |head| head.generation);
        self.generation = newest.max(self.generation);
        self.write_head();
        let signs = |head: Head| head.generation == self.generation && head.end == self.end;
        let is_signed = self.anchor.newest().is_some_and(signs);
        let failed = || io::Error::other("the signed checkpoint was not written");
        let synced = if is_signed { self.anchor.sync() } else { Err(failed()) };
        synced.map_err(doing("sign the ledger"))
    }

    /// Replaces the signing key under one lock, so that no checkpoint is signed between event and
    /// replacement.
    pub(super) fn rotate_key(&mut self, paths: &LedgerPaths) -> Result<VerifyingKey, RecordError> {
        let _held = self.lock.take()?;
        self.catch_up(paths)?;
        let (key, endorsement) = self.anchor.successor(paths).map_err(anchor_error)?;
        let (old, new) = (self.anchor.verifying(), key.verifying());
        let event = KeyRotated { old: old.to_string(), new: new.to_string(), endorsement };
        self.record(paths, vec![Draft::new(event)]).map(drop)?;
        let replaced = self.anchor.replace(paths, key);
        if replaced.is_err() {
            self.anchor.reload(paths).ok(); // loads whichever key is on disk now
        }
        self.write_head();
        replaced.map_err(anchor_error)?;
        Ok(new)
    }

    /// Runs `act` on the other files of the ledger under the lock, after a head for all events is
    /// on disk.
    pub(super) fn with_lock<T>(
        &mut self,
        paths: &LedgerPaths,
        act: impl FnOnce() -> Result<T, RecordError>,
    ) -> Result<T, RecordError> {
        let _held = self.lock.take()?;
        self.catch_up(paths)?;
        self.sign_durably()?;
        act()
    }
}

impl Batch {
    fn encode(
        &mut self,
        index: u64,
        before: Option<Link>,
        moment: Moment,
        draft: &Draft,
    ) -> Result<Receipt, RecordError> {
        let sequence = before.map_or(0, |link| link.sequence + 1);
        let entry = Entry {
            kind: draft.event.kind().to_owned(),
            run: draft.run,
            sequence,
            previous: before.map(|link| link.hash),
            actor: draft.actor,
            cause: draft.cause,
            moment,
            fields: draft.event.fields(),
        };
        let bytes = entry.encode()?;
        let hash = Digest::leaf(&bytes);
        let link = Link { sequence, hash };
        match draft.run {
            Some(run) => drop(self.runs.insert(run, link)),
            None => self.own = Some(link),
        }
        for body in entry.fields.bodies() {
            match body.salt() {
                Some(salt) => self.salts.push((body.hash(), salt)),
                None if body.is_kept() => self.borrowed.push(body.hash()),
                None => {}
            }
        }
        self.payload += 2 + bytes.len();
        self.entries.push(bytes);
        self.leaves.push(hash);
        Ok(Receipt { index, run: draft.run, sequence, hash })
    }

    fn append(&mut self, more: Self) {
        self.entries.extend(more.entries);
        self.leaves.extend(more.leaves);
        self.payload += more.payload;
        self.salts.extend(more.salts);
        self.own = more.own.or(self.own);
        self.runs.extend(more.runs);
        self.results.extend(more.results);
    }
}

/// The links and keys found in adopted batches.
#[derive(Debug, Default)]
pub(super) struct Adopted {
    pub(super) own: Option<Link>,
    pub(super) runs: HashMap<RunId, Link>,
    /// The newest signing key that the log names.
    pub(super) key: Option<String>,
}

/// Adds the complete batches after `from` to the tree, and returns the end offset or the offset of
/// an error.
pub(super) fn adopt(
    log: &Log,
    from: u64,
    frontier: &mut Frontier,
    adopted: &mut Adopted,
) -> Result<u64, (u64, LogError)> {
    let mut scan = log.scan(from, frontier.size());
    loop {
        let end = scan.offset();
        match scan.next() {
            Ok(Some(batch)) => batch.events().for_each(|event| adopted.take(frontier, event)),
            Ok(None) => return Ok(end),
            Err(error) => return Err((end, error)),
        }
    }
}

impl Adopted {
    fn take(&mut self, frontier: &mut Frontier, event: Located<'_>) {
        frontier.push(event.leaf);
        // Bytes that are not an event of this version still count in the tree; the verifier reports
        // them.
        let Ok(view) = EntryView::parse(event.bytes) else { return };
        let link = Link { sequence: view.sequence, hash: event.leaf };
        match view.run.parse() {
            Ok(run) => drop(self.runs.insert(run, link)),
            Err(_) => {
                self.own = Some(link);
                if view.kind == "key.rotated" {
                    view.walk(|name, value| {
                        if let ("new", Raw::Text(key)) = (name, value) {
                            self.key = Some(key.to_owned());
                        }
                    });
                }
            }
        }
    }
}

/// Returns an error if the draft requires another last event of its run.
fn check_after(draft: &Draft, last: Option<Link>) -> Result<(), RecordError> {
    if let (true, Some(run), Some(_)) = (draft.is_first, draft.run, last) {
        return Err(RecordError::Exists { run });
    }
    let Some(expected) = draft.after else { return Ok(()) };
    match last.map(|link| link.sequence) {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(RecordError::Moved { run: draft.run, expected, found }),
        // Only an event that begins its run has no predecessor.
        None => Err(draft.run.map_or(RecordError::Broken, |run| RecordError::NoRun { run })),
    }
}

fn look_up(paths: &LedgerPaths, log: &Log, run: RunId) -> Result<Option<Link>, RecordError> {
    let found = Index::open(paths, log).and_then(|mut index| {
        index.catch_up(log)?;
        index.run_head(run)
    });
    let head = found.map_err(|error| RecordError::Index(Arc::new(error)))?;
    Ok(head.map(|head| Link { sequence: head.sequence, hash: head.hash }))
}

/// Returns the current time; the boot id is added when the event is written.
pub(super) fn now() -> Moment {
    let nanos = |clock| {
        let time = clock_gettime(clock);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        secs.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    };
    Moment { time: nanos(ClockId::Realtime), uptime: nanos(ClockId::Boottime), boot: [0; 16] }
}

pub(super) fn doing(doing: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |source| RecordError::Io { doing, source: Arc::new(source) }
}

fn changed(error: LogError) -> RecordError {
    RecordError::Changed(Arc::new(error))
}
