//! The server's end of the line to one cell.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, bail};
use belljar_wire::{self as wire, FrameDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::cell;
use crate::cell::word::{Order, Prepare, Report};

/// What a cell gets to end once nobody speaks to it any more.
const FAREWELL: Duration = Duration::from_secs(5);

/// A cell whose box stands.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) run: String,
    pub(super) remarks: Vec<String>,
    pub(super) line: Line,
}

/// Both directions.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) heard: Heard,
    pub(super) said: OwnedWriteHalf,
    /// Ends the process when dropped.
    process: Process,
}

#[derive(Debug)]
pub(super) struct Heard {
    from: OwnedReadHalf,
    cutter: FrameDecoder,
}

/// A cell's process. Its end is waited for elsewhere, so that nobody has to.
#[derive(Debug)]
pub(super) struct Process(Option<Child>);

/// What a box could not be made for.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What was asked for, or the operator's file.
    Usage(String),
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Starts a cell and waits until its box stands.
pub(super) async fn prepare(
    home: &Path,
    worker: &OwnedFd,
    prepare: Prepare,
) -> Result<Ready, Refusal> {
    let (child, line) = cell::start(home, worker).context("start a process for a box")?;
    let process = Process(Some(child));
    line.set_nonblocking(true).context("prepare the line to a cell")?;
    let line = UnixStream::from_std(line).context("prepare the line to a cell")?;
    let (from, mut said) = line.into_split();
    let mut heard = Heard { from, cutter: FrameDecoder::default() };
    say(&mut said, &Order::Prepare(Box::new(prepare))).await?;
    match heard.next().await? {
        Some(Report::Ready { run, remarks }) => {
            Ok(Ready { run, remarks, line: Line { heard, said, process } })
        }
        Some(Report::Failed { is_usage: true, message }) => Err(Refusal::Usage(message)),
        Some(Report::Failed { message, .. }) => Err(Refusal::Broken(anyhow::anyhow!(message))),
        Some(Report::Output { .. } | Report::Call { .. } | Report::Ended(_)) => {
            Err(Refusal::Broken(anyhow::anyhow!("a cell spoke out of turn")))
        }
        None => Err(Refusal::Broken(anyhow::anyhow!("a cell ended without a word"))),
    }
}

impl Ready {
    /// Gives it its task.
    pub(super) async fn begin(mut self, order: &Order) -> anyhow::Result<Self> {
        say(&mut self.line.said, order).await?;
        Ok(self)
    }

    /// Lets it go, and waits until it is gone.
    pub(super) async fn dismiss(self) {
        let Line { heard, said, mut process } = self.line;
        drop((heard, said));
        let Some(child) = process.0.take() else { return };
        tokio::task::spawn_blocking(move || see_off(child)).await.ok(); // a panic there is said already
    }
}

async fn say(said: &mut OwnedWriteHalf, order: &Order) -> anyhow::Result<()> {
    let bytes = wire::encode(order).context("speak to a cell")?;
    said.write_all(&bytes).await.context("speak to a cell")
}

impl Heard {
    /// The next word; none when the cell is gone. Dropping this loses nothing.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Report>> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some(report) = self.cutter.take().context("hear a cell")? {
                return Ok(Some(report));
            }
            match self.from.read(&mut chunk).await {
                Ok(0) => return Ok(None),
                Ok(read) => self.cutter.push(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Ok(None);
                }
                Err(error) => bail!(anyhow::Error::new(error).context("hear a cell")),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            std::thread::spawn(move || see_off(child));
        }
    }
}

/// Waits for the end of a cell, which comes by itself when its line is closed; or makes it come.
fn see_off(mut child: Child) {
    let until = std::time::Instant::now() + FAREWELL;
    while std::time::Instant::now() < until {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    child.kill().ok(); // gone in between
    child.wait().ok();
}
