//! Follows one program to its end, and carries out its calls to tools of other servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use belljar_wire::{self as wire, Job, Stream, ToolRef};
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::Ready;
use super::{Answer, Listener, RunError};
use crate::error::ErrorKind;
use crate::supervisor::protocol::{FromSupervisor, ToSupervisor};
use crate::tool_servers::Servers;

/// The time that a cancelled program has to end before its supervisor is killed.
const GRACE: Duration = Duration::from_secs(3);
/// How often a caller that asked for it hears how far its program is.
const TICK: Duration = Duration::from_secs(1);
/// So many calls of one program are under way at once; it waits with the next.
const CALLS: usize = 16;

/// Follows a program that was started.
pub(super) async fn attend(
    ready: Ready,
    start: &ToSupervisor,
    servers: &Arc<Servers>,
    listener: &mut dyn Listener,
    cancelled: &CancellationToken,
) -> Result<Answer, RunError> {
    let Ready { run, remarks, mut line } = ready;
    let given = tools(start);
    let began = Instant::now();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut calls: JoinSet<(u64, Result<Box<RawValue>, String>)> = JoinSet::new();
    let mut outbox = SendQueue::default();
    let mut tick = tokio::time::interval(TICK);
    tick.tick().await;
    let mut killed_at: Option<tokio::time::Instant> = None;
    loop {
        let gone = async {
            match killed_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let listens = calls.len() < CALLS && outbox.is_short();
        tokio::select! {
            message = line.connection.reader.next(), if listens => match message? {
                Some(FromSupervisor::Output { stream, text }) => {
                    listener.output(stream, &text);
                    match stream {
                        Stream::Stdout => stdout.push_str(&text),
                        Stream::Stderr => stderr.push_str(&text),
                    }
                }
                // What comes out of a box may name anything: only what it was given can be called.
                Some(FromSupervisor::ToolCall { id, server, tool, .. })
                    if !given.iter().any(|it| it.server == server && it.tool == tool) =>
                {
                    tracing::warn!(run, server, tool, "tool call is refused: it was not given");
                    let value = Err(format!("this program was not given {server}.{tool}"));
                    outbox.put(&ToSupervisor::ToolAnswer { id, value });
                }
                Some(FromSupervisor::ToolCall { id, server, tool, input }) => {
                    tracing::debug!(run, call = id, server, tool, "program calls a tool");
                    let (servers, cancelled) = (Arc::clone(servers), cancelled.clone());
                    calls.spawn(async move {
                        (id, servers.call(&server, &tool, input, cancelled).await)
                    });
                }
                Some(FromSupervisor::Ended(ending)) => {
                    return Ok(Answer { run, ending: *ending, stdout, stderr, remarks });
                }
                Some(FromSupervisor::Failed { kind: ErrorKind::Invalid, message }) => {
                    return Err(RunError::Usage(message));
                }
                Some(FromSupervisor::Failed { message, .. }) => return Err(anyhow!(message).into()),
                Some(_) => return Err(anyhow!("a supervisor sent an unexpected message").into()),
                None => return Err(anyhow!("the supervisor exited without a report").into()),
            },
            Some(Ok((id, value))) = calls.join_next() => {
                tracing::debug!(run, call = id, failed = value.is_err(), "tool answered");
                outbox.put(&ToSupervisor::ToolAnswer { id, value });
            }
            () = outbox.send(&mut line.connection.writer) => {}
            () = cancelled.cancelled(), if killed_at.is_none() => {
                tracing::info!(run, "program is cancelled");
                killed_at = Some(tokio::time::Instant::now() + GRACE);
                outbox.put(&ToSupervisor::Cancel);
            }
            () = gone => return Err(anyhow!("the box did not end when it was told to").into()),
            _ = tick.tick() => listener.still(began.elapsed(), stdout.len() + stderr.len()),
        }
    }
}

/// The functions of other servers that a task may call.
fn tools(start: &ToSupervisor) -> Vec<ToolRef> {
    let ToSupervisor::Start(task) = start else { return Vec::new() };
    match &task.job {
        Job::Script(script) => script.tools.clone(),
        Job::Program(_) | Job::Bridge(_) => Vec::new(),
    }
}

/// Messages that wait to be sent to a supervisor. A program that does not read must not keep this side from
/// reading, or from cancelling the program.
#[derive(Debug, Default)]
struct SendQueue {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendQueue {
    /// The most bytes that wait. Beyond that no further tool call is accepted.
    const MOST: usize = 32 << 20;

    fn is_short(&self) -> bool {
        self.bytes.len() - self.sent < Self::MOST
    }

    fn put(&mut self, message: &ToSupervisor) {
        match wire::encode(message) {
            Ok(bytes) => self.bytes.extend(bytes),
            Err(error) => {
                // Only an answer can be too long, and its caller is told so.
                let ToSupervisor::ToolAnswer { id, .. } = message else { return };
                let value = Err(format!("the answer cannot be passed on: {error}"));
                self.bytes.extend(
                    wire::encode(&ToSupervisor::ToolAnswer { id: *id, value }).unwrap_or_default(),
                );
            }
        }
    }

    /// Sends some bytes. Waits for ever if there are none. Dropping this future loses nothing.
    async fn send(&mut self, writer: &mut OwnedWriteHalf) {
        if self.sent == self.bytes.len() {
            return std::future::pending().await;
        }
        match writer.write(self.bytes.get(self.sent..).unwrap_or_default()).await {
            Ok(wrote) => self.sent += wrote,
            Err(_) => self.sent = self.bytes.len(), // the supervisor is gone, which the reader sees
        }
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}
