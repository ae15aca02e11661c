//! The deep check: every referenced body is stored and intact, or a signed event explains its
//! absence.
//!
//! An unsigned event after the head does not dropped a missing body.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::finding::{Code, Findings, Location, Severity};
use super::{BodyCounts, VerifyError, anchor};
use crate::bodies::{self, Condition, Wanted};
use crate::digest::Digest;
use crate::entry::EntryView;
use crate::field::{Raw, items};
use crate::frame::{self, HEADER, SALTS_MAGIC};
use crate::log::Located;
use crate::paths::LedgerPaths;
use crate::salts::{self, Kept, RECORD};

/// The references to bodies, the events that drop bodies, and the salts.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    named: HashMap<Digest, Named>,
    /// Redacted bodies with the index of the event about the redaction.
    redacted: HashMap<Digest, u64>,
    pruned: Vec<Pruned>,
    /// The content of the salt file; `None` if the file is missing.
    salts: Option<Vec<u8>>,
}

/// A body as its events reference it.
#[derive(Debug, Clone, Copy)]
struct Named {
    size: u64,
    kept: bool,
    last: u64,
    /// The latest time of an event that references the body.
    time: u64,
    /// An event that references the body with another size.
    contradicts: Option<u64>,
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

impl Bodies {
    /// Collects the references to bodies in an event.
    pub(super) fn take(&mut self, event: &Located<'_>, view: &EntryView<'_>) {
        let own = view.run.is_empty();
        let redacts = own && view.kind == "ledger.redacted";
        let prunes = own && view.kind == "ledger.pruned";
        view.walk(|name, value| match value {
            Raw::Body(body) => {
                let fresh =
                    Named { size: body.size(), kept: false, last: 0, time: 0, contradicts: None };
                let named = self.named.entry(body.hash()).or_insert(fresh);
                if named.size != body.size() {
                    named.contradicts.get_or_insert(event.index);
                }
                named.kept |= body.is_kept();
                named.last = event.index;
                named.time = named.time.max(view.moment.time);
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

    /// Reads the salts; the caller should hold the lock.
    pub(super) fn read_salts(&mut self, paths: &LedgerPaths) -> Result<(), VerifyError> {
        let path = paths.salts();
        self.salts = anchor::absent(&path, fs::read(&path))?;
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
        let salts = self.check_salts(&paths.salts(), origin, found);
        let mut counts = BodyCounts::default();
        let mut hashes: Vec<(Digest, Named)> = self.named.iter().map(|(h, n)| (*h, *n)).collect();
        hashes.sort_unstable_by_key(|(hash, _)| *hash);
        for (hash, named) in &hashes {
            let dropped = if self.redacted.contains_key(hash) {
                Some(Dropped::Redacted)
            } else {
                pruned.covers(named).then_some(Dropped::Pruned)
            };
            if let Some(index) = named.contradicts {
                let text = format!(
                    "Event {index} references body {hash} with another size than an \
                             earlier event."
                );
                let at = Location::File(paths.log());
                found.add_since(Severity::Damage, Code::BodyContradicts, at, None, text);
            }
            let salt = salts.as_ref().map(|salts| salts.get(hash).copied());
            let path = path_of(&paths.bodies(), hash);
            match dropped {
                Some(dropped) => excused(&path, paths, salt, dropped, &mut counts, found)?,
                None => present(&path, paths, hash, *named, salt, &mut counts, found)?,
            }
        }
        self.count_unreferenced(paths, salts.as_ref(), found)?;
        Ok(counts)
    }

    /// Checks the salt file; `None` if the file is unusable, which is reported once.
    fn check_salts(
        &self,
        path: &Path,
        origin: Option<&str>,
        found: &mut Findings,
    ) -> Option<HashMap<Digest, Kept>> {
        let at = || Location::File(path.to_owned());
        let mut damage = |code, text: &str| {
            found.add_since(Severity::Damage, code, at(), None, text.to_owned());
        };
        let Some(bytes) = &self.salts else {
            damage(
                Code::SaltsMissing,
                "The salts are missing, so no body can be verified. Restore them from a copy.",
            );
            return None;
        };
        match frame::parse_header(SALTS_MAGIC, bytes.get(..HEADER).unwrap_or_default()) {
            Ok(id) if origin.is_none_or(|origin| id.origin() == origin) => {}
            Ok(_) => {
                damage(Code::SaltsDamaged, "The salts belong to another ledger.");
                return None;
            }
            // The records can still be intact.
            Err(error) => {
                damage(Code::SaltsDamaged, &format!("The file of salts is damaged: {error}."));
            }
        }
        let records = bytes.get(HEADER..).unwrap_or_default();
        let rest = records.len() % RECORD;
        if rest != 0 {
            let place =
                Location::Byte { file: path.to_owned(), offset: (bytes.len() - rest) as u64 };
            let text = "The file of salts ends within a record of a torn append. No event needs \
                        this record, and the next recorded event removes it.";
            found.warn(Code::SaltsUnfinished, place, text.to_owned());
        }
        let mut all = HashMap::with_capacity(records.len() / RECORD);
        for (place, record) in (HEADER as u64..).step_by(RECORD).zip(records.chunks_exact(RECORD)) {
            let Some((hash, kept)) = salts::parse(record) else { continue };
            if kept == Kept::Damaged {
                let offset = Location::Byte { file: path.to_owned(), offset: place };
                let text = format!(
                    "The salt of body {hash} is damaged, so the body cannot be verified. Restore \
                     the file of salts from a copy."
                );
                found.warn(Code::SaltDamaged, offset, text);
            }
            let known = all.entry(hash).or_insert(kept);
            if matches!(kept, Kept::Salt(_)) {
                *known = kept;
            }
        }
        Some(all)
    }

    /// Counts the salts and files that no event references.
    fn count_unreferenced(
        &self,
        paths: &LedgerPaths,
        salts: Option<&HashMap<Digest, Kept>>,
        found: &mut Findings,
    ) -> Result<(), VerifyError> {
        let strangers =
            salts.into_iter().flatten().filter(|(hash, _)| !self.named.contains_key(hash));
        let count = strangers.count();
        if count > 0 {
            let text = format!(
                "{count} salt(s) belong to no event. A torn append leaves such salts; they do no \
                 harm."
            );
            found.note(Code::SaltUnnamed, Location::File(paths.salts()), text);
        }
        let named: HashSet<PathBuf> =
            self.named.keys().map(|hash| path_of(Path::new(""), hash)).collect();
        let dir = paths.bodies();
        let mut count = 0;
        for_each_file(&dir, &mut |path| {
            let known = path.strip_prefix(&dir).is_ok_and(|path| named.contains(path));
            count += u64::from(!known);
        })?;
        if count > 0 {
            let text = format!(
                "{count} file(s) here belong to no event: their recording was interrupted or is \
                 in progress. They do no harm."
            );
            found.note(Code::BodyUnnamed, Location::File(dir), text);
        }
        Ok(())
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

/// Passes every file in the subdirectories of `dir` to `show`.
fn for_each_file(dir: &Path, show: &mut impl FnMut(&Path)) -> Result<(), VerifyError> {
    let Some(parts) = anchor::absent(dir, fs::read_dir(dir))? else { return Ok(()) };
    for part in parts {
        let part = part.map_err(VerifyError::reading(dir))?.path();
        match fs::read_dir(&part) {
            Ok(files) => {
                for file in files {
                    show(&file.map_err(VerifyError::reading(&part))?.path());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => show(&part),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(VerifyError::reading(&part)(error)),
        }
    }
    Ok(())
}
