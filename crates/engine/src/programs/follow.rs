//! Follows one program until it ends, and carries out its calls to tools of tool servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use belljar_wire::{self as wire, Job, Stream, ToolRef};
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::ReadyBox;
use super::{Listener, ProgramOutcome, RunError};
use crate::error::ErrorKind;
use crate::supervisor::protocol::{FromSupervisor, ToSupervisor};
use crate::tool_servers::Servers;

/// The time that a cancelled program has to end before its supervisor is killed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval between two progress reports of a running program.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of tool calls of one program that run at once. Further calls wait.
const MAX_TOOL_CALLS: usize = 16;

/// Processes the messages of a running program until the program ends, and returns its outcome.
pub(super) async fn follow(
    started: ReadyBox,
    start: &ToSupervisor,
    servers: &Arc<Servers>,
    listener: &mut dyn Listener,
    cancelled: &CancellationToken,
) -> Result<ProgramOutcome, RunError> {
    let ReadyBox { run, remarks, mut supervisor } = started;
    let allowed_tools = tools(start);
    let start_time = Instant::now();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut calls: JoinSet<(u64, Result<Box<RawValue>, String>)> = JoinSet::new();
    let mut send_queue = SendQueue::default();
    let mut interval = tokio::time::interval(PROGRESS_INTERVAL);
    interval.tick().await;
    let mut deadline: Option<tokio::time::Instant> = None;
    loop {
        let timed_out = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let can_receive = calls.len() < MAX_TOOL_CALLS && send_queue.has_space();
        tokio::select! {
            message = supervisor.connection.reader.next(), if can_receive => match message? {
                Some(FromSupervisor::Output { stream, text }) => {
                    listener.output(stream, &text);
                    match stream {
                        Stream::Stdout => stdout.push_str(&text),
                        Stream::Stderr => stderr.push_str(&text),
                    }
                }
                // A box can send any name, so calls to tools that are not in the task are refused.
                Some(FromSupervisor::ToolCall { id, server, tool, .. })
                    if !allowed_tools.iter().any(|it| it.server == server && it.tool == tool) =>
                {
                    tracing::warn!(run, server, tool, "tool call is refused: not in the task");
                    let value = Err(format!("this program may not call the tool {server}.{tool}"));
                    send_queue.push(&ToSupervisor::ToolAnswer { id, value });
                }
                Some(FromSupervisor::ToolCall { id, server, tool, input }) => {
                    tracing::debug!(run, call = id, server, tool, "program calls a tool");
                    let (servers, cancelled) = (Arc::clone(servers), cancelled.clone());
                    calls.spawn(async move {
                        (id, servers.call(&server, &tool, input, cancelled).await)
                    });
                }
                Some(FromSupervisor::Ended(ending)) => {
                    return Ok(ProgramOutcome { run, ending: *ending, stdout, stderr, remarks });
                }
                Some(FromSupervisor::Failed { kind: ErrorKind::Invalid, message }) => {
                    return Err(RunError::Usage(message));
                }
                Some(FromSupervisor::Failed { message, .. }) => return Err(anyhow!(message).into()),
                Some(_) => return Err(anyhow!("a supervisor sent an unexpected message").into()),
                None => {
                    let text = "the supervisor exited without reporting how the program ended";
                    return Err(anyhow!(text).into());
                }
            },
            Some(Ok((id, value))) = calls.join_next() => {
                tracing::debug!(run, call = id, failed = value.is_err(), "tool returned a result");
                send_queue.push(&ToSupervisor::ToolAnswer { id, value });
            }
            () = send_queue.send(&mut supervisor.connection.writer) => {}
            () = cancelled.cancelled(), if deadline.is_none() => {
                tracing::info!(run, "program is cancelled");
                deadline = Some(tokio::time::Instant::now() + CANCEL_TIMEOUT);
                send_queue.push(&ToSupervisor::Cancel);
            }
            () = timed_out => {
                let seconds = CANCEL_TIMEOUT.as_secs();
                let text = format!("the box did not end within {seconds} s after the cancellation");
                return Err(anyhow!(text).into());
            }
            _ = interval.tick() => {
                listener.progress(start_time.elapsed(), stdout.len() + stderr.len());
            }
        }
    }
}

/// Returns the tools of tool servers that the program of a task may call.
fn tools(start: &ToSupervisor) -> Vec<ToolRef> {
    let ToSupervisor::Start(task) = start else { return Vec::new() };
    match &task.job {
        Job::Script(script) => script.tools.clone(),
        Job::Program(_) | Job::Bridge(_) | Job::Model(_) => Vec::new(),
    }
}

/// Messages that wait to be sent to a supervisor. With this queue, a program that does not read its input
/// cannot block the receiving of messages, or its own cancellation.
#[derive(Debug, Default)]
struct SendQueue {
    bytes: Vec<u8>,
    /// The number of bytes at the start of `bytes` that were sent.
    sent: usize,
}

impl SendQueue {
    /// The maximum number of waiting bytes. No further tool call is accepted while the queue is full.
    const MAX_BYTES: usize = 32 << 20;

    fn has_space(&self) -> bool {
        self.bytes.len() - self.sent < Self::MAX_BYTES
    }

    /// Appends a message. A result that is too large is replaced by an error.
    fn push(&mut self, message: &ToSupervisor) {
        match wire::encode(message) {
            Ok(bytes) => self.bytes.extend(bytes),
            Err(error) => {
                // Only the result of a tool can be too large.
                let ToSupervisor::ToolAnswer { id, .. } = message else { return };
                let value =
                    Err(format!("cannot send the result of the tool to the program: {error}"));
                self.bytes.extend(
                    wire::encode(&ToSupervisor::ToolAnswer { id: *id, value }).unwrap_or_default(),
                );
            }
        }
    }

    /// Sends some of the waiting bytes. The future never completes if the queue is empty. Dropping the
    /// future loses no bytes.
    async fn send(&mut self, writer: &mut OwnedWriteHalf) {
        if self.sent == self.bytes.len() {
            return std::future::pending().await;
        }
        match writer.write(self.bytes.get(self.sent..).unwrap_or_default()).await {
            Ok(wrote) => self.sent += wrote,
            Err(_) => self.sent = self.bytes.len(), // the supervisor has exited; the reader notices it
        }
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}
