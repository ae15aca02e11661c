//! One path of the user's directory, and what can be done there in one step.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;

use super::journal::{self, Opened};
use super::stage::{self, Owner};
use super::trash;
use super::work::{StepError, Work};
use crate::at;
use crate::change::Change;
use crate::host::Here;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;
use crate::plan::{ConflictReason, LeftOut};

pub(super) struct Place<'p, 'w, 'l> {
    work: &'p mut Work<'w, 'l>,
    change: &'p Change,
    path: &'p RelPath,
    number: u64,
    parent: BorrowedFd<'p>,
    directory: &'p Meta,
    name: &'p [u8],
    temporary: Vec<u8>,
}

const MEANWHILE: StepError = StepError::Conflict(ConflictReason::ChangedMeanwhile);

impl<'p, 'w, 'l> Place<'p, 'w, 'l> {
    pub(super) fn new(
        work: &'p mut Work<'w, 'l>,
        change: &'p Change,
        number: u64,
        (parent, directory): (BorrowedFd<'p>, &'p Meta),
    ) -> Self {
        let temporary = journal::temporary_name(work.takeover.layers, number);
        let (path, name) = (&change.path, change.path.name());
        Self { work, path, change, number, parent, directory, name, temporary }
    }

    pub(super) fn make_dir(mut self) -> Result<(), StepError> {
        self.stage_dir(Owner::Directory(self.directory))?;
        match self.move_in() {
            Err(error) => {
                self.unstage_dir();
                // Somebody else made the directory: that is as well.
                let is_dir = self.stat()?.is_some_and(|meta| meta.kind == FileKind::Directory);
                if is_dir { Ok(()) } else { Err(error) }
            }
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn replace_with_dir(mut self, was: &Here) -> Result<(), StepError> {
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

    pub(super) fn replace(mut self, was: &Here, mode: u32) -> Result<(), StepError> {
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

    pub(super) fn set_mode(self, was: &Here, mode: u32) -> Result<(), StepError> {
        let io = StepError::io("change the mode");
        let (handle, meta) = self.handle(self.name)?;
        let same = if meta.kind == FileKind::Directory {
            meta.inode() == (was.identity.dev, was.identity.ino)
        } else {
            meta.identity.same_content(&was.identity)
        };
        if meta.kind != was.kind || !same || meta.mode != was.mode || meta.is_shared() {
            return Err(MEANWHILE);
        }
        // The host's own setgid and sticky bits stay on a directory, and nothing special on a file.
        let kept = if meta.kind == FileKind::Directory { meta.mode & 0o7000 } else { 0 };
        self.work.step(self.path);
        at::chmod(&handle, kept | (mode & 0o777)).map_err(io)
    }

    pub(super) fn remove(mut self, was: &Here) -> Result<(), StepError> {
        self.expect(was)?;
        self.move_out(was)
    }

    /// Moves the file to the trash, and back if it is not the expected one.
    fn move_out(&mut self, was: &Here) -> Result<(), StepError> {
        let io = StepError::io("move the file to the trash");
        let place = self.number.to_string().into_bytes();
        self.work.step(self.path);
        let trash = self.work.takeover.trash.as_fd();
        match at::rename_new(self.parent, self.name, trash, &place) {
            Ok(()) => {
                let out = at::stat(trash, &place).map_err(&io)?;
                if out.is_some_and(|out| is_expected(&out, was)) {
                    return Ok(());
                }
                self.work.step(self.path);
                let trash = self.work.takeover.trash.as_fd();
                match at::rename_new(trash, &place, self.parent, self.name) {
                    Ok(()) => Err(MEANWHILE),
                    // The host has put another file there already; the earlier one is kept.
                    Err(_) => {
                        let number = self.number;
                        Err(StepError::Conflict(ConflictReason::KeptInTrash { number }))
                    }
                }
            }
            Err(error) if trash::is_other_file_system(&error) => self.remove_by_copy(was),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MEANWHILE),
            Err(source) => Err(io(source)),
        }
    }

    pub(super) fn remove_dir(self) -> Result<(), StepError> {
        self.work.step(self.path);
        match at::rmdir(self.parent, self.name) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Err(StepError::LeftOut(LeftOut::NotEmpty))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(MEANWHILE),
            done => done.map_err(StepError::io("remove the directory")),
        }
    }

    pub(super) fn replace_dir(mut self) -> Result<(), StepError> {
        let io = StepError::io("replace the directory");
        let mode = self.change.new.as_ref().map_or(0o600, |new| new.mode);
        let staged = self.stage(mode, Owner::Directory(self.directory))?;
        self.work.step(self.path);
        match at::exchange(self.parent, &self.temporary, self.name) {
            Err(error) if is_unsupported(&error) => return self.replace_dir_in_two_steps(),
            Err(error) => {
                self.unstage();
                let gone = error.kind() == io::ErrorKind::NotFound;
                return Err(if gone { MEANWHILE } else { io(error) });
            }
            Ok(()) => {}
        }
        self.work.step(self.path);
        match at::rmdir(self.parent, &self.temporary) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.work.step(self.path);
                at::exchange(self.parent, &self.temporary, self.name).map_err(&io)?;
                self.unstage_if_ours(staged);
                match Errno::from_io_error(&error) {
                    Some(Errno::NOTEMPTY | Errno::EXIST) => {
                        Err(StepError::Conflict(ConflictReason::DirectoryInUse))
                    }
                    Some(Errno::NOTDIR) => Err(MEANWHILE),
                    _ => Err(io(error)),
                }
            }
        }
    }

