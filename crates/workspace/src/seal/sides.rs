//! The two sides of one change: what the box left and what the user's directory holds.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use belljar_model::risky;

use super::{SealError, Sealing};
use crate::at;
use crate::base::KEEP_LIMIT;
use crate::change::{Base, Change, Kind, Known, Risk, Side, Target, Unsupported};
use crate::content::{self, Summary};
use crate::links;
use crate::meta::{FileKind, Identity, Meta};
use crate::overlay;
use crate::path::RelPath;
use crate::tree::UpperFile;

/// What one name in the upper layer turns out to be.
pub(super) enum Left {
    Whiteout,
    Something(New),
}

/// What the box left under a name.
pub(super) struct New {
    pub side: Side,
    pub stripped: u32,
    pub unsupported: Option<Unsupported>,
}

/// What the user's directory holds under the same name.
pub(super) struct Old {
    pub side: Side,
    pub base: Option<Base>,
    pub host: Option<Identity>,
}

impl Old {
    /// What an earlier run of the box started from; none where it found nothing.
    pub(super) fn from_known(known: Known) -> Option<Self> {
        let Known { path: _, side, base, host } = known;
        side.map(|side| Self { side, base, host })
    }

    /// What the box holds just as the host had it.
    pub(super) fn into_same(self, path: RelPath) -> Known {
        let Self { side, base, host } = self;
        // Whenever the host wrote it: the box has the same.
        let known = side.hash.is_some() || side.target.is_some();
        let base = if known { Some(Base::HashOnly) } else { base };
        Known { path, side: Some(side), base, host }
    }
}

/// Whether the original is worth a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Copy,
    Hash,
}

impl Sealing<'_> {
    /// Reads a name of the upper layer that is not a directory.
    pub(super) fn left(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: &Meta,
        marks: overlay::Cover,
    ) -> Result<Left, SealError> {
        let io = |source| SealError::Upper { path: path.clone(), source };
        let name = path.name();
        let mut side = bare_side(meta);
        let mut unsupported = None;
        match meta.kind {
            FileKind::File => match self.upper_file(dir, path, meta, marks)? {
                FileLeft::Whiteout => return Ok(Left::Whiteout),
                FileLeft::Refused(why) => unsupported = Some(why),
                FileLeft::Read(summary) => fill(&mut side, &summary),
            },
            FileKind::Symlink => side.target = Some(Target(at::read_link(dir, name).map_err(io)?)),
            FileKind::Fifo => unsupported = Some(Unsupported::Fifo),
            FileKind::Socket => unsupported = Some(Unsupported::Socket),
            FileKind::Device if meta.whiteout => return Ok(Left::Whiteout),
            FileKind::Device | FileKind::Directory => unsupported = Some(Unsupported::Device),
        }
        let stripped = if meta.kind == FileKind::File { meta.mode & 0o7000 } else { 0 };
        side.mode &= 0o777;
        Ok(Left::Something(New { side, stripped, unsupported }))
    }

    fn upper_file(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: &Meta,
        marks: overlay::Cover,
    ) -> Result<FileLeft, SealError> {
        let io = |source| SealError::Upper { path: path.clone(), source };
        let mut opened = match UpperFile::open(dir, path.name()) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(FileLeft::Refused(Unsupported::Unreadable));
            }
            Err(source) => return Err(io(source)),
        };
        if let Some(why) = overlay::refuse(&*opened.file()).map_err(io)? {
            return Ok(FileLeft::Refused(why));
        }
        let may_be_mark = marks == overlay::Cover::MergeWithMarks && meta.size() == 0;
        if may_be_mark && overlay::is_marked_whiteout(&*opened.file()).map_err(io)? {
            return Ok(FileLeft::Whiteout);
        }
        if let Some(&summary) = self.linked.get(&meta.inode()) {
            return Ok(FileLeft::Read(summary));
        }
        if meta.size() > self.caps.file_bytes {
            return Ok(FileLeft::Refused(Unsupported::TooLarge));
        }
        self.upper_bytes = self.upper_bytes.saturating_add(meta.size());
        if self.upper_bytes > self.caps.upper_bytes {
            let cap = self.caps.upper_bytes;
            return Err(SealError::TooManyBytes { cap, path: path.clone() });
        }
        let summary = content::summarize(opened.file(), meta.size()).map_err(io)?;
        if meta.nlink > 1 {
            self.linked.insert(meta.inode(), summary);
        }
        Ok(FileLeft::Read(summary))
    }

    /// Reads a name of the user's directory and, if asked, keeps what it holds.
    pub(super) fn old(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: Meta,
        keep: Keep,
    ) -> Result<Old, SealError> {
        let mut side = bare_side(&meta);
        let ctime = (meta.identity.ctime.secs, meta.identity.ctime.nanos);
        let mut fresh = ctime < (self.start.secs, self.start.nanos);
        let mut known = Base::IdentityOnly;
        match meta.kind {
            FileKind::Directory => return Ok(Old { side, base: None, host: Some(meta.identity) }),
            FileKind::Symlink => {
                if let Ok(target) = at::read_link(dir, path.name()) {
                    side.target = Some(Target(target));
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
        // The host may have written while we read.
        let after = at::stat(dir, path.name()).ok().flatten();
        fresh &= after.is_some_and(|after| after.identity == meta.identity);
        let base = Some(if fresh { known } else { Base::Unknown });
        Ok(Old { side, base, host: Some(meta.identity) })
    }

    /// What the box started from at a name that it deleted.
    pub(super) fn lost(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: Meta,
        keep: Keep,
    ) -> Result<Old, SealError> {
        let known = self.earlier.known(path).cloned();
        if let Some(old) = known.clone().and_then(Old::from_known) {
            return Ok(old);
        }
        let was_hidden = known.is_some() || self.earlier.hides(path);
        let mut old = self.old(dir, path, meta, if was_hidden { Keep::Hash } else { keep })?;
        // The host put it where the box could not see it any more.
        if was_hidden && old.side.kind != FileKind::Directory {
            old.base = Some(Base::Unknown);
        }
        Ok(old)
    }

    /// The user's own file; `None` when it cannot be read or would cost too much.
    fn read_original(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RelPath,
        meta: &Meta,
        keep: Keep,
    ) -> Result<Option<(Summary, Base)>, SealError> {
        let spent = self.base_bytes.saturating_add(meta.size());
        if spent > self.caps.base_bytes {
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
            // The file grew under our hands: `old` notices.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
            Err(source) => Err(SealError::Keep { path: path.clone(), source }),
        }
    }

    /// An entry with its marks.
    pub(super) fn change(
        &self,
        path: RelPath,
        kind: Kind,
        old: Option<Old>,
        new: Option<New>,
    ) -> Change {
        let (new, stripped, unsupported) = match new {
            Some(New { side, stripped, unsupported }) => (Some(side), stripped, unsupported),
            None => (None, 0, None),
        };
        let (old, base, host) = match old {
            Some(Old { side, base, host }) => (Some(side), base, host),
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

    /// A directory does nothing by itself; what is in it has entries of its own. To lose one is
    /// another matter: a repository without its empty directories is none.
    fn risk(&self, path: &RelPath, old: Option<&Side>, new: Option<&Side>) -> Option<Risk> {
        let does = |side: &Side| side.kind != FileKind::Directory;
        let is_lost = old.is_some() && new.is_none();
        if !is_lost && !old.is_some_and(does) && !new.is_some_and(does) {
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

enum FileLeft {
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
