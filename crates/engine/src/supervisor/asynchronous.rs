//! An asynchronous connection to an owned supervisor, for clients that serve many peers at once.

use std::io;

use anyhow::{Context as _, bail};
use belljar_wire::{self as wire, FrameDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::connection::check_protocol;
use super::protocol::{FromSupervisor, Hello, ToSupervisor};
use crate::error::EngineError;

/// An asynchronous connection to a supervisor, for both reading and writing.
#[derive(Debug)]
pub struct Connection {
    pub reader: Reader,
    pub writer: OwnedWriteHalf,
}

/// Reads the messages that a supervisor sends.
#[derive(Debug)]
pub struct Reader {
    socket: OwnedReadHalf,
    decoder: FrameDecoder,
    /// Whether the [`Hello`] of the supervisor was received.
    is_greeted: bool,
}

impl Connection {
    pub fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (socket, writer) = UnixStream::from_std(stream)?.into_split();
        let reader = Reader { socket, decoder: FrameDecoder::default(), is_greeted: false };
        Ok(Self { reader, writer })
    }

    /// Returns the next message of the supervisor, or `None` if the supervisor closed the connection.
    pub async fn next(&mut self) -> anyhow::Result<Option<FromSupervisor>> {
        self.reader.next().await
    }

    pub async fn send(&mut self, message: &ToSupervisor) -> anyhow::Result<()> {
        let bytes = wire::encode(message).context("cannot send a message to a supervisor")?;
        self.writer.write_all(&bytes).await.context("cannot send a message to a supervisor")
    }
}

impl Reader {
    /// Returns the next message of the supervisor, or `None` if the supervisor closed the connection.
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> anyhow::Result<Option<FromSupervisor>> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if !self.is_greeted
                && let Some(hello) = self.decoder.take::<Hello>().context(INVALID_MESSAGE)?
            {
                check_protocol("the supervisor", &hello).map_err(EngineError::into_inner)?;
                self.is_greeted = true;
            }
            if self.is_greeted
                && let Some(message) = self.decoder.take().context(INVALID_MESSAGE)?
            {
                return Ok(Some(message));
            }
            match self.socket.read(&mut chunk).await {
                Ok(0) => return Ok(None),
                Ok(read) => self.decoder.push(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => {
                    let context = "cannot read a message from a supervisor";
                    bail!(anyhow::Error::new(error).context(context))
                }
            }
        }
    }
}

const INVALID_MESSAGE: &str = "a supervisor sent an invalid message";
