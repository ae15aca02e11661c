//! Child processes of the worker: commands of the shell, and a second worker for programs.
//!
//! The output of a command is read to its end, but only its beginning and its end are kept. A command that
//! leaves a process in the background does not delay its result.

use std::io::{self, PipeReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{MAX_RESULT, Outcome};

/// The number of bytes of the end of an output that are kept.
const TAIL: usize = MAX_RESULT / 4;
/// The number of bytes of the beginning that are kept; the rest is for the mark and the status.
const HEAD: usize = MAX_RESULT - TAIL - 512;
/// The time for the rest of the output after the end of a command.
const REST: Duration = Duration::from_millis(500);

/// Runs a command line, and returns its exit status and its output.
pub(super) async fn shell(dir: &Path, command: &str, limit: Duration) -> Outcome {
    let cannot_start = |error: io::Error| format!("cannot start the shell: {error}");
    let (reader, writer) = io::pipe().map_err(cannot_start)?;
    let mut shell = program("/bin/sh".as_ref());
    shell.arg("-c").arg(command).current_dir(dir).stdin(Stdio::null());
    shell.stdout(writer.try_clone().map_err(cannot_start)?).stderr(writer);
    let child = shell.spawn().map_err(cannot_start)?;
    drop(shell); // it holds copies of the writing end
    let kept = Arc::new(Mutex::new(Kept::default()));
    let read = follow(reader, Arc::clone(&kept));
    let (group, ended) = wait(child);
    let status = timeout(limit, ended).await;
    if status.is_err() {
        kill(group);
    }
    drop(tokio::task::spawn_blocking(move || read.recv_timeout(REST)).await);
    let output = kept.lock().unwrap_or_else(PoisonError::into_inner).text();
    match status {
        Ok(Ok(Ok(status))) => Ok(format!("{}\n{output}", describe(status))),
        Ok(Ok(Err(error))) => Err(format!("cannot wait for the command: {error}")),
        Ok(Err(_)) => Err("cannot wait for the command".to_owned()),
        Err(_) => {
            let seconds = limit.as_secs();
            Err(format!("the command was killed after {seconds} s. Its output:\n{output}"))
        }
    }
}

/// Returns a program in a process group of its own.
#[expect(clippy::disallowed_methods, reason = "the tools of a model run programs in its box")]
pub(super) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.process_group(0);
    command
}

/// Waits for a child in a thread. Returns its process group and its end.
pub(super) fn wait(mut child: Child) -> (Option<Pid>, oneshot::Receiver<io::Result<ExitStatus>>) {
    let (send, ended) = oneshot::channel();
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        send.send(child.wait()).ok(); // the receiver may have stopped waiting
    });
    (group, ended)
}

/// Kills a process group.
pub(super) fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        kill_process_group(group, Signal::KILL).ok(); // it may have ended
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Reads a pipe in a thread. The receiver gets a message at its end.
fn follow(mut reader: PipeReader, kept: Arc<Mutex<Kept>>) -> mpsc::Receiver<()> {
    let (send, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(length @ 1..) = reader.read(&mut chunk) {
            let chunk = chunk.get(..length).unwrap_or_default();
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        }
        send.send(()).ok(); // the receiver may have stopped waiting
    });
    end
}

/// The beginning and the end of an output.
#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
    }

    fn text(&self) -> String {
        let (head, tail) = (&self.head, &self.tail);
        let left_out = self.total - (head.len() + tail.len()) as u64;
        if left_out == 0 {
            return String::from_utf8_lossy(&[&head[..], tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        format!("{head}\n[belljar: {left_out} bytes are left out here]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, seconds: u64) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(shell(dir.path(), command, Duration::from_secs(seconds)))
    }

    #[test]
    fn shell_returns_status_and_both_streams() {
        assert_eq!(run("echo one; echo two >&2; exit 3", 60).unwrap(), "exit status 3\none\ntwo\n");
        assert_eq!(run("kill -9 $$", 60).unwrap(), "killed by signal 9\n");
    }

    #[test]
    fn flood_of_output_is_read_to_its_end_and_loses_its_middle() {
        let text =
            run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last", 60).unwrap();
        assert!(text.len() <= MAX_RESULT, "{}", text.len());
        assert!(text.starts_with("exit status 0\nfirst\nxxx") && text.ends_with("xlast\n"));
        let left_out = 3_000_011 - HEAD - TAIL;
        assert!(text.contains(&format!("[belljar: {left_out} bytes are left out here]")));
    }

    #[test]
    fn endless_command_is_killed_with_its_children() {
        let error = run("echo begun; sleep 1000 | sleep 1000", 1).unwrap_err();
        assert!(error.contains("killed after 1 s") && error.contains("begun"), "{error}");
    }

    #[test]
    fn background_process_does_not_delay_the_result() {
        let text = run("sleep 1000 & echo $!", 600).unwrap();
        let pid: i32 = text.lines().nth(1).unwrap().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).expect("it still runs");
    }
}
