//! The one pass over the log, and the second look at its end while nobody appends.

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

/// What one reading of the log gathers.
#[derive(Debug)]
pub(super) struct Pass {
    file: File,
    path: PathBuf,
    /// The name of the ledger, if the start of its log tells.
    pub(super) origin: Option<String>,
    pub(super) roots: Roots,
    pub(super) rotations: Rotations,
    pub(super) chains: Chains,
    /// The index that follows; `None` when the log cannot be read at all.
    pub(super) next: Option<u64>,
    /// How many events were read.
    pub(super) events: u64,
    pub(super) length: u64,
    /// Where the last whole batch ends.
    end: u64,
    /// Batches that were passed over: from, to, and the finding that says so.
    missing: Option<(u64, u64, usize)>,
    pub(super) bodies: Option<Bodies>,
    pub(super) tiles: Option<TileCheck>,
}

/// The state of the files when nobody appended.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) anchor: Snapshot,
    /// What stands behind the last whole batch.
    rest: Option<(u64, BatchError)>,
    /// Somebody kept the lock all the time.
    is_busy: bool,
}

/// Held while nobody may append; given back when it is dropped.
#[derive(Debug)]
enum Calm {
    Locked(#[expect(dead_code, reason = "closing it gives the lock back")] File),
    /// Without a file to lock there is no writer.
    NoWriter,
    Busy,
}

const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(2);
/// More damaged places than this are not told apart.
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

    /// Prepares to know the root at every size that somebody vouches for.
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
            let calm = Calm::take(paths)?;
            let (end, rest) = self.look_again(&file, end, found).map_err(&reading)?;
            self.length = file.metadata().map_err(&reading)?.len();
            let is_busy = matches!(calm, Calm::Busy);
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
        let text = "The log is damaged in so many places that the rest was not read.".to_owned();
        found.damage(Code::BatchDamaged, Location::Byte { file: path.clone(), offset }, text);
        self.settle(paths, before, None, false)
    }

    /// Looks at the start of the log; whether events can be read behind it.
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
                    "The log is of version {version}, which this Belljar does not know. Use a newer one."
                );
                found.damage(Code::LogNewer, at, text);
                return Ok(false);
            }
            Err(HeaderError::Damaged) => (
                Code::LogHeaderDamaged,
                "The first 64 bytes of the log are damaged, so it does not say whose it is.",
            ),
            Err(HeaderError::Foreign) => {
                (Code::LogForeign, "This file does not begin as the log of a ledger does.")
            }
        };
        found.damage(code, at, text.to_owned());
        let mut piece = Piece::default();
        piece.fill(&self.file, HEADER as u64)?;
        Ok(!piece.batches().is_empty())
    }

    /// Reads on from where the log seemed to end; nobody appends now.
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

    /// The files beside the log, as they are now.
    fn settle(
        &mut self,
        paths: &LedgerPaths,
        before: Snapshot,
        rest: Option<(u64, BatchError)>,
        is_busy: bool,
    ) -> Result<Settled, VerifyError> {
        if let Some(bodies) = &mut self.bodies {
            bodies.read_salts(paths)?;
        }
        let (end, own, time) = (Some(self.end), self.chains.own(), self.chains.time());
        self.roots.keep(|root| At { root, end, own, time });
        let mut anchor = Snapshot::read(paths)?;
        if is_busy {
            // The head may be ahead of what was read by now, and one half of it half written.
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

    /// Whether the batch is the one that follows, or one behind others that are missing.
    fn is_in_order(&mut self, batch: &Whole, found: &mut Findings) -> bool {
        let (first, expected) = (batch.first, self.next.unwrap_or(u64::MAX));
        if first == expected {
            return true;
        }
        let at = Location::Byte { file: self.path.clone(), offset: batch.offset };
        self.break_off();
        if first > expected {
            let text = format!(
                "The events from {expected} to {} are missing: the batch that follows begins with \
                 event {first}. Look for a copy of the log that has them.",
                first - 1
            );
            let finding = found.damage(Code::BatchMissing, at, text);
            self.missing = Some((expected, first, finding));
            return true;
        }
        match self.missing {
            Some((from, to, finding)) if (from..to).contains(&first) => {
                let text = format!(
                    "The batches of the log are not in their order: the one with event {first} \
                     stands at byte {}, behind later ones.",
                    batch.offset
                );
                found.turn_into(finding, Code::BatchReordered, text);
            }
            Some(_) | None => {
                let text = format!(
                    "A batch stands here that begins with event {first}, and event {expected} should \
                     follow: it was put in a second time, or those before it were taken out."
                );
                found.damage(Code::BatchRepeated, at, text);
            }
        }
        false
    }

    /// A place is damaged, and the next batch that can be read begins with event `next`.
    fn damaged(&mut self, offset: u64, error: BatchError, next: Option<u64>, found: &mut Findings) {
        let expected = self.next.unwrap_or(u64::MAX);
        let lost = match next {
            Some(next) if next > expected => {
                format!("The events from {expected} to {} cannot be read.", next - 1)
            }
            Some(_) => format!("Event {expected}, and perhaps others, cannot be read."),
            None => format!("From event {expected} on nothing can be read."),
        };
        let text = format!(
            "The log is damaged at byte {offset}: {error}. {lost} Look for a copy of the log that \
             is whole."
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
    /// Judges what stands behind the last whole batch, and events that nobody signed yet.
    pub(super) fn judge_end(
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
                    "The log is damaged at byte {offset}, where event {next} should begin, which was \
                     signed: {error}. Look for a copy of the log that has it."
                );
                (Severity::Damage, Code::BatchDamaged, text)
            } else if self.is_busy {
                let text =
                    "Somebody is appending to the log, and did not stop for a look at its end.";
                (Severity::Note, Code::LogBusy, text.to_owned())
            } else {
                let text = format!(
                    "Behind event {}, from byte {offset} on, is the rest of an append that was cut \
                     short: {error}. Nobody was told that it happened. The next recording takes it \
                     away and says so.",
                    next.wrapping_sub(1)
                );
                (Severity::Warning, Code::LogUnfinished, text)
            };
            found.add(severity, code, at, text);
        }
        if let Some(signed) = signed.filter(|signed| *signed < next && !self.is_busy) {
            let text = format!(
                "The events from {signed} to {} are not signed yet, so nothing shows who wrote them. \
                 After a crash that is as it should be; the next recording signs them.",
                next - 1
            );
            found.warn(Code::LogUnsigned, Location::File(paths.log()), text);
        }
    }
}

impl Calm {
    /// Waits until nobody appends.
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
