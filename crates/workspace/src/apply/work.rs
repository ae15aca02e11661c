//! The steps of an apply, one at a time.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::ahead::Ahead;
use super::journal::{self, Begin, Opened, Record};
use super::place::Place;
use super::{ApplyError, Step, Taken, Takeover, recover};
use crate::at;
use crate::change::{Change, Changes};
use crate::host::{self, Blocked, Here, Seen};
use crate::meta::{Identity, Meta};
use crate::path::RelPath;
use crate::plan::{Act, ConflictReason, LeftOut, PlannedStep};

/// Why a step was not done. The user's file is where it was.
#[derive(Debug)]
pub(super) enum StepError {
    Conflict(ConflictReason),
    LeftOut(LeftOut),
    Io { doing: &'static str, source: io::Error },
    Log(ApplyError),
}

pub(super) struct Work<'w, 'l> {
    pub(super) takeover: &'w mut Takeover<'l>,
    on_step: &'w mut dyn FnMut(Step<'_>),
    steps: u64,
    /// Directories whose names changed since they were last written to disk.
    touched: BTreeSet<RelPath>,
    opened: Vec<Opened>,
    /// Files that had one of their names taken away by us, and how they are since: that alone moves
    /// their `ctime`, under every other name too.
    parted: HashMap<(u64, u64), Identity>,
    pub(super) ahead: Ahead,
}

