//! The pass over the log, and the second check of its end under the lock.

use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::VerifyError;
use super::anchor::{self, Snapshot};
use super::bodies::Bodies;
use super::chains::Chains;
use super::derived::TileCheck;
use super::finding::{Code, Findings, Location, Severity};
use super::reader::{self, Behind, End, Piece, Whole};
use super::roots::{At, Roots};
use super::rotations::Rotations;
use crate::checkpoint::Checkpoint;
use crate::frame::{self, BatchError, HEADER, HeaderError, LOG_MAGIC};
use crate::log::{Located, read_at};
use crate::note::Note;
use crate::paths::LedgerPaths;

/// The data that one pass over the log collects.
#[derive(Debug)]
pub(super) struct Pass {
    file: File,
    path: PathBuf,
    /// The origin of the ledger, if the header of the log is intact.
    pub(super) origin: Option<String>,
    pub(super) roots: Roots,
    pub(super) rotations: Rotations,
    pub(super) chains: Chains,
    /// The next index; `None` if the log cannot be read at all.
    pub(super) next: Option<u64>,
    /// The number of events read.
    pub(super) events: u64,
    pub(super) length: u64,
    /// The end of the last complete batch.
    end: u64,
    /// Skipped batches: first event, next event, and the finding about them.
    missing: Option<(u64, u64, usize)>,
    pub(super) bodies: Option<Bodies>,
    pub(super) tiles: Option<TileCheck>,
}

/// The state of the files while the lock was held.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) anchor: Snapshot,
    /// The offset and fault of bytes after the last complete batch.
    rest: Option<(u64, BatchError)>,
    /// Whether another process held the lock the whole time.
    is_busy: bool,
}

/// The lock that prevents appends, released on drop.
#[derive(Debug)]
enum AppendLock {
    Locked(#[expect(dead_code, reason = "closing the file releases the lock")] File),
    /// There is no lock file, so there is no writer.
    NoWriter,
    Busy,
}

const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of damaged parts that are reported separately.
const MAX_BREAKS: u32 = 1000;

impl Pass {
    pub(super) fn new(paths: &LedgerPaths, file: File, rotations: Rotations) -> Self {
        let path = paths.log();
        Self {
            file,
            origin: None,
            roots: Roots::of([]),
            rotations,
            chains: Chains::new(path.clone()),
            path,
            next: Some(0),
            events: 0,
            length: 0,
            end: HEADER as u64,
            missing: None,
            bodies: None,
            tiles: None,
        }
    }

    /// Requests the root at every size of a signed checkpoint.
    pub(super) fn want<'a>(
        &mut self,
        anchor: &Snapshot,
        checkpoints: impl Iterator<Item = &'a str>,
    ) {
        let claimed = checkpoints.filter_map(|text| {
            let note = Note::parse(text).ok()?;
            Checkpoint::parse(note.text()).ok().map(|checkpoint| checkpoint.size())
        });
        let sizes = anchor.heads().map(|head| head.frontier.size()).chain(claimed);
        self.roots = Roots::of(sizes);
        let end = Some(HEADER as u64);
        self.roots.keep(|root| At { root, end, own: None, time: None });
    }

    pub(super) fn look_deep(&mut self, paths: &LedgerPaths) {
        self.bodies = Some(Bodies::default());
        self.tiles = Some(TileCheck::new(paths));
    }

    pub(super) fn run(
        &mut self,
        paths: &LedgerPaths,
        before: Snapshot,
        mut progress: Option<&mut dyn FnMut(u64, u64)>,
        found: &mut Findings,
    ) -> Result<Settled, VerifyError> {
        let path = self.path.clone();
        let reading = VerifyError::reading(&path);
        self.length = self.file.metadata().map_err(&reading)?.len();
        let file = self.file.try_clone().map_err(&reading)?;
        if !self.begin(found).map_err(&reading)? {
            self.next = None;
            return self.settle(paths, before, None, false);
        }
        let mut offset = HEADER as u64;
        for _ in 0..MAX_BREAKS {
            let all = self.length;
            let show = |piece: &Piece| {
                self.take(piece, found);
                if let Some(progress) = &mut progress {
                    progress(piece.end(), all.max(piece.end()));
                }
            };
            let (end, _) = reader::each_piece(&file, offset, show).map_err(&reading)?;
            let calm = AppendLock::take(paths)?;
            let (end, rest) = self.look_again(&file, end, found).map_err(&reading)?;
            self.length = file.metadata().map_err(&reading)?.len();
            let is_busy = matches!(calm, AppendLock::Busy);
            let Some(error) = rest else { return self.settle(paths, before, None, is_busy) };
            match reader::behind(&file, end).map_err(&reading)? {
                Behind::Nothing => {
                    return self.settle(paths, before, Some((end, error)), is_busy);
                }
                Behind::GaveUp => {
                    self.damaged(end, error, None, found);
                    return self.settle(paths, before, None, is_busy);
                }
                Behind::Batch { offset: next, first } => {
                    self.damaged(end, error, Some(first), found);
                    offset = next;
                }
            }
        }
        let text = "The log has too many damaged parts, so the rest of it was not read.".to_owned();
        found.damage(Code::BatchDamaged, Location::Byte { file: path.clone(), offset }, text);
        self.settle(paths, before, None, false)
    }

