//! Accepts the connections and DNS queries of a box, within limits against floods.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::broker::Broker;
use crate::connection;
use crate::dns;
use crate::record::{Change, Changed, Recorder, RecorderTasks};

/// The maximum number of open connections of a box; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 512;
/// Maximum number of open TCP connections for DNS.
const MAX_DNS_STREAMS: usize = 16;
/// Timeout of an idle DNS connection over TCP.
const DNS_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time to send the remaining events when the broker shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The listening sockets of a broker, which were bound inside the box.
#[derive(Debug)]
pub struct Listeners {
    pub tcp: Vec<TcpListener>,
    pub dns_datagrams: UdpSocket,
    pub dns_streams: TcpListener,
}

/// Runs the broker until the supervisor closes the control socket, then sends the remaining events.
///
/// Calls `ready` once all sockets are served.
pub fn serve(
    prepared: crate::broker::Prepared,
    listeners: Listeners,
    control: OwnedFd,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let (recorder, recorder_tasks, changes) = Recorder::new(control)?;
        let (receiving, sending) = RecorderTasks::split(recorder_tasks);
        let broker = Arc::new(Broker::new(prepared, recorder));
        let sending = tokio::spawn(sending);
        let mut tasks = JoinSet::new();
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for listener in listeners.tcp {
            let accepting = accept(Arc::clone(&broker), listen(listener)?, Arc::clone(&slots));
            tasks.spawn(accepting);
        }
        listeners.dns_datagrams.set_nonblocking(true)?;
        let datagrams = tokio::net::UdpSocket::from_std(listeners.dns_datagrams)?;
        tasks.spawn(answer_datagrams(Arc::clone(&broker), datagrams));
        tasks.spawn(answer_streams(Arc::clone(&broker), listen(listeners.dns_streams)?));
        tasks.spawn(change(Arc::clone(&broker), changes));
        ready()?;
        tracing::info!("broker is serving");
        receiving.await?;
        // Open requests end here, and record their end when they are dropped.
        tracing::info!("supervisor closed the control socket; broker shuts down");
        tasks.shutdown().await;
        broker.end_tasks();
        drop(broker);
        timeout(SHUTDOWN_TIMEOUT, sending).await.ok(); // later events are lost
        Ok(())
    })
}

/// Applies new rules when the supervisor sends them, and reports each change.
async fn change(broker: Arc<Broker>, mut changes: mpsc::UnboundedReceiver<Change>) {
    while let Some(Change { number, what }) = changes.recv().await {
        match what {
            Changed::Rules(policy) => broker.change(&policy),
            Changed::Budget(budget) => broker.set_budget(budget),
        }
        broker.recorder.changed(number);
    }
}

fn listen(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

async fn accept(broker: Arc<Broker>, listener: tokio::net::TcpListener, slots: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: wait until open connections end.
            tracing::warn!("broker is out of descriptors");
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        // Nothing rewrites addresses inside the box, so the local address is the one that the
        // client dialled.
        let Ok(dialled) = stream.local_addr() else { continue };
        let dialled = SocketAddr::new(dialled.ip().to_canonical(), dialled.port());
        let broker = Arc::clone(&broker);
        connections.spawn(async move {
            connection::serve(broker, stream, dialled).await;
            tracing::trace!(%dialled, "connection of the box closed");
            drop(slot);
        });
    }
}

async fn answer_datagrams(broker: Arc<Broker>, socket: tokio::net::UdpSocket) {
    let mut query = vec![0; 4096];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut query).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let answer = broker.answer(query.get(..length).unwrap_or_default());
        if let Some(answer) = answer {
            socket.send_to(&answer, from).await.ok(); // the client can be gone
        }
    }
}

async fn answer_streams(broker: Arc<Broker>, listener: tokio::net::TcpListener) {
    let slots = Arc::new(Semaphore::new(MAX_DNS_STREAMS));
    let mut tasks = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let broker = Arc::clone(&broker);
        tasks.spawn(async move {
            answer_stream(&broker, stream).await.ok(); // an error concerns one client only
            drop(slot);
        });
    }
}

/// Answers DNS queries over TCP, which have a length prefix (RFC 7766).
async fn answer_stream(broker: &Broker, mut stream: TcpStream) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let length = timeout(DNS_IDLE_TIMEOUT, stream.read_u16()).await??;
        let mut query = vec![0; length.into()];
        timeout(DNS_IDLE_TIMEOUT, stream.read_exact(&mut query)).await??;
        let Some(answer) = broker.answer(&query) else { return Ok(()) };
        stream.write_all(&dns::frame(&answer)).await?;
    }
    Ok(())
}