    /// Whether the user still has what the plan saw.
    fn expect(&self, was: &Here) -> Result<Meta, StepError> {
        self.work.expect(was, self.parent, self.name)
    }

    fn stat(&self) -> Result<Option<Meta>, StepError> {
        at::stat(self.parent, self.name).map_err(StepError::io("look at the file"))
    }

    fn handle(&self, name: &[u8]) -> Result<(std::os::fd::OwnedFd, Meta), StepError> {
        at::handle(self.parent, name).map_err(meanwhile_or("look at the file", Errno::NOENT))
    }

    fn stage(&mut self, mode: u32, owner: Owner<'_>) -> Result<(u64, u64), StepError> {
        if let Some(staged) = self.work.ahead.staged(self.number) {
            return staged;
        }
        self.work.step(self.path);
        let layers = self.work.takeover.layers;
        stage::leaf(layers, (self.parent, &self.temporary), self.change, (mode, owner))
    }

    fn stage_dir(&mut self, owner: Owner<'_>) -> Result<(), StepError> {
        let mode = self.change.new.as_ref().map_or(0o755, |new| new.mode & 0o777);
        if mode & 0o700 != 0o700 {
            let meanwhile = mode | 0o700;
            self.work.note_opened(Opened { path: self.path.clone(), mode, meanwhile })?;
        }
        self.work.step(self.path);
        stage::directory(self.parent, &self.temporary, mode | 0o700, owner)
    }

    /// Gives the staged file its name, where nothing may be yet.
    fn move_in(&mut self) -> Result<(), StepError> {
        self.work.step(self.path);
        let moved = at::rename_new(self.parent, &self.temporary, self.parent, self.name);
        moved.map_err(meanwhile_or("give the new file its name", Errno::EXIST))
    }

    /// Exchanges the staged file with the user's, makes sure that it was the expected one that came
    /// out, and moves that to the trash. If it was another, or the trash cannot take it, it goes back.
    fn swap(&mut self, was: &Here, staged: (u64, u64)) -> Result<(), StepError> {
        let io = StepError::io("exchange the file");
        self.work.step(self.path);
        at::exchange(self.parent, &self.temporary, self.name)
            .map_err(meanwhile_or("exchange the file", Errno::NOENT))?;
        let Err(why) = self.put_away_expected(was, &io)? else { return Ok(()) };
        self.work.step(self.path);
        at::exchange(self.parent, &self.temporary, self.name).map_err(&io)?;
        let back = at::stat(self.parent, &self.temporary).map_err(&io)?;
        if back.is_some_and(|back| back.inode() == staged) {
            return Err(why);
        }
        // Between the two exchanges somebody replaced our file: theirs is the newest and belongs
        // there, and what we had taken out before goes to the trash.
        self.work.step(self.path);
        at::exchange(self.parent, &self.temporary, self.name).map_err(&io)?;
        let number = self.number;
        self.put_away()?;
        Err(StepError::Conflict(ConflictReason::KeptInTrash { number }))
    }

    /// Moves what came out to the trash if it is the expected file. The inner error says why it goes
    /// back; the outer one that it could not be looked at.
    fn put_away_expected(
        &mut self,
        was: &Here,
        io: impl Fn(io::Error) -> StepError,
    ) -> Result<Result<(), StepError>, StepError> {
        let out = at::stat(self.parent, &self.temporary).map_err(io)?;
        match out.is_some_and(|out| is_expected(&out, was)) {
            true => Ok(self.put_away()),
            false => Ok(Err(MEANWHILE)),
        }
    }

    /// Moves what came out to the trash.
    fn put_away(&mut self) -> Result<(), StepError> {
        self.work.step(self.path);
        let trash = self.work.takeover.trash.as_fd();
        trash::put(trash, self.number, self.parent, &self.temporary)
            .map_err(StepError::io("move the old file to the trash"))
    }