    /// Checks the header of the log and returns whether events can be read after it.
    fn begin(&mut self, found: &mut Findings) -> std::io::Result<bool> {
        let mut header = [0; HEADER];
        let count = read_at(&self.file, &mut header, 0)?;
        let at = Location::Byte { file: self.path.clone(), offset: 0 };
        if count < HEADER {
            let text = "The log ends within its first 64 bytes. Look for a copy of it.";
            found.damage(Code::LogHeaderDamaged, at, text.to_owned());
            return Ok(true);
        }
        let (code, text) = match frame::parse_header(LOG_MAGIC, &header) {
            Ok(id) => {
                self.origin = Some(id.origin());
                return Ok(true);
            }
            Err(HeaderError::Version(version)) => {
                let text = format!(
                    "The log has version {version}, which this version of Belljar does not \
                     support. Use a newer version."
                );
                found.damage(Code::LogNewer, at, text);
                return Ok(false);
            }
            Err(HeaderError::Damaged) => (
                Code::LogHeaderDamaged,
                "The first 64 bytes of the log are damaged, so its ledger is unknown.",
            ),
            Err(HeaderError::Foreign) => {
                (Code::LogForeign, "This file does not start like the log of a ledger.")
            }
        };
        found.damage(code, at, text.to_owned());
        let mut piece = Piece::default();
        piece.fill(&self.file, HEADER as u64)?;
        Ok(!piece.batches().is_empty())
    }

    /// Continues reading at the previous end of the log while the lock is held.
    fn look_again(
        &mut self,
        file: &File,
        mut offset: u64,
        found: &mut Findings,
    ) -> std::io::Result<(u64, Option<BatchError>)> {
        let mut piece = Piece::default();
        loop {
            let end = piece.fill(file, offset)?;
            self.take(&piece, found);
            offset = piece.end();
            match end {
                End::More => {}
                End::File => return Ok((offset, None)),
                End::Bad(error) => return Ok((offset, Some(error))),
            }
        }
    }

    /// Reads the files beside the log in their current state.
    fn settle(
        &mut self,
        paths: &LedgerPaths,
        before: Snapshot,
        rest: Option<(u64, BatchError)>,
        is_busy: bool,
    ) -> Result<Settled, VerifyError> {
        if let Some(bodies) = &mut self.bodies {
            bodies.open_salts(paths)?;
        }
        let (end, own, time) = (Some(self.end), self.chains.own(), self.chains.time());
        self.roots.keep(|root| At { root, end, own, time });
        let mut anchor = Snapshot::read(paths)?;
        if is_busy {
            // The head can be newer than the log that was read, and one of its slots half written.
            anchor.slots = before.slots;
            anchor.pass_over_damage();
        }
        let claimed = anchor.heads().map(|head| head.frontier.size()).max();
        if self.roots.is_broken() || claimed > self.next {
            self.rotations.doubt();
        }
        Ok(Settled { anchor, rest, is_busy })
    }

    fn take(&mut self, piece: &Piece, found: &mut Findings) {
        for batch in piece.batches() {
            if self.is_in_order(batch, found) {
                let last = batch.end().wrapping_sub(1);
                for event in piece.events(batch) {
                    self.event(&event, batch, event.index == last, found);
                }
            }
            self.end = batch.offset + batch.length;
        }
    }

    fn event(&mut self, event: &Located<'_>, batch: &Whole, is_last: bool, found: &mut Findings) {
        let is_wanted = self.roots.push(event.leaf);
        self.events += 1;
        self.next = event.index.checked_add(1);
        if let Some(tiles) = &mut self.tiles {
            tiles.push(event.leaf, found);
        }
        let view = self.chains.check(event, found);
        if let Some(view) = &view {
            if view.run.is_empty() && view.kind == "key.rotated" {
                let at = || self.chains.place(event);
                self.rotations.follow(view, at, batch.end(), found);
            }
            if let Some(bodies) = &mut self.bodies {
                bodies.take(event, view);
            }
        }
        if is_wanted {
            let end = is_last.then(|| batch.offset + batch.length);
            let (own, time) = (self.chains.own(), view.map(|view| view.moment.time));
            self.roots.keep(|root| At { root, end, own, time });
        }
    }

