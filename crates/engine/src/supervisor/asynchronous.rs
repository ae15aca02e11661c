//! A connection to an owned supervisor for clients that wait for many peers at once.

use std::io;

use anyhow::{Context as _, bail};
use belljar_wire::{self as wire, FrameDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::connection::check;
use super::protocol::{FromSupervisor, Hello, ToSupervisor};
use crate::error::EngineError;

/// Both directions of a connection.
#[derive(Debug)]
pub struct Connection {
    pub reader: Reader,
    pub writer: OwnedWriteHalf,
}

/// The messages of a supervisor.
#[derive(Debug)]
pub struct Reader {
    from: OwnedReadHalf,
    decoder: FrameDecoder,
    /// Whether the supervisor has sent its greeting.
    is_greeted: bool,
}

impl Connection {
    pub fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (from, writer) = UnixStream::from_std(stream)?.into_split();
        let reader = Reader { from, decoder: FrameDecoder::default(), is_greeted: false };
        Ok(Self { reader, writer })
    }

    /// The next message. `None`: the supervisor is gone.
    pub async fn next(&mut self) -> anyhow::Result<Option<FromSupervisor>> {
        self.reader.next().await
    }

    pub async fn send(&mut self, message: &ToSupervisor) -> anyhow::Result<()> {
        let bytes = wire::encode(message).context("cannot send a message to a supervisor")?;
        self.writer.write_all(&bytes).await.context("cannot send a message to a supervisor")
    }
}

impl Reader {
    /// The next message. `None`: the supervisor is gone. Dropping this future loses no message.
    pub async fn next(&mut self) -> anyhow::Result<Option<FromSupervisor>> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if !self.is_greeted
                && let Some(hello) = self.decoder.take::<Hello>().context(INVALID)?
            {
                check("the supervisor", &hello).map_err(EngineError::into_inner)?;
                self.is_greeted = true;
            }
            if self.is_greeted
                && let Some(message) = self.decoder.take().context(INVALID)?
            {
                return Ok(Some(message));
            }
            match self.from.read(&mut chunk).await {
                Ok(0) => return Ok(None),
                Ok(read) => self.decoder.push(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => {
                    bail!(anyhow::Error::new(error).context("cannot read from a supervisor"))
                }
            }
        }
    }
}

const INVALID: &str = "a supervisor sent an invalid message";
