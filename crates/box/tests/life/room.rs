//! A box that waits for its guests.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_box::{
    Door, Ends, Finished, Guest, Kept, Program, Request, StartError, Supervision, Workspace,
    embedded,
};
use belljar_model::{Access, Mount, RunId, Template};
use rustix::pipe::PipeFlags;
use tempfile::TempDir;

/// Where the probe is, and what the boxes of one test have.
pub(crate) struct Room {
    dir: TempDir,
}

/// A box whose first program waits for the end of its input.
pub(crate) struct Standing {
    pub(crate) door: Door,
    input: Option<OwnedFd>,
    watcher: Option<JoinHandle<Finished>>,
}

/// What a guest said and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl Room {
    #[expect(clippy::disallowed_methods, reason = "the runner says where labs are made")]
    pub(crate) fn new() -> Self {
        let parent =
            std::env::var_os("BELLJAR_TEST_ROOT").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("belljar-life-").tempdir_in(parent).unwrap();
        // Under root the payload has another uid.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let room = Self { dir };
        let probe = room.path("probe");
        fs::write(&probe, embedded::PROBE).unwrap();
        fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
        room
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a directory of the test's own.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// What every box of these tests is; the caller changes what it is about.
    pub(crate) fn request(&self) -> Request {
        let mut template = Template::default();
        let probe = Mount::new(self.path("probe"), "/probe".into(), Access::ReadOnly).unwrap();
        template.mounts.push(probe);
        Request {
            id: RunId::new(random().into(), random()),
            random: random(),
            template,
            argv: vec!["cat".into()],
            program: None,
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("FROM".into(), "the box".into())],
            workspace: None,
            home: None,
            files: Vec::new(),
            masks: Vec::new(),
            door: true,
            hidden: vec![self.path("state")],
            net: None,
            terminal: None,
            now: 1,
        }
    }

    pub(crate) fn kept(&self, name: &str) -> Option<Kept> {
        let (place, path) = belljar_box::open(&self.directory(name)).unwrap();
        Some(Kept { place, path })
    }

    /// A workspace that is written to as it is.
    pub(crate) fn scratch(&self, name: &str) -> Option<Workspace> {
        let (place, path) = belljar_box::open(&self.directory(name)).unwrap();
        Some(Workspace { place, path, layers: None, scratch: true })
    }

    /// A workspace whose changes lie in a layer.
    pub(crate) fn overlay(&self, name: &str) -> Option<Workspace> {
        let layers = self.directory(&format!("{name}.layers"));
        for part in ["upper", "work"] {
            self.directory(&format!("{name}.layers/{part}"));
        }
        Some(Workspace { layers: Some(layers), scratch: false, ..self.scratch(name)? })
    }

    /// What the first program of the last box has said so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap()
    }

    pub(crate) fn start(&self, request: &Request) -> Standing {
        self.try_start(request).unwrap()
    }

    pub(crate) fn try_start(&self, request: &Request) -> Result<Standing, StartError> {
        let (mut running, ()) = belljar_box::start(request, |_| ())?;
        let door = running.door().expect("it was asked for");
        assert!(running.door().is_none(), "once");
        let (theirs, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let output = File::create(self.path("output")).unwrap();
        let watcher = std::thread::spawn(move || {
            let supervision = Supervision {
                input: theirs.as_fd(),
                output: output.as_fd(),
                error: output.as_fd(),
                guard: None,
                disk: None,
                stop: None,
            };
            let (finished, remains) = running.supervise(supervision).unwrap();
            drop(remains);
            finished
        });
        Ok(Standing { door, input: Some(input), watcher: Some(watcher) })
    }

    /// A shell outside any box.
    #[expect(clippy::disallowed_methods, reason = "the control is a program outside a box")]
    pub(crate) fn outside(&self, directory: &Path, script: &str) -> Said {
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-c", script]).current_dir(directory).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(done.stdout), text(done.stderr));
        Said { out, err, exit: done.status.code(), signal: None }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        open_up(self.dir.path());
    }
}

/// Lets a plain user remove what overlayfs and boxes have closed.
fn open_up(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).ok();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        open_up(&entry.path());
    }
}

impl Standing {
    /// Starts a guest that must start.
    pub(crate) fn guest(&self, argv: &[&str]) -> Guest {
        self.door.exec(&program(argv)).unwrap()
    }

    /// Runs a guest to its end, without input.
    pub(crate) fn run(&self, argv: &[&str]) -> Said {
        said(self.guest(argv))
    }

    /// Runs a shell as guest; what it said, both streams, and whether it succeeded.
    pub(crate) fn shell(&self, script: &str) -> (bool, String) {
        let said = self.run(&["sh", "-c", &format!("exec 2>&1\n{script}")]);
        (said.exit == Some(0), said.out.trim_end().to_owned())
    }

    /// Lets the first program end, and with it the box.
    pub(crate) fn close(&mut self) -> Finished {
        self.input.take();
        self.watcher.take().unwrap().join().unwrap()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.input.take();
        if let Some(watcher) = self.watcher.take() {
            watcher.join().ok(); // the test says what went wrong
        }
    }
}

pub(crate) fn program(argv: &[&str]) -> Program {
    Program { argv: argv.iter().map(Into::into).collect(), ..Program::default() }
}

/// Hears a guest with pipes out, without input.
pub(crate) fn said(mut guest: Guest) -> Said {
    let Some(Ends::Pipes { input, output, error }) = guest.ends.take() else { panic!("no pipes") };
    drop(input);
    let errors = std::thread::spawn(move || all(error));
    let out = all(output);
    let ended = guest.wait().unwrap();
    assert!(guest.is_over());
    Said { out, err: errors.join().unwrap(), exit: ended.exit, signal: ended.signal }
}

pub(crate) fn all(from: OwnedFd) -> String {
    let mut bytes = Vec::new();
    File::from(from).read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The next line of a guest.
pub(crate) fn line(from: &mut File) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).unwrap() > 0 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

pub(crate) fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    File::create(path).unwrap().write_all(content.as_bytes()).unwrap();
}

/// Waits until something is so; long, because a machine may be slow.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number that nobody else picked: boxes of tests that run at once must not share a cgroup.
fn random() -> u32 {
    let hash = RandomState::new().hash_one(std::process::id());
    u32::try_from(hash >> 32).unwrap()
}
