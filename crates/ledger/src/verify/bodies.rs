//! The deep check: every referenced body is stored and intact, or a signed event explains its
//! absence.
//!
//! An unsigned event after the head does not dropped a missing body.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::finding::{Code, Findings, Location, Severity};
use super::references::{Named, References, SaltAt};
use super::{BodyCounts, VerifyError, anchor};
use crate::bodies::{self, Condition, Wanted};
use crate::digest::Digest;
use crate::entry::EntryView;
use crate::field::{Raw, items};
use crate::frame::{self, HEADER, SALTS_MAGIC};
use crate::log::{Located, read_at};
use crate::paths::LedgerPaths;
use crate::salts::{self, Kept, RECORD};

/// The references to bodies, the events that drop bodies, and the salts.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    references: References,
    /// Redacted bodies with the index of the event about the redaction.
    redacted: HashMap<Digest, u64>,
    pruned: Vec<Pruned>,
    /// The salt file and its length; `None` if the file is missing.
    salts: Option<(File, u64)>,
}

/// An event about bodies that were dropped because of their age.
#[derive(Debug, Clone, Copy)]
struct Pruned {
    /// The index of the event itself.
    index: u64,
    /// Only events before this index reference the dropped bodies.
    before: u64,
    /// Only events before this time reference the dropped bodies.
    before_time: u64,
}

/// Why a body is allowed to be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dropped {
    Redacted,
    Pruned,
}

const MAX_PRUNES: usize = 100_000;
/// The number of records of the salt file in memory at once.
const SALTS_AT_ONCE: usize = 8192;

impl Bodies {
    /// Collects the references to bodies in an event.
    pub(super) fn take(&mut self, event: &Located<'_>, view: &EntryView<'_>) {
        let own = view.run.is_empty();
        let redacts = own && view.kind == "ledger.redacted";
        let prunes = own && view.kind == "ledger.pruned";
        view.walk(|name, value| match value {
            Raw::Body(body) => {
                let named = Named {
                    size: body.size(),
                    kept: body.is_kept(),
                    first: event.index,
                    last: event.index,
                    time: view.moment.time,
                    contradicts: None,
                };
                self.references.add(body.hash(), named);
            }
            Raw::List(list) if redacts && name == "bodies" => {
                for hash in items(list).filter_map(|item| item.try_into().ok()) {
                    self.redacted.entry(Digest::new(hash)).or_insert(event.index);
                }
            }
            Raw::Number(before) if prunes && name == "before_index" => {
                if self.pruned.len() < MAX_PRUNES {
                    self.pruned.push(Pruned { index: event.index, before, before_time: u64::MAX });
                }
            }
            Raw::Number(time) if prunes && name == "before_time" => {
                if let Some(pruned) = self.pruned.last_mut().filter(|it| it.index == event.index) {
                    pruned.before_time = time;
                }
            }
            Raw::Text(_)
            | Raw::Bytes(_)
            | Raw::Number(_)
            | Raw::Truth(_)
            | Raw::List(_)
            | Raw::Hash(_) => {}
        });
    }

    /// Opens the salts and notes their length; the caller should hold the lock.
    pub(super) fn open_salts(&mut self, paths: &LedgerPaths) -> Result<(), VerifyError> {
        let path = paths.salts();
        let opened = File::open(&path).and_then(|file| {
            let length = file.metadata()?.len();
            Ok((file, length))
        });
        self.salts = anchor::absent(&path, opened)?;
        Ok(())
    }

