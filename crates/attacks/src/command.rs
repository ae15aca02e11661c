//! Runs programs with a deadline. An attack that hangs has failed.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::trial::{During, Step, Verdict, fault};

/// The timeout of a program; long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// The maximum time after the end of a program until its output is closed. Later, a process has
/// survived.
const GRACE: Duration = Duration::from_secs(30);
/// The maximum number of output bytes of a program that are kept.
const KEEP: u64 = 4 << 20;

/// A command under construction, which an attack runs.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    input: Input,
}

/// The source of a program's standard input.
#[derive(Debug, Clone)]
enum Input {
    Bytes(Vec<u8>),
    Descriptor(Arc<OwnedFd>),
}

/// The exit code and output of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    until: Instant,
}

impl Program {
    pub(crate) fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            input: Input::Bytes(Vec::new()),
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<A: Into<OsString>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    pub(crate) fn cwd(mut self, cwd: &Path) -> Self {
        self.cwd = Some(cwd.to_owned());
        self
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Bytes(input.into());
        self
    }

    /// Uses a descriptor as the standard input of the program.
    pub(crate) fn input_from(mut self, descriptor: OwnedFd) -> Self {
        self.input = Input::Descriptor(Arc::new(descriptor));
        self
    }

    /// Lets another program start this one. The starter gets `args`, then this program's command line.
    pub(crate) fn through(mut self, starter: &Path, args: &[&str]) -> Self {
        let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
        all.push(std::mem::replace(&mut self.program, starter.to_owned()).into());
        all.append(&mut self.args);
        self.args = all;
        self
    }

    /// Runs the program and waits until it ends.
    pub(crate) fn run(self) -> Step<Ended> {
        self.start()?.end()
    }

    #[expect(clippy::disallowed_methods, reason = "attacks start the binary under attack")]
    pub(crate) fn start(self) -> Step<Process> {
        let name = self.program.display().to_string();
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(self.env);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(match &self.input {
            Input::Bytes(_) => Stdio::piped(),
            Input::Descriptor(it) => it.try_clone().during("share a descriptor")?.into(),
        });
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        let mut child = command.spawn().during(format_args!("start {name}"))?;
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        if let (Some(mut stdin), Input::Bytes(input)) = (child.stdin.take(), self.input) {
            // A program that does not read its input blocks this thread; no other code waits for it.
            thread::spawn(move || stdin.write_all(&input).unwrap_or_default());
        }
        Ok(Process { child, name, stdout, stderr, until: Instant::now() + DEADLINE })
    }
}

/// Reads a stream to its end in a thread, and keeps the first [`KEEP`] bytes.
fn collect(source: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut source) = source {
            let beginning = source.by_ref().take(KEEP).read_to_end(&mut kept);
            let rest = io::copy(&mut source, &mut io::sink());
            if let Err(error) = beginning.and(rest.map(|_| 0)) {
                kept.extend_from_slice(format!("[read: {error}]").as_bytes());
            }
        }
        sender.send(kept).unwrap_or_default(); // after a deadline, the receiver is closed
    });
    receiver
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the program with `SIGKILL`, like the out-of-memory killer.
    pub(crate) fn kill(&mut self) -> Step {
        self.child.kill().during(format_args!("kill {}", self.name))
    }

    /// Waits until the program ends, and returns its exit code and output.
    ///
    /// The trial ends if the program hangs, or if another process keeps its output open.
    pub(crate) fn end(mut self) -> Step<Ended> {
        let status = self.wait()?;
        let survivor = |_| Verdict::Broken {
            what: format!("{} has ended, but another process keeps its output open", self.name),
        };
        let stdout = self.stdout.recv_timeout(GRACE).map_err(survivor)?;
        let stderr = self.stderr.recv_timeout(GRACE).map_err(survivor)?;
        Ok(Ended { code: status.code(), stdout, stderr })
    }

    fn wait(&mut self) -> Step<ExitStatus> {
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(status) = self.child.try_wait().during("wait for a program")? {
                return Ok(status);
            }
            if Instant::now() > self.until {
                self.kill()?;
                self.child.wait().during("wait for a program")?;
                return Err(Verdict::Broken {
                    what: format!("{} did not end before its deadline", self.name),
                });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            // A trial that ended early must not leave its program running.
            self.child.kill().and_then(|()| self.child.wait().map(|_| ())).unwrap_or_default();
        }
    }
}

impl Ended {
    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns the output line of the probe, or a description of its failure.
    pub(crate) fn line(&self) -> String {
        let text = self.stdout_text();
        match text.trim_end() {
            "" => format!("no output, code {:?}: {}", self.code, self.stderr_text().trim_end()),
            line => line.to_owned(),
        }
    }

    /// Returns the probe's results of a batch, one per operation and in the same order.
    pub(crate) fn answers(&self, acts: &[&str]) -> Step<Vec<String>> {
        let text = self.stdout_text();
        let answers: Vec<String> = acts
            .iter()
            .zip(text.lines())
            .map_while(|(act, line)| {
                line.strip_prefix(act)?.strip_prefix(" => ").map(str::to_owned)
            })
            .collect();
        if answers.len() == acts.len() {
            return Ok(answers);
        }
        let missing = acts.get(answers.len()).unwrap_or(&"");
        let stderr = self.stderr_text();
        Err(fault(format_args!("no result for `{missing}` (code {:?}): {text}{stderr}", self.code)))
    }
}
