//! Executes the steps of an apply, one at a time.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::log::{self, Begin, Opened, Record};
use super::path_step::PathStep;
use super::prestage::Prestaged;
use super::{ApplyError, ApplySession, EntryStatus, Step, recover};
use crate::at;
use crate::change::{Change, Changes};
use crate::host::{self, Blocked, HostFile, HostState};
use crate::meta::{Identity, Meta};
use crate::path::RelPath;
use crate::plan::{Action, ConflictReason, LeftOut, PlannedStep};

/// The reason why an apply step was not executed. The user's file is unchanged.
#[derive(Debug)]
pub(super) enum StepError {
    Conflict(ConflictReason),
    LeftOut(LeftOut),
    Io { doing: &'static str, source: io::Error },
    Log(ApplyError),
}

/// Executes the steps of one apply and tracks the state that they share.
pub(super) struct Executor<'w, 'l> {
    pub(super) session: &'w mut ApplySession<'l>,
    on_step: &'w mut dyn FnMut(Step<'_>),
    steps: u64,
    /// The directories with changed entries that are not yet synced to disk.
    touched: BTreeSet<RelPath>,
    opened: Vec<Opened>,
    /// The files with several hard links that lost a link in this apply, with their new identity.
    /// Removing one link changes the `ctime` of all others.
    unlinked: HashMap<(u64, u64), Identity>,
    pub(super) prestaged: Prestaged,
}