    fn remove_by_copy(&mut self, was: &Here) -> Result<(), StepError> {
        let io = StepError::io("move the file to the trash");
        self.work.step(self.path);
        match at::rename_new(self.parent, self.name, self.parent, &self.temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(MEANWHILE),
            moved => moved.map_err(&io)?,
        }
        let Err(why) = self.put_away_expected(was, &io)? else { return Ok(()) };
        self.work.step(self.path);
        match at::rename_new(self.parent, &self.temporary, self.parent, self.name) {
            Ok(()) => Err(why),
            // The host has put another file there already. If the trash does not take the earlier
            // one either, it stays where it is and the next apply finds it in the log.
            Err(_) => {
                self.put_away()?;
                Err(StepError::Conflict(ConflictReason::KeptInTrash { number: self.number }))
            }
        }
    }

    /// For file systems without an exchange: a copy to the trash first, then a rename over it. A
    /// writer that comes between the last look and the rename loses to us, but not to the trash.
    fn replace_in_two_steps(&mut self, was: &Here) -> Result<(), StepError> {
        let io = StepError::io("replace the file");
        self.work.step(self.path);
        let trash = self.work.takeover.trash.as_fd();
        trash::keep_copy(trash, self.number, self.parent, self.name).map_err(&io)?;
        if let Err(error) = self.expect(was) {
            self.unstage();
            return Err(error);
        }
        self.work.step(self.path);
        at::rename(self.parent, &self.temporary, self.parent, self.name).map_err(io)
    }

    /// As before, for a directory in place of a file: the file is taken out first.
    fn make_way_in_two_steps(&mut self, was: &Here) -> Result<(), StepError> {
        self.expect(was)?;
        self.work.step(self.path);
        let trash = self.work.takeover.trash.as_fd();
        trash::put(trash, self.number, self.parent, self.name)
            .map_err(StepError::io("move the old file to the trash"))?;
        let number = self.number;
        self.move_in().map_err(|_| StepError::Conflict(ConflictReason::KeptInTrash { number }))
    }

    fn replace_dir_in_two_steps(&mut self) -> Result<(), StepError> {
        self.work.step(self.path);
        if let Err(error) = at::rmdir(self.parent, self.name) {
            self.unstage();
            return Err(match Errno::from_io_error(&error) {
                Some(Errno::NOTEMPTY | Errno::EXIST) => {
                    StepError::Conflict(ConflictReason::DirectoryInUse)
                }
                _ => StepError::Io { doing: "replace the directory", source: error },
            });
        }
        self.move_in()
    }

