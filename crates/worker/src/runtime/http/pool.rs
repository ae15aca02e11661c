//! A pool of connections to the broker, reused for requests to the same origin.

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
use super::{CONNECT_TIMEOUT, FetchError, Origin, RequestBody};

/// The maximum number of idle HTTP connections per origin. The broker accepts 512 for the whole
/// box.
const IDLE: usize = 8;
/// The number of scheduler yields in which an idle connection must become ready.
const TURNS: usize = 4;
/// The maximum size of the response headers in bytes.
const HEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Pool {
    broker: IpAddr,
    idle: Rc<RefCell<Idle>>,
}

type Idle = HashMap<Origin, Vec<Connection>>;

/// An open connection.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<RequestBody>,
    _task: ConnectionTask,
}

/// The background task of an HTTP connection; dropping it aborts the task. Dropping it closes the
/// connection.
#[derive(Debug)]
struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection in use. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Lease {
    connection: Connection,
    origin: Origin,
    sent: Option<Sent>,
    idle: Weak<RefCell<Idle>>,
}

impl Lease {
    /// Puts the connection back into the pool after its response was read completely.
    ///
    /// If the request body is still being sent, the connection is closed instead.
    pub(super) fn release(self) {
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
    pub(super) fn new(broker: IpAddr) -> Self {
        Self { broker, idle: Rc::default() }
    }

    /// Sends an HTTP request over an idle connection or a new one.
    ///
    /// If the server closed an idle connection, the request is sent again where that is safe.
    pub(super) async fn send(
        &self,
        origin: &Origin,
        make: impl Fn(RequestBody) -> Result<Request<RequestBody>, FetchError>,
        body: RequestBody,
    ) -> Result<(Response<hyper::body::Incoming>, Lease), FetchError> {
        let sent = body.sent();
        let mut request = make(body)?;
        while let Some(mut connection) = self.take(origin).await {
            let again = request.body().again();
            let is_safe = request.method().is_idempotent() && !matches!(again, RequestBody::Gone);
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

    /// Removes an idle connection that is ready from the pool.
    async fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let connection = self.idle.borrow_mut().get_mut(origin)?.pop()?;
            for _ in 0..TURNS {
                if connection.sender.is_ready() {
                    return Some(connection);
                }
                tokio::task::yield_now().await; // lets its task finish the previous response
            }
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection, FetchError> {
        let unreachable = |source| FetchError::Unreachable { origin: origin.text.clone(), source };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((self.broker, origin.port))).await;
        let stream = stream
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
            .map_err(unreachable)?;
        stream.set_nodelay(true).ok(); // only an optimization
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|it| broken(origin, it))?;
        let task = tokio::spawn(async move {
            connection.await.ok(); // the pending request gets the error
        });
        Ok(Connection { sender, _task: ConnectionTask(task.abort_handle()) })
    }

    fn lease(&self, connection: Connection, origin: &Origin, sent: Option<Sent>) -> Lease {
        Lease { connection, origin: origin.clone(), sent, idle: Rc::downgrade(&self.idle) }
    }
}

fn broken(origin: &Origin, source: hyper::Error) -> FetchError {
    FetchError::Broken { origin: origin.text.clone(), source }
}
