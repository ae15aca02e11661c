//! Starts programs with a deadline, so that a hanging program fails its test.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::{DEADLINE, planted};

/// A command to start, with an empty environment.
#[derive(Debug)]
pub struct Program {
    command: Command,
    /// Standard input. With `None` the program gets a pipe that stays open.
    input: Option<Vec<u8>>,
}

/// A running program. Drop kills it.
#[derive(Debug)]
pub struct Live {
    child: Owned,
    stdout: Arc<Collected>,
    stderr: Arc<Collected>,
    writer: Option<JoinHandle<()>>,
    until: Instant,
}

/// The exit status and output of a program.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Program {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.env_clear();
        Self { command, input: Some(Vec::new()) }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the standard input of the program, which is empty by default.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Keeps the standard input of the program open while the program runs.
    pub fn open_input(mut self) -> Self {
        self.input = None;
        self
    }

    /// Lets another program, such as `strace`, start this one.
    pub fn through<S: AsRef<OsStr>>(self, words: impl IntoIterator<Item = S>) -> Self {
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().expect("the name of a program"));
        command.args(words).env_clear().arg(self.command.get_program());
        command.args(self.command.get_args());
        let set = self.command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.envs(set);
        if let Some(dir) = self.command.get_current_dir() {
            command.current_dir(dir);
        }
        Self { command, input: self.input }
    }

    pub(crate) fn command(self) -> Command {
        self.command
    }

    #[track_caller]
    pub fn start(mut self) -> Live {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = self.command.spawn();
        let mut child =
            started.unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.command));
        let stdout = Collected::read(child.stdout.take().expect("a pipe"));
        let stderr = Collected::read(child.stderr.take().expect("a pipe"));
        let writer = self.input.map(|bytes| {
            planted::plant_input(self.command.get_args(), &bytes);
            let mut pipe = child.stdin.take().expect("a pipe");
            // A program can end before it has read all input.
            std::thread::spawn(move || pipe.write_all(&bytes).unwrap_or_default())
        });
        Live { child: Owned(child), stdout, stderr, writer, until: Instant::now() + DEADLINE }
    }

    #[track_caller]
    pub fn run(self) -> Ended {
        self.start().wait()
    }

    /// Runs the program, checks that it exits with 0, and returns its standard output without the
    /// last newline. Panics unless it exits with 0.
    #[track_caller]
    pub fn succeed(self) -> String {
        self.run().expect(0)
    }
}

impl Live {
    /// Sets the time that the program has from now on, for a program that takes longer than others.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.until = Instant::now() + time;
        self
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.0.id()).expect("a pid")
    }

    pub fn signal(&self, signal: Signal) {
        // The child is not reaped before `wait`, so its pid is not reused.
        rustix::process::kill_process(self.process(), signal)
            .expect("cannot signal a child process");
    }

    /// Waits until the standard output of the program contains `text`.
    #[track_caller]
    pub fn wait_for_output(&self, text: &str) {
        let found = self.stdout.wait_for(self.until, text);
        assert!(found, "no {text:?} in {:?}, {:?}", self.stdout.text(), self.stderr.text());
    }

    /// Waits until the standard error of the program contains `text`. Returns all of its stderr so
    /// far.
    #[track_caller]
    pub fn wait_for_error_output(&self, text: &str) -> String {
        let found = self.stderr.wait_for(self.until, text);
        assert!(found, "no {text:?} in {:?}, {:?}", self.stderr.text(), self.stdout.text());
        self.stderr.text()
    }

    /// Returns the standard output that the program has written so far.
    pub fn output(&self) -> String {
        self.stdout.text()
    }

    /// Returns the standard error that the program has written so far.
    pub fn error_output(&self) -> String {
        self.stderr.text()
    }

    /// Returns whether the program has ended.
    pub fn ended(&mut self) -> bool {
        self.child.0.try_wait().expect("a child process").is_some()
    }

    /// Waits until the program ends and no process has its output open.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        drop(self.child.0.stdin.take());
        if !self.wait_for_exit() {
            self.child.0.kill().expect("a child process");
            let (out, err) = (self.stdout.text(), self.stderr.text());
            panic!("program does not end in time; stdout: {out:?}, stderr: {err:?}");
        }
        let status = self.child.0.wait().expect("a child process");
        let closed = |stream: &Collected| stream.wait_until_closed(self.until);
        if let (true, true) = (closed(&self.stdout), closed(&self.stderr)) {
            if let Some(writer) = self.writer.take() {
                writer.join().expect("the writer does not panic");
            }
            return Ended { status, stdout: self.stdout.take(), stderr: self.stderr.take() };
        }
        panic!("program ended with {status}, but another process still has its output open");
    }

    fn process(&self) -> Pid {
        Pid::from_child(&self.child.0)
    }

    fn wait_for_exit(&self) -> bool {
        let pidfd = rustix::process::pidfd_open(self.process(), PidfdFlags::empty());
        let pidfd = pidfd.expect("a child process");
        let left = self.until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a short time");
        let mut polled = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&timeout)).expect("cannot poll") > 0
    }
}