    /// Checks every body.
    pub(super) fn check(
        mut self,
        paths: &LedgerPaths,
        signed: Option<u64>,
        origin: Option<&str>,
        found: &mut Findings,
    ) -> Result<BodyCounts, VerifyError> {
        let signed = signed.unwrap_or(u64::MAX);
        self.redacted.retain(|_, index| *index < signed);
        self.pruned.retain(|pruned| pruned.index < signed);
        let pruned = PrunedBefore::new(std::mem::take(&mut self.pruned));
        let is_usable = self.check_salts(&paths.salts(), origin, found)?;
        let Self { mut references, redacted, salts, .. } = self;
        references.finish()?;
        let (mut counts, mut unnamed) = (BodyCounts::default(), 0_u64);
        references.each(|hash, named, at| {
            let Some(named) = named else {
                unnamed += 1;
                return Ok(());
            };
            let dropped = if redacted.contains_key(&hash) {
                Some(Dropped::Redacted)
            } else {
                pruned.covers(&named).then_some(Dropped::Pruned)
            };
            if let Some(index) = named.contradicts {
                let text = format!(
                    "Event {index} references body {hash} with another size than an \
                             earlier event."
                );
                let at = Location::File(paths.log());
                found.add_since(Severity::Damage, Code::BodyContradicts, at, None, text);
            }
            let salt = match (&salts, is_usable) {
                (Some((file, _)), true) => Some(read_salt(file, &paths.salts(), at)?),
                _ => None,
            };
            let path = path_of(&paths.bodies(), &hash);
            match dropped {
                Some(dropped) => excused(&path, paths, salt, dropped, &mut counts, found),
                None => present(&path, paths, &hash, named, salt, &mut counts, found),
            }
        })?;
        if unnamed > 0 {
            let text = format!(
                "{unnamed} salt(s) belong to no event. A torn append leaves such salts; they do no \
                 harm."
            );
            found.note(Code::SaltUnnamed, Location::File(paths.salts()), text);
        }
        count_unreferenced_files(&mut references, &paths.bodies(), found)?;
        Ok(counts)
    }

    /// Checks the salt file and returns whether it is usable. An unusable file is reported once.
    fn check_salts(
        &mut self,
        path: &Path,
        origin: Option<&str>,
        found: &mut Findings,
    ) -> Result<bool, VerifyError> {
        let at = || Location::File(path.to_owned());
        let mut damage = |code, text: &str| {
            found.add_since(Severity::Damage, code, at(), None, text.to_owned());
        };
        let Some((file, length)) = &self.salts else {
            damage(
                Code::SaltsMissing,
                "The salts are missing, so no body can be verified. Restore them from a copy.",
            );
            return Ok(false);
        };
        let reading = VerifyError::reading(path);
        let mut header = [0; HEADER];
        let count = read_at(file, &mut header, 0).map_err(&reading)?;
        match frame::parse_header(SALTS_MAGIC, header.get(..count).unwrap_or_default()) {
            Ok(id) if origin.is_none_or(|origin| id.origin() == origin) => {}
            Ok(_) => {
                damage(Code::SaltsDamaged, "The salts belong to another ledger.");
                return Ok(false);
            }
            // The records can still be intact.
            Err(error) => {
                damage(Code::SaltsDamaged, &format!("The file of salts is damaged: {error}."));
            }
        }
        let rest = length.saturating_sub(HEADER as u64) % RECORD as u64;
        if rest != 0 {
            let place = Location::Byte { file: path.to_owned(), offset: length - rest };
            let text = "The file of salts ends within a record of a torn append. No event needs \
                        this record, and the next recorded event removes it.";
            found.warn(Code::SaltsUnfinished, place, text.to_owned());
        }
        let (mut offset, end) = (HEADER as u64, length - rest);
        let mut window = vec![0; SALTS_AT_ONCE * RECORD];
        while offset < end {
            let wanted = window.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            let part = window.get_mut(..wanted).unwrap_or_default();
            let count = read_at(file, part, offset).map_err(&reading)?;
            let mut salts = Vec::with_capacity(SALTS_AT_ONCE);
            let part = part.get(..count).unwrap_or_default();
            for (place, record) in (offset..).step_by(RECORD).zip(part.chunks_exact(RECORD)) {
                let Some((hash, kept)) = salts::parse(record) else { continue };
                if kept == Kept::Damaged {
                    let at = Location::Byte { file: path.to_owned(), offset: place };
                    let text = format!(
                        "The salt of body {hash} is damaged, so the body cannot be verified. \
                         Restore the file of salts from a copy."
                    );
                    found.warn(Code::SaltDamaged, at, text);
                }
                let is_usable = matches!(kept, Kept::Salt(_));
                salts.push((hash, SaltAt { offset: place, is_usable }));
            }
            self.references.add_salts(&salts)?;
            if count < wanted {
                break; // the file became shorter
            }
            offset += wanted as u64;
        }
        Ok(true)
    }
}

