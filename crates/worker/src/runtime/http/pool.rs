//! Connections to the door, kept for the next request to the same origin.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::body::Sent;
use super::{AskError, DOOR, Origin, Outgoing};

/// Idle connections per origin; the broker has 512 for all that the box does.
const IDLE: usize = 8;
/// Turns of the runtime in which a kept connection must become ready.
const TURNS: usize = 4;
/// Head of an answer.
const HEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Pool {
    door: IpAddr,
    idle: Rc<RefCell<Idle>>,
}

type Idle = HashMap<Origin, Vec<Connection>>;

/// A connection that nobody uses.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Outgoing>,
    _task: Running,
}

/// Ends the connection when it is dropped.
#[derive(Debug)]
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection in use. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Lease {
    connection: Connection,
    origin: Origin,
    sent: Option<Sent>,
    idle: Weak<RefCell<Idle>>,
}

impl Lease {
    /// Its answer was read to the end: somebody else can have it, unless the request is still being
    /// sent, which may never end.
    pub(super) fn give_back(self) {
        if self.sent.is_some_and(|sent| !sent.is_whole()) {
            return;
        }
        let Some(idle) = self.idle.upgrade() else { return };
        let mut idle = idle.borrow_mut();
        let kept = idle.entry(self.origin).or_default();
        if kept.len() < IDLE && !self.connection.sender.is_closed() {
            kept.push(self.connection);
        }
    }
}

impl Pool {
    pub(super) fn new(door: IpAddr) -> Self {
        Self { door, idle: Rc::default() }
    }

    /// Sends over a kept connection or a new one. One that had ended meanwhile is no trouble, where the
    /// request can be made again.
    pub(super) async fn send(
        &self,
        origin: &Origin,
        make: impl Fn(Outgoing) -> Result<Request<Outgoing>, AskError>,
        body: Outgoing,
    ) -> Result<(Response<hyper::body::Incoming>, Lease), AskError> {
        let sent = body.sent();
        let mut request = make(body)?;
        while let Some(mut connection) = self.take(origin).await {
            let again = request.body().again();
            let is_safe = request.method().is_idempotent() && !matches!(again, Outgoing::Gone);
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok((response, self.lease(connection, origin, sent))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None if is_safe => request = make(again)?,
                    None => return Err(broken(origin, error.into_error())),
                },
            }
        }
        let mut connection = self.connect(origin).await?;
        let response = connection.sender.send_request(request).await;
        let response = response.map_err(|source| broken(origin, source))?;
        Ok((response, self.lease(connection, origin, sent)))
    }

    /// A kept connection that is ready.
    async fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let connection = self.idle.borrow_mut().get_mut(origin)?.pop()?;
            for _ in 0..TURNS {
                if connection.sender.is_ready() {
                    return Some(connection);
                }
                tokio::task::yield_now().await; // its task may have to see the end of the answer first
            }
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection, AskError> {
        let unreachable = |source| AskError::Unreachable { origin: origin.text.clone(), source };
        let stream = timeout(DOOR, TcpStream::connect((self.door, origin.port))).await;
        let stream = stream
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
            .map_err(unreachable)?;
        stream.set_nodelay(true).ok(); // slower, not wrong, without
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|it| broken(origin, it))?;
        let task = tokio::spawn(async move {
            connection.await.ok(); // whoever waits for an answer hears of it
        });
        Ok(Connection { sender, _task: Running(task.abort_handle()) })
    }

    fn lease(&self, connection: Connection, origin: &Origin, sent: Option<Sent>) -> Lease {
        Lease { connection, origin: origin.clone(), sent, idle: Rc::downgrade(&self.idle) }
    }
}

fn broken(origin: &Origin, source: hyper::Error) -> AskError {
    AskError::Broken { origin: origin.text.clone(), source }
}
