//! One step of an apply: the operations on one path of the user's directory.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;

use super::executor::{Executor, StepError};
use super::log::{self, Opened};
use super::stage::{self, Owner};
use super::trash;
use crate::at;
use crate::change::Change;
use crate::host::HostFile;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;
use crate::plan::{ConflictReason, LeftOut};

/// One step of an apply at one path.
pub(super) struct PathStep<'p, 'w, 'l> {
    executor: &'p mut Executor<'w, 'l>,
    change: &'p Change,
    path: &'p RelPath,
    number: u64,
    parent: BorrowedFd<'p>,
    directory: &'p Meta,
    name: &'p [u8],
    temporary: Vec<u8>,
}

const CHANGED_MEANWHILE: StepError = StepError::Conflict(ConflictReason::ChangedMeanwhile);

impl<'p, 'w, 'l> PathStep<'p, 'w, 'l> {
    pub(super) fn new(
        executor: &'p mut Executor<'w, 'l>,
        change: &'p Change,
        number: u64,
        (parent, directory): (BorrowedFd<'p>, &'p Meta),
    ) -> Self {
        let temporary = log::temporary_name(executor.session.layers, number);
        let (path, name) = (&change.path, change.path.name());
        Self { executor, path, change, number, parent, directory, name, temporary }
    }