/// Reads the record of a salt; `None` if the body has none.
fn read_salt(file: &File, path: &Path, at: Option<SaltAt>) -> Result<Option<Kept>, VerifyError> {
    let Some(at) = at else { return Ok(None) };
    let mut record = [0; RECORD];
    read_at(file, &mut record, at.offset).map_err(VerifyError::reading(path))?;
    Ok(salts::parse(&record).map(|(_, kept)| kept))
}

/// Counts the files of bodies that no event references.
///
/// The names of the files of one directory are in memory, which are those of 1/256 of all bodies.
fn count_unreferenced_files(
    references: &mut References,
    dir: &Path,
    found: &mut Findings,
) -> Result<(), VerifyError> {
    let Some(parts) = anchor::absent(dir, fs::read_dir(dir))? else { return Ok(()) };
    let parts: io::Result<HashSet<PathBuf>> =
        parts.map(|part| part.map(|part| part.path())).collect();
    let mut parts = parts.map_err(VerifyError::reading(dir))?;
    let (mut count, mut part, mut files) = (0, String::new(), HashSet::new());
    references.each(|hash, named, _| {
        let digits = hash.to_string();
        let (first, rest) = digits.split_at(2);
        if first != part {
            count += files.len();
            first.clone_into(&mut part);
            let path = dir.join(first);
            files = if parts.remove(&path) { names_in(&path)? } else { HashSet::new() };
        }
        if named.is_some() {
            files.remove(OsStr::new(rest));
        }
        Ok::<(), VerifyError>(())
    })?;
    count += files.len();
    for part in parts {
        count += names_in(&part)?.len();
    }
    if count > 0 {
        let text = format!(
            "{count} file(s) here belong to no event: their recording was interrupted or is \
             in progress. They do no harm."
        );
        found.note(Code::BodyUnnamed, Location::File(dir.to_owned()), text);
    }
    Ok(())
}

