//! Reads the two sides of one change: the box's version and the host's version.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use belljar_model::risky;

use super::{SealError, Sealing};
use crate::at;
use crate::base::KEEP_LIMIT;
use crate::change::{Base, Change, ChangeKind, LinkTarget, Risk, Side, StartState, Unsupported};
use crate::content::{self, Summary};
use crate::links;
use crate::meta::{FileKind, Identity, Meta};
use crate::overlay;
use crate::path::RelPath;
use crate::tree::UpperFile;

/// The meaning of one entry in the upper layer: a file, a deletion or a directory.
pub(super) enum UpperEntry {
    Whiteout,
    Present(NewSide),
}

/// The box's version of a path.
pub(super) struct NewSide {
    pub side: Side,
    pub stripped: u32,
    pub unsupported: Option<Unsupported>,
}

/// The host's version of a path.
pub(super) struct OldSide {
    pub side: Side,
    pub base: Option<Base>,
    pub host: Option<Identity>,
}

impl OldSide {
    /// Returns the original version from before the restart; `None` if the path did not exist.
    pub(super) fn from_known(known: StartState) -> Option<Self> {
        let StartState { path: _, side, base, host } = known;
        side.map(|side| Self { side, base, host })
    }

    /// Converts the version of a file that is equal on host and box.
    pub(super) fn into_same(self, path: RelPath) -> StartState {
        let Self { side, base, host } = self;
        // The modification time does not matter because the content is equal.
        let known = side.hash.is_some() || side.target.is_some();
        let base = if known { Some(Base::HashOnly) } else { base };
        StartState { path, side: Some(side), base, host }
    }
}

/// Whether the original content of a file is stored or only hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Copy,
    Hash,
}

