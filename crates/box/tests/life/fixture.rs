//! Builds boxes that run until the test closes their input.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_box::{
    BoxEnd, DiskLimiter, ExecChannel, ExecProcess, ExecStreams, HomeMount, LayerSync,
    OverlayLayers, Program, Request, StartError, Supervision, Workspace, embedded,
};
use belljar_model::{Access, Mount, RunId, Template};
use rustix::pipe::PipeFlags;
use tempfile::TempDir;

/// The directory of one test, with the probe.
pub(crate) struct Fixture {
    dir: TempDir,
}

/// A running box whose first program waits for the end of its input.
pub(crate) struct TestBox {
    pub(crate) channel: ExecChannel,
    input: Option<OwnedFd>,
    watcher: Option<JoinHandle<BoxEnd>>,
}

/// The output and the exit status of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl Fixture {
    #[expect(clippy::disallowed_methods, reason = "the test runner sets the directory")]
    pub(crate) fn new() -> Self {
        let parent =
            std::env::var_os("BELLJAR_TEST_ROOT").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("belljar-life-").tempdir_in(parent).unwrap();
        // Under root, the payload has another user id.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let fixture = Self { dir };
        let probe = fixture.path("probe");
        fs::write(&probe, embedded::PROBE).unwrap();
        fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a directory that belongs to this test.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Returns the default request for a box, which each test adapts.
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
            data: None,
            masks: Vec::new(),
            exec_channel: true,
            hidden: vec![self.path("state")],
            net: None,
            terminal: None,
            now: 1,
        }
    }

    pub(crate) fn home(&self, name: &str) -> Option<HomeMount> {
        let (place, path) = belljar_box::open(&self.directory(name)).unwrap();
        Some(HomeMount { place, path })
    }

    /// Returns a workspace that is mounted writable, without an overlay.
    pub(crate) fn scratch(&self, name: &str) -> Option<Workspace> {
        let (place, path) = belljar_box::open(&self.directory(name)).unwrap();
        Some(Workspace { place, path, layers: None, scratch: true })
    }

    /// Returns a workspace with an overlay.
    pub(crate) fn overlay(&self, name: &str) -> Option<Workspace> {
        let layers = self.directory(&format!("{name}.layers"));
        for part in ["upper", "work"] {
            self.directory(&format!("{name}.layers/{part}"));
        }
        let layers = OverlayLayers { dir: layers, sync: LayerSync::Skipped, image: None };
        Some(Workspace { layers: Some(layers), scratch: false, ..self.scratch(name)? })
    }

    /// Returns the output that the first program of the last box has written so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap()
    }

    pub(crate) fn start(&self, request: &Request) -> TestBox {
        self.try_start(request).unwrap()
    }

    pub(crate) fn try_start(&self, request: &Request) -> Result<TestBox, StartError> {
        self.try_start_with(request, None)
    }

    /// Starts a box whose disk limit is enforced by this limiter.
    pub(crate) fn start_limited(&self, request: &Request, limiter: DiskLimiter) -> TestBox {
        self.try_start_with(request, Some(limiter)).unwrap()
    }

    fn try_start_with(
        &self,
        request: &Request,
        limiter: Option<DiskLimiter>,
    ) -> Result<TestBox, StartError> {
        let disk = limiter.map(|limiter| (self.path(""), limiter));
        let (mut running, ()) = belljar_box::start(request, |_| ())?;
        let channel = running.take_exec_channel().expect("the request asks for a channel");
        assert!(running.take_exec_channel().is_none(), "the channel can be taken only once");
        let (theirs, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let output = File::create(self.path("output")).unwrap();
        let watcher = std::thread::spawn(move || {
            let supervision = Supervision {
                input: theirs.as_fd(),
                output: output.as_fd(),
                error: output.as_fd(),
                filter: None,
                disk,
                stop: None,
            };
            let (end, teardown) = running.supervise(supervision).unwrap();
            drop(teardown);
            end
        });
        Ok(TestBox { channel, input: Some(input), watcher: Some(watcher) })
    }

    /// Runs a shell script outside any box.
    #[expect(clippy::disallowed_methods, reason = "the control is a program outside a box")]
    pub(crate) fn outside(&self, directory: &Path, script: &str) -> Output {
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-c", script]).current_dir(directory).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(done.stdout), text(done.stderr));
        Output { out, err, exit: done.status.code(), signal: None }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        make_accessible(self.dir.path());
    }
}

/// Makes directories of overlayfs and boxes accessible, so that a plain user can remove them.
fn make_accessible(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).ok();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        make_accessible(&entry.path());
    }
}

impl TestBox {
    /// Starts a process in the box. Panics if it cannot start.
    pub(crate) fn spawn(&self, argv: &[&str]) -> ExecProcess {
        self.channel.exec(&program(argv)).unwrap()
    }

    /// Runs a process in the box without input until its end.
    pub(crate) fn run(&self, argv: &[&str]) -> Output {
        output_of(self.spawn(argv))
    }

    /// Runs a shell script in the box. Returns whether it succeeded, and its combined output.
    pub(crate) fn shell(&self, script: &str) -> (bool, String) {
        let output = self.run(&["sh", "-c", &format!("exec 2>&1\n{script}")]);
        (output.exit == Some(0), output.out.trim_end().to_owned())
    }

    /// Waits until the box ends, without ending its input.
    pub(crate) fn wait(&mut self) -> BoxEnd {
        self.watcher.take().unwrap().join().unwrap()
    }

    /// Ends the first program, and with it the box.
    pub(crate) fn close(&mut self) -> BoxEnd {
        self.input.take();
        self.watcher.take().unwrap().join().unwrap()
    }
}

impl Drop for TestBox {
    fn drop(&mut self) {
        self.input.take();
        if let Some(watcher) = self.watcher.take() {
            watcher.join().ok(); // the failure of the test explains the cause
        }
    }
}

pub(crate) fn program(argv: &[&str]) -> Program {
    Program { argv: argv.iter().map(Into::into).collect(), ..Program::default() }
}

/// Reads the output of a process with pipes until its end, without input.
pub(crate) fn output_of(mut process: ExecProcess) -> Output {
    let Some(ExecStreams::Pipes { input, output, error }) = process.streams.take() else {
        panic!("no pipes")
    };
    drop(input);
    let errors = std::thread::spawn(move || all(error));
    let out = all(output);
    let ended = process.wait().unwrap();
    assert!(process.is_over());
    Output { out, err: errors.join().unwrap(), exit: ended.exit, signal: ended.signal }
}

pub(crate) fn all(from: OwnedFd) -> String {
    let mut bytes = Vec::new();
    File::from(from).read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads the next line of a process's output.
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

/// Waits up to 60 s until a condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a random number for the run id, because boxes of parallel tests must not share a cgroup.
fn random() -> u32 {
    let hash = RandomState::new().hash_one(std::process::id());
    u32::try_from(hash >> 32).unwrap()
}