    /// Returns whether the batch is the next one, or follows after missing ones.
    fn is_in_order(&mut self, batch: &Whole, found: &mut Findings) -> bool {
        let (first, expected) = (batch.first, self.next.unwrap_or(u64::MAX));
        if first == expected {
            return true;
        }
        let at = Location::Byte { file: self.path.clone(), offset: batch.offset };
        self.break_off();
        if first > expected {
            let text = format!(
                "The events from {expected} to {} are missing: the next batch starts with event \
                 {first}. Look for a copy of the log that has them.",
                first - 1
            );
            let finding = found.damage(Code::BatchMissing, at, text);
            self.missing = Some((expected, first, finding));
            return true;
        }
        match self.missing {
            Some((from, to, finding)) if (from..to).contains(&first) => {
                let text = format!(
                    "The batches of the log are out of order: the batch with event {first} is at \
                     byte {}, after later ones.",
                    batch.offset
                );
                found.turn_into(finding, Code::BatchReordered, text);
            }
            Some(_) | None => {
                let text = format!(
                    "A batch starts here with event {first} instead of event {expected}: it was \
                     inserted a second time, or earlier batches were removed."
                );
                found.damage(Code::BatchRepeated, at, text);
            }
        }
        false
    }

    /// Reports a damaged part of the log before the next readable batch, which starts with event
    /// `next`.
    fn damaged(&mut self, offset: u64, error: BatchError, next: Option<u64>, found: &mut Findings) {
        let expected = self.next.unwrap_or(u64::MAX);
        let lost = match next {
            Some(next) if next > expected => {
                format!("The events from {expected} to {} cannot be read.", next - 1)
            }
            Some(_) => format!("Event {expected}, and perhaps others, cannot be read."),
            None => format!("No event from {expected} on can be read."),
        };
        let text = format!(
            "The log is damaged at byte {offset}: {error}. {lost} Look for an intact copy of the \
             log."
        );
        let at = Location::Byte { file: self.path.clone(), offset };
        found.damage(Code::BatchDamaged, at, text);
        self.break_off();
        self.next = self.next.max(next);
    }

    const fn break_off(&mut self) {
        self.roots.break_off();
        self.chains.break_off();
        if let Some(tiles) = &mut self.tiles {
            tiles.break_off();
        }
    }
}

impl Settled {
    /// Checks bytes after the last complete batch, and events that are not signed yet.
    pub(super) fn check_end(
        &self,
        paths: &LedgerPaths,
        signed: Option<u64>,
        next: Option<u64>,
        found: &mut Findings,
    ) {
        let Some(next) = next else { return };
        let claimed = self.anchor.heads().map(|head| head.frontier.size()).max();
        if let Some((offset, error)) = self.rest {
            let at = Location::Byte { file: paths.log(), offset };
            let (severity, code, text) = if claimed.is_some_and(|claimed| claimed > next) {
                let text = format!(
                    "The log is damaged at byte {offset}, where the signed event {next} should \
                     start: {error}. Look for a copy of the log that has it."
                );
                (Severity::Damage, Code::BatchDamaged, text)
            } else if self.is_busy {
                let text =
                    "Another process kept appending to the log, so its end could not be checked.";
                (Severity::Note, Code::LogBusy, text.to_owned())
            } else {
                let text = format!(
                    "After event {}, from byte {offset} on, is a torn append that was never \
                     acknowledged: {error}. The next recorded event removes it and reports the \
                     repair.",
                    next.wrapping_sub(1)
                );
                (Severity::Warning, Code::LogUnfinished, text)
            };
            found.add(severity, code, at, text);
        }
        if let Some(signed) = signed.filter(|signed| *signed < next && !self.is_busy) {
            let text = format!(
                "The events from {signed} to {} are not signed yet, so nothing shows who wrote \
                 them. \
                 After a crash that is as it should be; the next recording signs them.",
                next - 1
            );
            found.warn(Code::LogUnsigned, Location::File(paths.log()), text);
        }
    }
}

impl AppendLock {
    /// Waits for the lock.
    fn take(paths: &LedgerPaths) -> Result<Self, VerifyError> {
        let path = paths.lock();
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Ok(Self::Busy);
            }
            other => anchor::absent(&path, other)?,
        };
        let Some(file) = file else { return Ok(Self::NoWriter) };
        for _ in 0..TRIES {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => return Ok(Self::Locked(file)),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(VerifyError::reading(&path)(error.into())),
            }
        }
        Ok(Self::Busy)
    }
}