/// Returns the names of the files in a directory of bodies. A file in its place counts as one name.
fn names_in(dir: &Path) -> Result<HashSet<OsString>, VerifyError> {
    match fs::read_dir(dir) {
        Ok(files) => files
            .map(|file| file.map(|file| file.file_name()))
            .collect::<io::Result<_>>()
            .map_err(VerifyError::reading(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Ok(HashSet::from([OsString::new()]))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
        Err(error) => Err(VerifyError::reading(dir)(error)),
    }
}

/// The events about dropped bodies, sorted by the index before which bodies were dropped. Each has the
/// latest time of itself and of all events behind it.
struct PrunedBefore(Vec<Pruned>);

impl PrunedBefore {
    fn new(mut pruned: Vec<Pruned>) -> Self {
        pruned.sort_unstable_by_key(|pruned| pruned.before);
        let mut latest = 0;
        for pruned in pruned.iter_mut().rev() {
            latest = pruned.before_time.max(latest);
            pruned.before_time = latest;
        }
        Self(pruned)
    }

    /// Returns whether an event says that the body was dropped.
    fn covers(&self, named: &Named) -> bool {
        let first = self.0.partition_point(|pruned| pruned.before <= named.last);
        self.0.get(first).is_some_and(|pruned| named.time < pruned.before_time)
    }
}

/// Checks a body that is allowed to be missing.
fn excused(
    path: &Path,
    paths: &LedgerPaths,
    salt: Option<Option<Kept>>,
    dropped: Dropped,
    counts: &mut BodyCounts,
    found: &mut Findings,
) -> Result<(), VerifyError> {
    match dropped {
        Dropped::Redacted => counts.redacted += 1,
        Dropped::Pruned => counts.pruned += 1,
    }
    let content = anchor::absent(path, fs::symlink_metadata(path))?.is_some();
    if dropped == Dropped::Pruned && !content {
        return Ok(());
    }
    if content {
        let what =
            if dropped == Dropped::Redacted { "redacted" } else { "dropped because of its age" };
        let text = format!(
            "The content of a body that was {what} still exists: the removal was interrupted. \
             Repeat it."
        );
        found.warn(Code::RedactionUnfinished, Location::File(path.to_owned()), text);
    }
    if dropped == Dropped::Redacted {
        match salt {
            None | Some(Some(Kept::Erased)) => {}
            Some(Some(Kept::Salt(_) | Kept::Damaged)) => {
                let text = "The salt of a redacted body still exists, so its content can be \
                            guessed. Redact the body again.";
                found.warn(
                    Code::RedactionUnfinished,
                    Location::File(paths.salts()),
                    text.to_owned(),
                );
            }
            Some(None) => {
                let text = "The erased salt of a redacted body has no record in the file of \
                            salts: the file was changed or replaced.";
                found.warn(Code::SaltMissing, Location::File(paths.salts()), text.to_owned());
            }
        }
    }
    Ok(())
}

/// Checks a body that must be stored; `salt` is `None` if the salt file is unusable.
fn present(
    path: &Path,
    paths: &LedgerPaths,
    hash: &Digest,
    named: Named,
    salt: Option<Option<Kept>>,
    counts: &mut BodyCounts,
    found: &mut Findings,
) -> Result<(), VerifyError> {
    let mut damage = |code, file: PathBuf, text: String| {
        found.add_since(Severity::Damage, code, Location::File(file), None, text);
    };
    let index = named.last;
    let usable = match salt {
        Some(Some(Kept::Salt(salt))) => Some(salt),
        // The salt file as a whole was reported already.
        None => None,
        Some(Some(Kept::Erased)) => {
            let text = format!(
                "The salt of body {hash} of event {index} was erased without a signed redaction \
                 event. Restore the file of salts from a copy."
            );
            damage(Code::SaltMissing, paths.salts(), text);
            None
        }
        Some(None | Some(Kept::Damaged)) => {
            let text = format!(
                "Body {hash} of event {index} has no usable salt, so the body cannot be verified. \
                 Restore the file of salts from a copy."
            );
            damage(Code::SaltMissing, paths.salts(), text);
            None
        }
    };
    if !named.kept {
        counts.hash_only += 1;
        return Ok(());
    }
    let kept = bodies::Bodies::open(paths);
    let condition = match usable {
        Some(salt) => kept.check(&Wanted { hash: *hash, size: named.size, salt }),
        None => kept.check_outside(*hash, named.size),
    };
    match condition.map_err(VerifyError::Body)? {
        Condition::Whole => counts.kept += 1,
        Condition::Missing => {
            let text = format!(
                "Body {hash} of event {index} was stored and is missing without a signed event \
                 that drops it. Restore it from a copy."
            );
            damage(Code::BodyMissing, path.to_owned(), text);
        }
        Condition::Damaged { why } => {
            let text = format!("Body {hash} of event {index} is damaged: {why}.");
            damage(Code::BodyDamaged, path.to_owned(), text);
        }
    }
    Ok(())
}

/// Returns the path of the content of a body.
fn path_of(dir: &Path, hash: &Digest) -> PathBuf {
    let digits = hash.to_string();
    let (first, rest) = digits.split_at(2);
    dir.join(first).join(rest)
}
