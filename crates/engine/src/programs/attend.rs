//! Hears one program out, and lets it call the tools of other servers meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use belljar_wire::{self as wire, Job, Stream, ToolRef};
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::line::Ready;
use super::{Answer, Listener, RunError};
use crate::cell::word::{Order, Report};
use crate::tool_servers::Servers;

/// A cell that was told to end gets so long, then it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// How often a caller that asked for it hears how far its program is.
const TICK: Duration = Duration::from_secs(1);
/// So many calls of one program are under way at once; it waits with the next.
const CALLS: usize = 16;

/// Hears a box out that was given its task.
pub(super) async fn attend(
    ready: Ready,
    order: &Order,
    servers: &Arc<Servers>,
    listener: &mut dyn Listener,
    cancelled: &CancellationToken,
) -> Result<Answer, RunError> {
    let Ready { run, remarks, mut line } = ready;
    let given = tools(order);
    let began = Instant::now();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut calls: JoinSet<(u64, Result<Box<RawValue>, String>)> = JoinSet::new();
    let mut outbox = Outbox::default();
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
            report = line.heard.next(), if listens => match report? {
                Some(Report::Output { stream, text }) => {
                    listener.output(stream, &text);
                    match stream {
                        Stream::Stdout => stdout.push_str(&text),
                        Stream::Stderr => stderr.push_str(&text),
                    }
                }
                // What comes out of a box may name anything: only what it was given can be called.
                Some(Report::Call { id, server, tool, .. })
                    if !given.iter().any(|it| it.server == server && it.tool == tool) =>
                {
                    tracing::warn!(run, server, tool, "tool call is refused: it was not given");
                    let value = Err(format!("this program was not given {server}.{tool}"));
                    outbox.put(&Order::Answer { id, value });
                }
                Some(Report::Call { id, server, tool, input }) => {
                    tracing::debug!(run, call = id, server, tool, "program calls a tool");
                    let (servers, cancelled) = (Arc::clone(servers), cancelled.clone());
                    calls.spawn(async move {
                        (id, servers.call(&server, &tool, input, cancelled).await)
                    });
                }
                Some(Report::Ended(ending)) => {
                    return Ok(Answer { run, ending: *ending, stdout, stderr, remarks });
                }
                Some(Report::Failed { is_usage: true, message }) => {
                    return Err(RunError::Usage(message));
                }
                Some(Report::Failed { message, .. }) => return Err(anyhow!(message).into()),
                Some(Report::Ready { .. }) => return Err(anyhow!("a cell spoke out of turn").into()),
                None => return Err(anyhow!("the process of the box ended without a word").into()),
            },
            Some(Ok((id, value))) = calls.join_next() => {
                tracing::debug!(run, call = id, failed = value.is_err(), "tool answered");
                outbox.put(&Order::Answer { id, value });
            }
            () = outbox.send(&mut line.said) => {}
            () = cancelled.cancelled(), if killed_at.is_none() => {
                tracing::info!(run, "program is cancelled");
                killed_at = Some(tokio::time::Instant::now() + GRACE);
                outbox.put(&Order::Cancel);
            }
            () = gone => return Err(anyhow!("the box did not end when it was told to").into()),
            _ = tick.tick() => listener.still(began.elapsed(), stdout.len() + stderr.len()),
        }
    }
}

/// The functions of other servers that a task may call.
fn tools(order: &Order) -> Vec<ToolRef> {
    match order {
        Order::Run(task) => match &task.job {
            Job::Script(script) => script.tools.clone(),
            Job::Program(_) | Job::Bridge(_) => Vec::new(),
        },
        Order::Prepare(_) | Order::Answer { .. } | Order::Cancel => Vec::new(),
    }
}

/// What waits to be said to a cell. A program that does not read must not keep us from hearing that it
/// ended, or that nobody wants it any more.
#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// So much may wait; then no more is asked for.
    const MOST: usize = 32 << 20;

    fn is_short(&self) -> bool {
        self.bytes.len() - self.sent < Self::MOST
    }

    fn put(&mut self, order: &Order) {
        match wire::encode(order) {
            Ok(bytes) => self.bytes.extend(bytes),
            Err(error) => {
                // Only an answer can be too long, and its caller is told so.
                let Order::Answer { id, .. } = order else { return };
                let value = Err(format!("the answer cannot be passed on: {error}"));
                self.bytes
                    .extend(wire::encode(&Order::Answer { id: *id, value }).unwrap_or_default());
            }
        }
    }

    /// Says some of it; waits for ever when there is nothing to say. Dropping this loses nothing.
    async fn send(&mut self, said: &mut OwnedWriteHalf) {
        if self.sent == self.bytes.len() {
            return std::future::pending().await;
        }
        match said.write(self.bytes.get(self.sent..).unwrap_or_default()).await {
            Ok(wrote) => self.sent += wrote,
            Err(_) => self.sent = self.bytes.len(), // the cell is gone, which is heard elsewhere
        }
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}