    pub(super) fn make_dir(mut self) -> Result<(), StepError> {
        self.stage_dir(Owner::Directory(self.directory))?;
        match self.move_in() {
            Err(error) => {
                self.unstage_dir();
                // The host created the same directory in the meantime, which is fine.
                let is_dir = self.stat()?.is_some_and(|meta| meta.kind == FileKind::Directory);
                if is_dir { Ok(()) } else { Err(error) }
            }
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn replace_with_dir(mut self, was: &HostFile) -> Result<(), StepError> {
        let meta = self.expect(was)?;
        self.stage_dir(Owner::File(&meta, self.name))?;
        let (_, staged) = self.handle(&self.temporary)?;
        let swapped = match self.swap(was, staged.inode()) {
            Err(StepError::Io { source, .. }) if is_unsupported(&source) => {
                self.make_way_in_two_steps(was)
            }
            swapped => swapped,
        };
        if swapped.is_err() {
            self.unstage_dir();
        }
        swapped
    }

    pub(super) fn add(mut self) -> Result<(), StepError> {
        let mode = self.change.new.as_ref().map_or(0o600, |new| new.mode);
        self.stage(mode, Owner::Directory(self.directory))?;
        let moved = self.move_in();
        if moved.is_err() {
            self.unstage();
        }
        moved
    }

    pub(super) fn replace(mut self, was: &HostFile, mode: u32) -> Result<(), StepError> {
        let meta = self.expect(was)?;
        let name = self.name;
        let staged = self.stage(mode, Owner::File(&meta, name))?;
        match self.swap(was, staged) {
            Err(StepError::Io { source, .. }) if is_unsupported(&source) => {
                self.replace_in_two_steps(was)
            }
            Err(error) => {
                self.unstage_if_ours(staged);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn set_mode(self, was: &HostFile, mode: u32) -> Result<(), StepError> {
        let io = StepError::io("cannot change the mode");
        let (handle, meta) = self.handle(self.name)?;
        let same = if meta.kind == FileKind::Directory {
            meta.inode() == (was.identity.dev, was.identity.ino)
        } else {
            meta.identity.same_content(&was.identity)
        };
        if meta.kind != was.kind || !same || meta.mode != was.mode || meta.is_shared() {
            return Err(CHANGED_MEANWHILE);
        }
        // A directory keeps the host's setgid and sticky bits; a file gets no special bits.
        let kept = if meta.kind == FileKind::Directory { meta.mode & 0o7000 } else { 0 };
        self.executor.step(self.path);
        at::chmod(&handle, kept | (mode & 0o777)).map_err(io)
    }

    pub(super) fn remove(mut self, was: &HostFile) -> Result<(), StepError> {
        self.expect(was)?;
        self.move_out(was)
    }

    /// Moves the user's file to the trash, and back if it is not the expected file.
    fn move_out(&mut self, was: &HostFile) -> Result<(), StepError> {
        let io = StepError::io("cannot move the file to the trash");
        let trash_name = self.number.to_string().into_bytes();
        self.executor.step(self.path);
        let trash = self.executor.session.trash.as_fd();
        match at::rename_new(self.parent, self.name, trash, &trash_name) {
            Ok(()) => {
                let out = at::stat(trash, &trash_name).map_err(&io)?;
                if out.is_some_and(|out| is_expected(&out, was)) {
                    return Ok(());
                }
                self.executor.step(self.path);
                let trash = self.executor.session.trash.as_fd();
                match at::rename_new(trash, &trash_name, self.parent, self.name) {
                    Ok(()) => Err(CHANGED_MEANWHILE),
                    // The host has already created another file there; the trash keeps the earlier
                    // one.
                    Err(_) => {
                        let number = self.number;
                        Err(StepError::Conflict(ConflictReason::KeptInTrash { number }))
                    }
                }
            }
            Err(error) if trash::is_other_file_system(&error) => self.remove_by_copy(was),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CHANGED_MEANWHILE),
            Err(source) => Err(io(source)),
        }
    }

    pub(super) fn remove_dir(self) -> Result<(), StepError> {
        self.executor.step(self.path);
        match at::rmdir(self.parent, self.name) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Err(StepError::LeftOut(LeftOut::NotEmpty))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(CHANGED_MEANWHILE),
            done => done.map_err(StepError::io("cannot remove the directory")),
        }
    }

    pub(super) fn replace_dir(mut self) -> Result<(), StepError> {
        let io = StepError::io("cannot replace the directory");
        let mode = self.change.new.as_ref().map_or(0o600, |new| new.mode);
        let staged = self.stage(mode, Owner::Directory(self.directory))?;
        self.executor.step(self.path);
        match at::exchange(self.parent, &self.temporary, self.name) {
            Err(error) if is_unsupported(&error) => return self.replace_dir_in_two_steps(),
            Err(error) => {
                self.unstage();
                let gone = error.kind() == io::ErrorKind::NotFound;
                return Err(if gone { CHANGED_MEANWHILE } else { io(error) });
            }
            Ok(()) => {}
        }
        self.executor.step(self.path);
        match at::rmdir(self.parent, &self.temporary) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.executor.step(self.path);
                at::exchange(self.parent, &self.temporary, self.name).map_err(&io)?;
                self.unstage_if_ours(staged);
                match Errno::from_io_error(&error) {
                    Some(Errno::NOTEMPTY | Errno::EXIST) => {
                        Err(StepError::Conflict(ConflictReason::DirectoryInUse))
                    }
                    Some(Errno::NOTDIR) => Err(CHANGED_MEANWHILE),
                    _ => Err(io(error)),
                }
            }
        }
    }

    /// Returns the metadata of the user's file if it is still the file that the plan saw.
    fn expect(&self, was: &HostFile) -> Result<Meta, StepError> {
        self.executor.expect(was, self.parent, self.name)
    }

    fn stat(&self) -> Result<Option<Meta>, StepError> {
        at::stat(self.parent, self.name).map_err(StepError::io("cannot inspect the file"))
    }

    fn handle(&self, name: &[u8]) -> Result<(std::os::fd::OwnedFd, Meta), StepError> {
        at::handle(self.parent, name)
            .map_err(conflict_or_io("cannot inspect the file", Errno::NOENT))
    }

    fn stage(&mut self, mode: u32, owner: Owner<'_>) -> Result<(u64, u64), StepError> {
        if let Some(staged) = self.executor.prestaged.staged(self.number) {
            return staged;
        }
        self.executor.step(self.path);
        let layers = self.executor.session.layers;
        stage::leaf(layers, (self.parent, &self.temporary), self.change, (mode, owner))
    }

    fn stage_dir(&mut self, owner: Owner<'_>) -> Result<(), StepError> {
        let mode = self.change.new.as_ref().map_or(0o755, |new| new.mode & 0o777);
        if mode & 0o700 != 0o700 {
            let temporary_mode = mode | 0o700;
            self.executor.note_opened(Opened { path: self.path.clone(), mode, temporary_mode })?;
        }
        self.executor.step(self.path);
        stage::directory(self.parent, &self.temporary, mode | 0o700, owner)
    }

    /// Renames the staged file to its final name, which must not exist yet.
    fn move_in(&mut self) -> Result<(), StepError> {
        self.executor.step(self.path);
        let moved = at::rename_new(self.parent, &self.temporary, self.parent, self.name);
        moved.map_err(conflict_or_io("cannot rename the new file", Errno::EXIST))
    }

    /// Exchanges the staged file with the user's file and moves the user's file to the trash. The
    /// exchange is undone if the user's file is not the expected one or the trash cannot take it.
    fn swap(&mut self, was: &HostFile, staged: (u64, u64)) -> Result<(), StepError> {
        let io = StepError::io("cannot exchange the files");
        self.executor.step(self.path);
        at::exchange(self.parent, &self.temporary, self.name)
            .map_err(conflict_or_io("cannot exchange the files", Errno::NOENT))?;
        let Err(why) = self.put_away_expected(was, &io)? else { return Ok(()) };
        self.executor.step(self.path);
        at::exchange(self.parent, &self.temporary, self.name).map_err(&io)?;
        let back = at::stat(self.parent, &self.temporary).map_err(&io)?;
        if back.is_some_and(|back| back.inode() == staged) {
            return Err(why);
        }
        // Between the two exchanges the host replaced our file: the host's file is the newest and
        // stays, and the file that came out first goes to the trash.
        self.executor.step(self.path);
        at::exchange(self.parent, &self.temporary, self.name).map_err(&io)?;
        let number = self.number;
        self.put_away()?;
        Err(StepError::Conflict(ConflictReason::KeptInTrash { number }))
    }

    /// Moves the user's replaced file to the trash if it is the expected one. The inner error is
    /// the reason to undo the exchange; the outer error means that the file could not be inspected.
    fn put_away_expected(
        &mut self,
        was: &HostFile,
        io: impl Fn(io::Error) -> StepError,
    ) -> Result<Result<(), StepError>, StepError> {
        let out = at::stat(self.parent, &self.temporary).map_err(io)?;
        match out.is_some_and(|out| is_expected(&out, was)) {
            true => Ok(self.put_away()),
            false => Ok(Err(CHANGED_MEANWHILE)),
        }
    }

    /// Moves the user's replaced file to the trash.
    fn put_away(&mut self) -> Result<(), StepError> {
        self.executor.step(self.path);
        let trash = self.executor.session.trash.as_fd();
        trash::put(trash, self.number, self.parent, &self.temporary)
            .map_err(StepError::io("cannot move the old file to the trash"))
    }

    fn remove_by_copy(&mut self, was: &HostFile) -> Result<(), StepError> {
        let io = StepError::io("cannot move the file to the trash");
        self.executor.step(self.path);
        match at::rename_new(self.parent, self.name, self.parent, &self.temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(CHANGED_MEANWHILE),
            moved => moved.map_err(&io)?,
        }
        let Err(why) = self.put_away_expected(was, &io)? else { return Ok(()) };
        self.executor.step(self.path);
        match at::rename_new(self.parent, &self.temporary, self.parent, self.name) {
            Ok(()) => Err(why),
            // The host has already created another file there. If the trash does not take the
            // earlier one either, that file keeps its temporary name and the next apply finds it in
            // the log.
            Err(_) => {
                self.put_away()?;
                Err(StepError::Conflict(ConflictReason::KeptInTrash { number: self.number }))
            }
        }
    }

    /// Replaces a file on a file system that cannot exchange two files: copies it to the trash,
    /// then renames over it. If the host writes between the check and the rename, that write is
    /// lost and the copy in the trash is older.
    fn replace_in_two_steps(&mut self, was: &HostFile) -> Result<(), StepError> {
        let io = StepError::io("cannot replace the file");
        self.executor.step(self.path);
        let trash = self.executor.session.trash.as_fd();
        trash::keep_copy(trash, self.number, self.parent, self.name).map_err(&io)?;
        if let Err(error) = self.expect(was) {
            self.unstage();
            return Err(error);
        }
        self.executor.step(self.path);
        at::rename(self.parent, &self.temporary, self.parent, self.name).map_err(io)
    }

    /// Replaces a file with a directory on a file system that cannot exchange them: moves the file
    /// out first.
    fn make_way_in_two_steps(&mut self, was: &HostFile) -> Result<(), StepError> {
        self.expect(was)?;
        self.executor.step(self.path);
        let trash = self.executor.session.trash.as_fd();
        trash::put(trash, self.number, self.parent, self.name)
            .map_err(StepError::io("cannot move the old file to the trash"))?;
        let number = self.number;
        self.move_in().map_err(|_| StepError::Conflict(ConflictReason::KeptInTrash { number }))
    }

    fn replace_dir_in_two_steps(&mut self) -> Result<(), StepError> {
        self.executor.step(self.path);
        if let Err(error) = at::rmdir(self.parent, self.name) {
            self.unstage();
            return Err(match Errno::from_io_error(&error) {
                Some(Errno::NOTEMPTY | Errno::EXIST) => {
                    StepError::Conflict(ConflictReason::DirectoryInUse)
                }
                _ => StepError::Io { doing: "cannot replace the directory", source: error },
            });
        }
        self.move_in()
    }

    /// Removes the staged copy; the upper layer of the box still has the content. After a failure
    /// the next apply finds the file in the log.
    fn unstage(&self) {
        drop(at::unlink(self.parent, &self.temporary));
    }

    fn unstage_dir(&self) {
        drop(at::rmdir(self.parent, &self.temporary));
    }

    fn unstage_if_ours(&self, staged: (u64, u64)) {
        let there = at::stat(self.parent, &self.temporary).ok().flatten();
        if there.is_some_and(|there| there.inode() == staged) {
            self.unstage();
        }
    }
}

/// Returns a function that maps one errno to a conflict with the host, and every other error to an
/// I/O error.
fn conflict_or_io(doing: &'static str, conflict: Errno) -> impl Fn(io::Error) -> StepError {
    move |source| {
        if Errno::from_io_error(&source) == Some(conflict) {
            CHANGED_MEANWHILE
        } else {
            StepError::Io { doing, source }
        }
    }
}

fn is_expected(out: &Meta, was: &HostFile) -> bool {
    out.kind == was.kind && out.identity.same_content(&was.identity)
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::apply::ApplySession;
    use crate::change::{ChangeKind, Changes, LinkTarget, Side};
    use crate::content::{Content, ContentHash};
    use crate::host::HostState;
    use crate::layers::{Layers, RunPaths};

    /// Creates a workspace in which `host` makes the file `x`, and a run whose box changed `x`.
    fn fixture(host: impl Fn(&Path)) -> (tempfile::TempDir, Layers) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["lower", "state/run/upper"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        host(&at("lower/x"));
        fs::write(at("state/run/upper/x"), "box").unwrap();
        let (workspace, state, run) = (at("lower"), at("state"), at("state/run"));
        let paths = RunPaths { workspace: &workspace, state: &state, run: &run };
        let layers = Layers::open(&paths).unwrap();
        (dir, layers)
    }

    fn change(kind: FileKind) -> Change {
        let hash = Some(ContentHash::of(b"box"));
        let content = Some(Content::Text);
        let target: Option<LinkTarget> = None;
        Change {
            path: RelPath::new("x").unwrap(),
            kind: ChangeKind::Modified,
            old: None,
            new: Some(Side { kind, mode: 0o755, size: 3, hash, content, target }),
            base: None,
            host: None,
            risky: None,
            new_executable: false,
            leads_out: false,
            stripped: 0,
            unsupported: None,
            moved_to: None,
            is_stored: false,
        }
    }

    /// Runs `action` on the file `x`, as on a file system that cannot exchange two files.
    fn at_path(
        layers: &Layers,
        kind: FileKind,
        action: impl FnOnce(&mut PathStep<'_, '_, '_>, Option<HostFile>) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        let change = change(kind);
        let mut session = ApplySession::begin(layers).unwrap();
        let clock = belljar_model::Clock { secs: 0, nanos: 0 };
        let changes = Changes::new(clock, vec![change.clone()], Vec::new());
        let was = match session.observe(&changes).unwrap().states.remove(0) {
            HostState::Present(found) => Some(found),
            HostState::Absent | HostState::NoParent | HostState::Blocked(_) => None,
        };
        let mut quiet = |_: crate::apply::Step<'_>| {};
        let mut executor = Executor::new(&mut session, &mut quiet);
        let meta = at::meta(layers.lower()).unwrap();
        let mut step = PathStep::new(&mut executor, &change, 1, (layers.lower(), &meta));
        action(&mut step, was)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn apply_without_atomic_exchange_copies_a_file_to_the_trash_and_replaces_it() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        at_path(&layers, FileKind::File, |step, was| {
            step.stage(0o644, Owner::Directory(step.directory))?;
            step.replace_in_two_steps(&was.unwrap())
        })
        .unwrap();
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"box");
        assert_eq!(fs::read(dir.path().join("state/run/trash/1")).unwrap(), b"host");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn apply_without_atomic_exchange_does_not_replace_a_file_that_the_host_changed() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        let result = at_path(&layers, FileKind::File, |step, was| {
            step.stage(0o644, Owner::Directory(step.directory))?;
            fs::write(dir.path().join("lower/x"), "newer").unwrap();
            step.replace_in_two_steps(&was.unwrap())
        });
        assert!(matches!(result, Err(StepError::Conflict(ConflictReason::ChangedMeanwhile))));
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"newer");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn apply_without_atomic_exchange_can_replace_a_file_with_a_directory_and_back() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        at_path(&layers, FileKind::Directory, |step, was| {
            step.stage_dir(Owner::Directory(step.directory))?;
            step.make_way_in_two_steps(&was.unwrap())
        })
        .unwrap();
        assert!(dir.path().join("lower/x").is_dir());
        assert_eq!(fs::read(dir.path().join("state/run/trash/1")).unwrap(), b"host");

        let (dir, layers) = fixture(|x| fs::create_dir(x).unwrap());
        at_path(&layers, FileKind::File, |step, _| {
            step.stage(0o644, Owner::Directory(step.directory))?;
            step.replace_dir_in_two_steps()
        })
        .unwrap();
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"box");
    }

    #[test]
    fn apply_without_atomic_exchange_does_not_replace_a_directory_with_new_files() {
        let (dir, layers) = fixture(|x| fs::create_dir_all(x.join("mine")).unwrap());
        let result = at_path(&layers, FileKind::File, |step, _| {
            step.stage(0o644, Owner::Directory(step.directory))?;
            step.replace_dir_in_two_steps()
        });
        assert!(matches!(result, Err(StepError::Conflict(ConflictReason::DirectoryInUse))));
        assert!(dir.path().join("lower/x/mine").is_dir());
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn apply_undoes_a_replacement_when_the_host_changed_the_file() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        let result = at_path(&layers, FileKind::File, |step, was| {
            let staged = step.stage(0o644, Owner::Directory(step.directory))?;
            // Between the check and the exchange, a moment that a test cannot hit by timing.
            fs::write(dir.path().join("lower/x"), "newer").unwrap();
            let swapped = step.swap(&was.unwrap(), staged);
            step.unstage_if_ours(staged);
            swapped
        });
        assert!(matches!(result, Err(StepError::Conflict(ConflictReason::ChangedMeanwhile))));
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"newer");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn apply_undoes_a_replacement_when_the_trash_is_missing() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        let result = at_path(&layers, FileKind::File, |step, was| {
            let staged = step.stage(0o644, Owner::Directory(step.directory))?;
            fs::remove_dir(dir.path().join("state/run/trash")).unwrap();
            let swapped = step.swap(&was.unwrap(), staged);
            step.unstage_if_ours(staged);
            swapped
        });
        assert!(matches!(result, Err(StepError::Io { .. })), "{result:?}");
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"host");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn apply_undoes_a_removal_when_the_host_changed_the_file() {
        type Remove = fn(&mut PathStep<'_, '_, '_>, &HostFile) -> Result<(), StepError>;
        let both: [Remove; 2] =
            [|step, was| step.move_out(was), |step, was| step.remove_by_copy(was)];
        for remove in both {
            let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
            let result = at_path(&layers, FileKind::File, |step, was| {
                fs::write(dir.path().join("lower/x"), "newer").unwrap();
                remove(step, &was.unwrap())
            });
            assert!(matches!(result, Err(StepError::Conflict(ConflictReason::ChangedMeanwhile))));
            assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"newer");
            assert_eq!(names(&dir.path().join("lower")), ["x"]);
            assert!(names(&dir.path().join("state/run/trash")).is_empty());
        }
    }
}