    /// Removes the staged file, which the upper layer still has. If that fails, the next apply
    /// finds it in the log.
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

/// The one error that means that the host was faster, and all others.
fn meanwhile_or(doing: &'static str, sign: Errno) -> impl Fn(io::Error) -> StepError {
    move |source| {
        if Errno::from_io_error(&source) == Some(sign) {
            MEANWHILE
        } else {
            StepError::Io { doing, source }
        }
    }
}

fn is_expected(out: &Meta, was: &Here) -> bool {
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
    use crate::apply::Takeover;
    use crate::change::{Changes, Kind, Side, Target};
    use crate::content::{Content, ContentHash};
    use crate::host::Seen;
    use crate::layers::{Layers, Places};

    /// A workspace where `x` is as `host` left it, and a run whose box left a file or nothing there.
    fn fixture(host: impl Fn(&Path)) -> (tempfile::TempDir, Layers) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["lower", "state/run/upper"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        host(&at("lower/x"));
        fs::write(at("state/run/upper/x"), "box").unwrap();
        let (workspace, state, run) = (at("lower"), at("state"), at("state/run"));
        let places = Places { workspace: &workspace, state: &state, run: &run };
        let layers = Layers::open(&places).unwrap();
        (dir, layers)
    }

    fn change(kind: FileKind) -> Change {
        let hash = Some(ContentHash::of(b"box"));
        let content = Some(Content::Text);
        let target: Option<Target> = None;
        Change {
            path: RelPath::new("x").unwrap(),
            kind: Kind::Modified,
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
        }
    }

    /// Does `act` at `x`, as on a file system that has no exchange.
    fn at_place(
        layers: &Layers,
        kind: FileKind,
        act: impl FnOnce(&mut Place<'_, '_, '_>, Option<Here>) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        let change = change(kind);
        let mut takeover = Takeover::begin(layers).unwrap();
        let clock = belljar_model::Clock { secs: 0, nanos: 0 };
        let changes = Changes::new(clock, vec![change.clone()], Vec::new());
        let was = match takeover.observe(&changes).unwrap().seen.remove(0) {
            Seen::Here(here) => Some(here),
            Seen::Absent | Seen::NoParent | Seen::Blocked(_) => None,
        };
        let mut quiet = |_: crate::apply::Step<'_>| {};
        let mut work = Work::new(&mut takeover, &mut quiet);
        let meta = at::meta(layers.lower()).unwrap();
        let mut place = Place::new(&mut work, &change, 1, (layers.lower(), &meta));
        act(&mut place, was)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn without_an_exchange_a_file_is_copied_to_the_trash_and_replaced() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        at_place(&layers, FileKind::File, |place, was| {
            place.stage(0o644, Owner::Directory(place.directory))?;
            place.replace_in_two_steps(&was.unwrap())
        })
        .unwrap();
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"box");
        assert_eq!(fs::read(dir.path().join("state/run/trash/1")).unwrap(), b"host");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn without_an_exchange_a_file_that_changed_meanwhile_stays() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        let result = at_place(&layers, FileKind::File, |place, was| {
            place.stage(0o644, Owner::Directory(place.directory))?;
            fs::write(dir.path().join("lower/x"), "newer").unwrap();
            place.replace_in_two_steps(&was.unwrap())
        });
        assert!(matches!(result, Err(StepError::Conflict(ConflictReason::ChangedMeanwhile))));
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"newer");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn without_an_exchange_a_file_makes_way_for_a_directory_and_a_directory_for_a_file() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        at_place(&layers, FileKind::Directory, |place, was| {
            place.stage_dir(Owner::Directory(place.directory))?;
            place.make_way_in_two_steps(&was.unwrap())
        })
        .unwrap();
        assert!(dir.path().join("lower/x").is_dir());
        assert_eq!(fs::read(dir.path().join("state/run/trash/1")).unwrap(), b"host");

        let (dir, layers) = fixture(|x| fs::create_dir(x).unwrap());
        at_place(&layers, FileKind::File, |place, _| {
            place.stage(0o644, Owner::Directory(place.directory))?;
            place.replace_dir_in_two_steps()
        })
        .unwrap();
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"box");
    }

    #[test]
    fn without_an_exchange_a_directory_in_use_stays() {
        let (dir, layers) = fixture(|x| fs::create_dir_all(x.join("mine")).unwrap());
        let result = at_place(&layers, FileKind::File, |place, _| {
            place.stage(0o644, Owner::Directory(place.directory))?;
            place.replace_dir_in_two_steps()
        });
        assert!(matches!(result, Err(StepError::Conflict(ConflictReason::DirectoryInUse))));
        assert!(dir.path().join("lower/x/mine").is_dir());
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn what_came_out_unexpectedly_goes_back() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        let result = at_place(&layers, FileKind::File, |place, was| {
            let staged = place.stage(0o644, Owner::Directory(place.directory))?;
            // After the last look and before the exchange, which no test could time.
            fs::write(dir.path().join("lower/x"), "newer").unwrap();
            let swapped = place.swap(&was.unwrap(), staged);
            place.unstage_if_ours(staged);
            swapped
        });
        assert!(matches!(result, Err(StepError::Conflict(ConflictReason::ChangedMeanwhile))));
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"newer");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn what_the_trash_cannot_take_goes_back() {
        let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
        let result = at_place(&layers, FileKind::File, |place, was| {
            let staged = place.stage(0o644, Owner::Directory(place.directory))?;
            fs::remove_dir(dir.path().join("state/run/trash")).unwrap();
            let swapped = place.swap(&was.unwrap(), staged);
            place.unstage_if_ours(staged);
            swapped
        });
        assert!(matches!(result, Err(StepError::Io { .. })), "{result:?}");
        assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"host");
        assert_eq!(names(&dir.path().join("lower")), ["x"]);
    }

    #[test]
    fn what_was_removed_unexpectedly_goes_back() {
        type Remove = fn(&mut Place<'_, '_, '_>, &Here) -> Result<(), StepError>;
        let both: [Remove; 2] =
            [|place, was| place.move_out(was), |place, was| place.remove_by_copy(was)];
        for remove in both {
            let (dir, layers) = fixture(|x| fs::write(x, "host").unwrap());
            let result = at_place(&layers, FileKind::File, |place, was| {
                fs::write(dir.path().join("lower/x"), "newer").unwrap();
                remove(place, &was.unwrap())
            });
            assert!(matches!(result, Err(StepError::Conflict(ConflictReason::ChangedMeanwhile))));
            assert_eq!(fs::read(dir.path().join("lower/x")).unwrap(), b"newer");
            assert_eq!(names(&dir.path().join("lower")), ["x"]);
            assert!(names(&dir.path().join("state/run/trash")).is_empty());
        }
    }
}