impl<'w, 'l> Work<'w, 'l> {
    pub(super) fn new(
        takeover: &'w mut Takeover<'l>,
        on_step: &'w mut dyn FnMut(Step<'_>),
    ) -> Self {
        Self {
            takeover,
            on_step,
            steps: 0,
            touched: BTreeSet::new(),
            opened: Vec::new(),
            parted: HashMap::new(),
            ahead: Ahead::default(),
        }
    }

    /// Writes down which names the next steps may leave behind, before any of them is made.
    pub(super) fn announce(
        &mut self,
        changes: &Changes,
        batch: &[PlannedStep],
    ) -> Result<Vec<u64>, ApplyError> {
        let mut numbers = Vec::with_capacity(batch.len());
        for step in batch {
            let number = self.takeover.journal.next();
            numbers.push(number);
            let Some(change) = changes.entries().get(step.index) else { continue };
            let new = change.new.as_ref();
            self.takeover.journal.add(&Record::Begin(Begin {
                number,
                path: change.path.clone(),
                hash: new.and_then(|side| side.hash),
                target: new.and_then(|side| side.target.clone()),
                was: step.act.was().map(|here| (here.identity.dev, here.identity.ino)),
            }))?;
            self.touched.insert(change.path.split().map_or_else(RelPath::root, |(dir, _)| dir));
        }
        self.takeover.journal.sync()?;
        Ok(numbers)
    }

    pub(super) fn finish(&mut self, number: u64, taken: &Taken) -> Result<(), ApplyError> {
        let how = match taken {
            Taken::Applied => "applied",
            Taken::Conflict(_) => "conflict",
            Taken::LeftOut(_) => "left out",
            Taken::AlreadyThere
            | Taken::NotChosen
            | Taken::KeptOurs
            | Taken::Failed { .. }
            | Taken::NotReached => "not done",
        };
        self.takeover.journal.add(&Record::End { number, how: how.to_owned() })?;
        self.takeover.journal.flush()
    }

    pub(super) fn execute(
        &mut self,
        change: &Change,
        act: &Act,
        number: u64,
    ) -> Result<(), StepError> {
        if matches!(act, Act::SetDirMode { .. }) {
            self.close_directories().map_err(StepError::Log)?;
        }
        let done = self.at_place(change, act, number);
        self.ahead.forget(number);
        done
    }

    fn at_place(&mut self, change: &Change, act: &Act, number: u64) -> Result<(), StepError> {
        let parent = self.parent(change)?;
        let directory = at::meta(&parent).map_err(StepError::io("look at the directory"))?;
        let shared = act.was().filter(|was| was.shared);
        let shared = shared.and_then(|_| at::handle(parent.as_fd(), change.path.name()).ok());
        let place = Place::new(self, change, number, (parent.as_fd(), &directory));
        match act {
            Act::MakeDir => place.make_dir(),
            Act::ReplaceWithDir(was) => place.replace_with_dir(was),
            Act::Add => place.add(),
            Act::Replace { was, mode } => place.replace(was, *mode),
            Act::SetMode { was, mode } | Act::SetDirMode { was, mode } => {
                place.set_mode(was, *mode)
            }
            Act::Remove(was) => place.remove(was),
            Act::RemoveDir => place.remove_dir(),
            Act::ReplaceDir => place.replace_dir(),
        }?;
        if let Some(meta) = shared.and_then(|(handle, _)| at::meta(&handle).ok()) {
            self.parted.insert(meta.inode(), meta.identity);
        }
        Ok(())
    }

    /// What is at `name` now, if that is still what the plan saw.
    pub(super) fn expect(
        &self,
        was: &Here,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Meta, StepError> {
        let meta = at::stat(parent, name).map_err(StepError::io("look at the file"))?;
        let still = |now: &Meta| {
            now.identity == was.identity
                || now.identity.same_content(&was.identity)
                    && self.parted.get(&now.inode()) == Some(&now.identity)
        };
        meta.filter(|now| now.kind == was.kind && still(now))
            .ok_or(StepError::Conflict(ConflictReason::ChangedMeanwhile))
    }

    /// Told before each change to a file system.
    pub(super) fn step(&mut self, path: &RelPath) {
        self.steps += 1;
        (self.on_step)(Step { number: self.steps, path });
    }

    /// Notes that a directory is open for us and gets its mode when all is done.
    pub(super) fn note_opened(&mut self, opened: Opened) -> Result<(), StepError> {
        let journal = &mut self.takeover.journal;
        journal.add(&Record::Opened(opened.clone())).map_err(StepError::Log)?;
        journal.sync().map_err(StepError::Log)?;
        self.opened.push(opened);
        Ok(())
    }

    /// Writes the names that changed to disk: the trash first, so that a name that a power cut
    /// brings back is at worst there twice.
    pub(super) fn sync(&mut self) -> Result<(), ApplyError> {
        let trash = journal::sync_dir(&self.takeover.trash);
        trash.map_err(|source| ApplyError::OpenTrash { source })?;
        for path in std::mem::take(&mut self.touched) {
            // One that was itself removed has nothing left to write.
            let Ok(dir) = at::dir(self.takeover.layers.lower(), &path) else { continue };
            journal::sync_dir(&dir).map_err(|source| ApplyError::Sync { path, source })?;
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), ApplyError> {
        self.ahead.forget_all();
        self.sync()?;
        self.close_directories()?;
        self.takeover.journal.sync()
    }

    fn close_directories(&mut self) -> Result<(), ApplyError> {
        for opened in std::mem::take(&mut self.opened).iter().rev() {
            self.step(&opened.path);
            recover::close(self.takeover, opened);
            self.takeover.journal.add(&Record::Closed { path: opened.path.clone() })?;
        }
        self.takeover.journal.flush()
    }

    /// The directory that holds the change, made if it is gone and opened if it is read-only.
    pub(super) fn parent(&mut self, change: &Change) -> Result<OwnedFd, StepError> {
        let (path, _) =
            change.path.split().ok_or(StepError::Conflict(ConflictReason::DirectoryGone))?;
        let io = StepError::io("open the directory");
        let lower = self.takeover.layers.lower();
        let dir = match host::open_parent(lower, &path).map_err(&io)? {
            Ok(dir) => dir,
            Err(Seen::Blocked(by)) => return Err(StepError::Conflict(by.into())),
            Err(Seen::NoParent | Seen::Absent | Seen::Here(_)) if change.new.is_none() => {
                return Err(StepError::Conflict(ConflictReason::ChangedMeanwhile));
            }
            Err(Seen::NoParent | Seen::Absent | Seen::Here(_)) => self.make_missing(&path)?,
        };
        let meta = at::meta(&dir).map_err(&io)?;
        if is_closed(&meta) {
            let meanwhile = meta.mode | 0o700;
            self.note_opened(Opened { path: path.clone(), mode: meta.mode, meanwhile })?;
            self.step(&path);
            at::chmod(&dir, meanwhile).map_err(StepError::io("make the directory writable"))?;
        }
        Ok(dir)
    }

    /// Makes the directories that the host removed and `theirs` wants back.
    fn make_missing(&mut self, path: &RelPath) -> Result<OwnedFd, StepError> {
        let io = StepError::io("make the directory");
        let mut dir = at::dir(self.takeover.layers.lower(), &RelPath::root()).map_err(&io)?;
        for part in path.parts() {
            dir = match at::child_dir(&dir, part) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let above = at::meta(&dir).map_err(&io)?;
                    self.step(path);
                    let owner = super::stage::Owner::Directory(&above);
                    super::stage::directory(dir.as_fd(), part, 0o755, owner)?;
                    at::child_dir(&dir, part).map_err(&io)?
                }
                opened => opened.map_err(&io)?,
            };
        }
        Ok(dir)
    }
}

impl StepError {
    pub(super) fn io(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

impl Act {
    /// What the user has at the path.
    fn was(&self) -> Option<&Here> {
        match self {
            Self::ReplaceWithDir(was)
            | Self::Remove(was)
            | Self::Replace { was, .. }
            | Self::SetMode { was, .. }
            | Self::SetDirMode { was, .. } => Some(was),
            Self::MakeDir | Self::Add | Self::RemoveDir | Self::ReplaceDir => None,
        }
    }
}

impl From<Blocked> for ConflictReason {
    fn from(by: Blocked) -> Self {
        match by {
            Blocked::NotDirectory => Self::BlockedByFile,
            Blocked::Symlink => Self::BlockedBySymlink,
            Blocked::OtherFileSystem => Self::BlockedByMount,
        }
    }
}

/// Whether its owner, who is not root, could not change names in it.
fn is_closed(meta: &Meta) -> bool {
    let me = rustix::process::geteuid();
    meta.mode & 0o300 != 0o300 && !me.is_root() && meta.uid == me.as_raw()
}