impl Sealing<'_> {
    /// Reads an entry of the upper layer that is not a directory.
    pub(super) fn read_upper_entry(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: &Meta,
        marks: overlay::Cover,
    ) -> Result<UpperEntry, SealError> {
        let io = |source| SealError::Upper { path: path.clone(), source };
        let name = path.name();
        let mut side = bare_side(meta);
        let mut unsupported = None;
        match meta.kind {
            FileKind::File => match self.upper_file(dir, path, meta, marks)? {
                UpperContent::Whiteout => return Ok(UpperEntry::Whiteout),
                UpperContent::Refused(why) => unsupported = Some(why),
                UpperContent::Read(summary) => fill(&mut side, &summary),
            },
            FileKind::Symlink => {
                side.target = Some(LinkTarget(at::read_link(dir, name).map_err(io)?));
            }
            FileKind::Fifo => unsupported = Some(Unsupported::Fifo),
            FileKind::Socket => unsupported = Some(Unsupported::Socket),
            FileKind::Device if meta.whiteout => return Ok(UpperEntry::Whiteout),
            FileKind::Device | FileKind::Directory => unsupported = Some(Unsupported::Device),
        }
        let stripped = if meta.kind == FileKind::File { meta.mode & 0o7000 } else { 0 };
        side.mode &= 0o777;
        Ok(UpperEntry::Present(NewSide { side, stripped, unsupported }))
    }

    fn upper_file(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: &Meta,
        marks: overlay::Cover,
    ) -> Result<UpperContent, SealError> {
        let io = |source| SealError::Upper { path: path.clone(), source };
        let mut opened = match UpperFile::open(dir, path.name()) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(UpperContent::Refused(Unsupported::Unreadable));
            }
            Err(source) => return Err(io(source)),
        };
        if let Some(why) = overlay::refuse(&*opened.file()).map_err(io)? {
            return Ok(UpperContent::Refused(why));
        }
        let may_be_mark = marks == overlay::Cover::MergeWithMarks && meta.size() == 0;
        if may_be_mark && overlay::is_marked_whiteout(&*opened.file()).map_err(io)? {
            return Ok(UpperContent::Whiteout);
        }
        if let Some(&summary) = self.linked.get(&meta.inode()) {
            return Ok(UpperContent::Read(summary));
        }
        if meta.size() > self.limits.file_bytes {
            return Ok(UpperContent::Refused(Unsupported::TooLarge));
        }
        self.upper_bytes = self.upper_bytes.saturating_add(meta.size());
        if self.upper_bytes > self.limits.upper_bytes {
            let cap = self.limits.upper_bytes;
            return Err(SealError::TooManyBytes { cap, path: path.clone() });
        }
        let summary = content::summarize(opened.file(), meta.size()).map_err(io)?;
        if meta.nlink > 1 {
            self.linked.insert(meta.inode(), summary);
        }
        Ok(UpperContent::Read(summary))
    }

    /// Reads an entry of the user's directory and optionally stores the original.
    pub(super) fn read_old_side(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: Meta,
        keep: Keep,
    ) -> Result<OldSide, SealError> {
        let mut side = bare_side(&meta);
        let ctime = (meta.identity.ctime.secs, meta.identity.ctime.nanos);
        let mut fresh = ctime < (self.start.secs, self.start.nanos);
        let mut known = Base::IdentityOnly;
        match meta.kind {
            FileKind::Directory => {
                return Ok(OldSide { side, base: None, host: Some(meta.identity) });
            }
            FileKind::Symlink => {
                if let Ok(target) = at::read_link(dir, path.name()) {
                    side.target = Some(LinkTarget(target));
                    known = Base::HashOnly;
                }
            }
            FileKind::File => {
                let keep = if fresh && meta.size() <= KEEP_LIMIT { keep } else { Keep::Hash };
                if let Some((summary, base)) = self.read_original(dir, path, &meta, keep)? {
                    fill(&mut side, &summary);
                    known = base;
                }
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Device => {}
        }
        // The host can have written to the file while we read it.
        let after = at::stat(dir, path.name()).ok().flatten();
        fresh &= after.is_some_and(|after| after.identity == meta.identity);
        let base = Some(if fresh { known } else { Base::Unknown });
        Ok(OldSide { side, base, host: Some(meta.identity) })
    }

    /// Returns the original version of a path that the box deleted.
    pub(super) fn old_side_of_deleted(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: Meta,
        keep: Keep,
    ) -> Result<OldSide, SealError> {
        let known = self.earlier.known(path).cloned();
        if let Some(old) = known.clone().and_then(OldSide::from_known) {
            return Ok(old);
        }
        let was_hidden = known.is_some() || self.earlier.hides(path);
        let mut old =
            self.read_old_side(dir, path, meta, if was_hidden { Keep::Hash } else { keep })?;
        // The host created the file where it was hidden from the box.
        if was_hidden && old.side.kind != FileKind::Directory {
            old.base = Some(Base::Unknown);
        }
        Ok(old)
    }

    /// Reads the user's file and stores or hashes it; `None` if it is unreadable or exceeds the
    /// limit.
    fn read_original(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: &Meta,
        keep: Keep,
    ) -> Result<Option<(Summary, Base)>, SealError> {
        let spent = self.base_bytes.saturating_add(meta.size());
        if spent > self.limits.base_bytes {
            return Ok(None);
        }
        let Ok((fd, _)) = at::file(dir, path.name()) else { return Ok(None) };
        self.base_bytes = spent;
        let mut file = File::from(fd);
        if keep == Keep::Hash {
            return Ok(content::summarize(&mut file, meta.size())
                .ok()
                .map(|s| (s, Base::HashOnly)));
        }
        match self.base.keep(&mut file) {
            Ok(summary) => Ok(Some((summary, Base::Kept))),
            // The file grew while it was read; `read_old_side` notices that.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
            Err(source) => Err(SealError::Keep { path: path.clone(), source }),
        }
    }

    /// Creates the entry of a change with its marks, for example for a risky path.
    pub(super) fn change(
        &self,
        path: RelPath,
        kind: ChangeKind,
        old: Option<OldSide>,
        new: Option<NewSide>,
    ) -> Change {
        let (new, stripped, unsupported) = match new {
            Some(NewSide { side, stripped, unsupported }) => (Some(side), stripped, unsupported),
            None => (None, 0, None),
        };
        let (old, base, host) = match old {
            Some(OldSide { side, base, host }) => (Some(side), base, host),
            None => (None, None, None),
        };
        Change {
            risky: self.risk(&path, old.as_ref(), new.as_ref()),
            new_executable: is_new_program(old.as_ref(), new.as_ref()),
            leads_out: new
                .as_ref()
                .and_then(|side| side.target.as_ref())
                .is_some_and(|target| links::leads_out(&path, &target.0)),
            moved_to: None,
            is_stored: false,
            path,
            kind,
            old,
            new,
            base,
            host,
            stripped,
            unsupported,
        }
    }

    /// Returns the rule by which a changed path is risky, if any. A new directory is harmless; its
    /// content has its own entries. A deleted directory can be risky: a repository needs even its
    /// empty directories.
    fn risk(&self, path: &RelPath, old: Option<&Side>, new: Option<&Side>) -> Option<Risk> {
        let is_content = |side: &Side| side.kind != FileKind::Directory;
        let is_lost = old.is_some() && new.is_none();
        if !is_lost && !old.is_some_and(is_content) && !new.is_some_and(is_content) {
            return None;
        }
        let is_link = new.is_some_and(|side| side.kind == FileKind::Symlink);
        let by_name = if is_link {
            risky::classify_link(path.as_bytes())
        } else {
            risky::classify(path.as_bytes())
        };
        let bare = self.bare.iter().rev().find(|(top, _)| path.is_within(top));
        let bare = bare.map(|&(_, rule)| rule);
        by_name.or(bare).map(|rule| Risk { pattern: rule.pattern.into(), why: rule.why.into() })
    }
}

/// The content of a regular file in the upper layer.
enum UpperContent {
    Whiteout,
    Refused(Unsupported),
    Read(Summary),
}

pub(super) fn bare_side(meta: &Meta) -> Side {
    let size = if meta.kind == FileKind::Directory { 0 } else { meta.size() };
    Side { kind: meta.kind, mode: meta.mode, size, hash: None, content: None, target: None }
}

fn fill(side: &mut Side, summary: &Summary) {
    side.size = summary.size;
    side.hash = Some(summary.hash);
    side.content = Some(summary.content);
}

fn is_new_program(old: Option<&Side>, new: Option<&Side>) -> bool {
    let runs = |side: &Side| side.kind == FileKind::File && side.mode & 0o111 != 0;
    new.is_some_and(runs) && !old.is_some_and(runs)
}