/// A child process that is killed on drop.
#[derive(Debug)]
pub(crate) struct Owned(pub(crate) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both calls fail only if the child has ended and was reaped.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

impl Ended {
    /// Returns the standard output without the last newline.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Returns the standard error without the last newline.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end_matches('\n').to_owned()
    }

    /// Returns the exit status of the program, or 128+n after signal n, as in shells.
    pub fn code(&self) -> i32 {
        let by_signal = || 128 + self.status.signal().expect("exited or was killed");
        self.status.code().unwrap_or_else(by_signal)
    }

    /// Checks that the exit status is `code` and returns the standard output without the last
    /// newline. Panics otherwise.
    #[track_caller]
    pub fn expect(&self, code: i32) -> String {
        assert_eq!(self.code(), code, "stdout: {}\nstderr: {}", self.out(), self.err());
        self.out()
    }

    /// Checks that the program exited with `code` and that its standard error contains `message`.
    #[track_caller]
    pub fn fails_with(&self, code: i32, message: &str) {
        assert!(self.err().contains(message), "no {message:?} in stderr: {}", self.err());
        self.expect(code);
    }

    /// Parses the last line of standard output as JSON, which `--json` prints as the result.
    #[track_caller]
    pub fn result(&self) -> serde_json::Value {
        let out = self.out();
        let last = out.lines().next_back().unwrap_or_default();
        serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("{error} in {last:?}; stderr: {}", self.err()))
    }
}

/// The bytes that a thread has read from a pipe so far, and whether the pipe is closed.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    state: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Collected {
    /// Starts a thread that reads a pipe until its end.
    pub(crate) fn read(mut pipe: impl Read + Send + 'static) -> Arc<Self> {
        let collected = Arc::new(Self::default());
        let shared = Arc::clone(&collected);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let read = pipe.read(&mut buffer).unwrap_or(0);
                let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.0.extend_from_slice(buffer.get(..read).unwrap_or_default());
                state.1 = read == 0;
                shared.changed.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        collected
    }

    /// Waits for a text. Returns false if the pipe is closed without it, or at the deadline.
    pub(crate) fn wait_for(&self, until: Instant, text: &str) -> bool {
        let is_decided = |bytes: &[u8], closed| {
            let found = contains(bytes, text.as_bytes());
            (found || closed).then_some(found)
        };
        self.wait(until, is_decided).unwrap_or(false)
    }

    /// Waits until the pipe is closed. Returns false at the deadline.
    pub(crate) fn wait_until_closed(&self, until: Instant) -> bool {
        self.wait(until, |_, closed| closed.then_some(())).is_some()
    }

    /// Waits until `decide` returns a value for the collected bytes and whether the pipe is closed.
    fn wait<T>(&self, until: Instant, decide: impl Fn(&[u8], bool) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(decision) = decide(&state.0, state.1) {
                return Some(decision);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    pub(crate) fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&state.0).into_owned()
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<OsString> = self.command.get_args().map(OsStr::to_owned).collect();
        write!(f, "{:?} {words:?}", self.command.get_program())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_output_finds_a_text_only_if_the_program_wrote_it() {
        let until = Instant::now() + Duration::from_secs(60);
        let output = Collected::read(&b"one two"[..]);
        assert!(output.wait_for(until, "two"));
        assert!(!output.wait_for(until, "three"), "the text is missing, and the pipe is closed");
        assert!(output.wait_until_closed(until));
    }
}