impl<'w, 'l> Executor<'w, 'l> {
    pub(super) fn new(
        session: &'w mut ApplySession<'l>,
        on_step: &'w mut dyn FnMut(Step<'_>),
    ) -> Self {
        Self {
            session,
            on_step,
            steps: 0,
            touched: BTreeSet::new(),
            opened: Vec::new(),
            unlinked: HashMap::new(),
            prestaged: Prestaged::default(),
        }
    }

    /// Records the temporary names of the next apply steps before any file is created. Returns the
    /// step numbers.
    pub(super) fn announce(
        &mut self,
        changes: &Changes,
        batch: &[PlannedStep],
    ) -> Result<Vec<u64>, ApplyError> {
        let mut numbers = Vec::with_capacity(batch.len());
        for step in batch {
            let number = self.session.log.next();
            numbers.push(number);
            let Some(change) = changes.entries().get(step.index) else { continue };
            let new = change.new.as_ref();
            self.session.log.add(&Record::Begin(Begin {
                number,
                path: change.path.clone(),
                hash: new.and_then(|side| side.hash),
                target: new.and_then(|side| side.target.clone()),
                was: step.action.was().map(|found| (found.identity.dev, found.identity.ino)),
            }))?;
            self.touched.insert(change.path.split().map_or_else(RelPath::root, |(dir, _)| dir));
        }
        self.session.log.sync()?;
        Ok(numbers)
    }

    /// Records the end of an apply step in the log.
    pub(super) fn finish(&mut self, number: u64, status: &EntryStatus) -> Result<(), ApplyError> {
        let how = match status {
            EntryStatus::Applied => "applied",
            EntryStatus::Conflict(_) => "conflict",
            EntryStatus::LeftOut(_) => "left out",
            EntryStatus::AlreadyThere
            | EntryStatus::NotChosen
            | EntryStatus::KeptOurs
            | EntryStatus::Failed { .. }
            | EntryStatus::NotReached => "not done",
        };
        self.session.log.add(&Record::End { number, how: how.to_owned() })?;
        self.session.log.flush()
    }

    /// Executes one step.
    pub(super) fn execute(
        &mut self,
        change: &Change,
        action: &Action,
        number: u64,
    ) -> Result<(), StepError> {
        if matches!(action, Action::SetDirMode { .. }) {
            self.close_directories().map_err(StepError::Log)?;
        }
        let done = self.at_path(change, action, number);
        self.prestaged.discard(number);
        done
    }

    fn at_path(&mut self, change: &Change, action: &Action, number: u64) -> Result<(), StepError> {
        let parent = self.parent(change)?;
        let directory = at::meta(&parent).map_err(StepError::io("cannot inspect the directory"))?;
        let shared = action.was().filter(|was| was.shared);
        let shared = shared.and_then(|_| at::handle(parent.as_fd(), change.path.name()).ok());
        let path_step = PathStep::new(self, change, number, (parent.as_fd(), &directory));
        match action {
            Action::MakeDir => path_step.make_dir(),
            Action::ReplaceWithDir(was) => path_step.replace_with_dir(was),
            Action::Add => path_step.add(),
            Action::Replace { was, mode } => path_step.replace(was, *mode),
            Action::SetMode { was, mode } | Action::SetDirMode { was, mode } => {
                path_step.set_mode(was, *mode)
            }
            Action::Remove(was) => path_step.remove(was),
            Action::RemoveDir => path_step.remove_dir(),
            Action::ReplaceDir => path_step.replace_dir(),
        }?;
        if let Some(meta) = shared.and_then(|(handle, _)| at::meta(&handle).ok()) {
            self.unlinked.insert(meta.inode(), meta.identity);
        }
        Ok(())
    }

    /// Returns the metadata of the file `name` if it is still the file that the plan saw.
    pub(super) fn expect(
        &self,
        was: &HostFile,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Meta, StepError> {
        let meta = at::stat(parent, name).map_err(StepError::io("cannot inspect the file"))?;
        let still = |now: &Meta| {
            now.identity == was.identity
                || now.identity.same_content(&was.identity)
                    && self.unlinked.get(&now.inode()) == Some(&now.identity)
        };
        meta.filter(|now| now.kind == was.kind && still(now))
            .ok_or(StepError::Conflict(ConflictReason::ChangedMeanwhile))
    }

    /// Reports the next change to a file system to the caller.
    pub(super) fn step(&mut self, path: &RelPath) {
        self.steps += 1;
        (self.on_step)(Step { number: self.steps, path });
    }

    /// Records that a directory is temporarily writable and gets its mode back at the end.
    pub(super) fn note_opened(&mut self, opened: Opened) -> Result<(), StepError> {
        let log = &mut self.session.log;
        log.add(&Record::Opened(opened.clone())).map_err(StepError::Log)?;
        log.sync().map_err(StepError::Log)?;
        self.opened.push(opened);
        Ok(())
    }

    /// Syncs all changed directories to disk. The trash goes first: after a power cut a file can
    /// then exist twice, but is never missing.
    pub(super) fn sync(&mut self) -> Result<(), ApplyError> {
        let trash = log::sync_dir(&self.session.trash);
        trash.map_err(|source| ApplyError::OpenTrash { source })?;
        for path in std::mem::take(&mut self.touched) {
            // A removed directory needs no sync.
            let Ok(dir) = at::dir(self.session.layers.lower(), &path) else { continue };
            log::sync_dir(&dir).map_err(|source| ApplyError::Sync { path, source })?;
        }
        Ok(())
    }

    /// Finishes the apply: removes unused staged files, syncs, and restores directory modes.
    pub(super) fn close(&mut self) -> Result<(), ApplyError> {
        self.prestaged.discard_all();
        self.sync()?;
        self.close_directories()?;
        self.session.log.sync()
    }

    fn close_directories(&mut self) -> Result<(), ApplyError> {
        for opened in std::mem::take(&mut self.opened).iter().rev() {
            self.step(&opened.path);
            recover::close(self.session, opened);
            self.session.log.add(&Record::Closed { path: opened.path.clone() })?;
        }
        self.session.log.flush()
    }

    /// Opens the parent directory of a change, creates it if it is missing and makes it writable if
    /// necessary.
    pub(super) fn parent(&mut self, change: &Change) -> Result<OwnedFd, StepError> {
        let (path, _) =
            change.path.split().ok_or(StepError::Conflict(ConflictReason::DirectoryGone))?;
        let io = StepError::io("cannot open the directory");
        let lower = self.session.layers.lower();
        let dir = match host::open_parent(lower, &path).map_err(&io)? {
            Ok(dir) => dir,
            Err(HostState::Blocked(by)) => return Err(StepError::Conflict(by.into())),
            Err(HostState::NoParent | HostState::Absent | HostState::Present(_))
                if change.new.is_none() =>
            {
                return Err(StepError::Conflict(ConflictReason::ChangedMeanwhile));
            }
            Err(HostState::NoParent | HostState::Absent | HostState::Present(_)) => {
                self.make_missing(&path)?
            }
        };
        let meta = at::meta(&dir).map_err(&io)?;
        if is_write_protected(&meta) {
            let temporary_mode = meta.mode | 0o700;
            self.note_opened(Opened { path: path.clone(), mode: meta.mode, temporary_mode })?;
            self.step(&path);
            at::chmod(&dir, temporary_mode)
                .map_err(StepError::io("cannot make the directory writable"))?;
        }
        Ok(dir)
    }

    /// Creates parent directories that the host removed, for changes where the user chose the box's
    /// version.
    fn make_missing(&mut self, path: &RelPath) -> Result<OwnedFd, StepError> {
        let io = StepError::io("cannot create the directory");
        let mut dir = at::dir(self.session.layers.lower(), &RelPath::root()).map_err(&io)?;
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

impl Action {
    /// Returns the user's file that the action expects at its path, if any.
    fn was(&self) -> Option<&HostFile> {
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

/// Returns whether this user owns the directory, is not root, and cannot change entries in it.
fn is_write_protected(meta: &Meta) -> bool {
    let me = rustix::process::geteuid();
    meta.mode & 0o300 != 0o300 && !me.is_root() && meta.uid == me.as_raw()
}
