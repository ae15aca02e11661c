//! Accepts what comes out of the box, within limits that a flood cannot pass.

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
use crate::record::{Change, Clerk, Desk};

/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 512;
/// Queries over TCP at once.
const DNS_STREAMS: usize = 16;
/// How long a resolver may keep a TCP connection without asking.
const DNS_IDLE: Duration = Duration::from_secs(5);
/// What the broker takes to say its last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The sockets that were bound inside the box.
#[derive(Debug)]
pub struct Doors {
    pub tcp: Vec<TcpListener>,
    pub dns_datagrams: UdpSocket,
    pub dns_streams: TcpListener,
}

/// Serves until the supervisor has no more to say, then puts on record what is left.
///
/// `ready` is called once everything is listened to.
pub fn serve(
    prepared: crate::broker::Prepared,
    doors: Doors,
    control: OwnedFd,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let (clerk, desk, changes) = Clerk::new(control)?;
        let (hearing, speaking) = Desk::split(desk);
        let broker = Arc::new(Broker::new(prepared, clerk));
        let speaking = tokio::spawn(speaking);
        let mut tasks = JoinSet::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        for listener in doors.tcp {
            let accepting = accept(Arc::clone(&broker), listen(listener)?, Arc::clone(&room));
            tasks.spawn(accepting);
        }
        doors.dns_datagrams.set_nonblocking(true)?;
        let datagrams = tokio::net::UdpSocket::from_std(doors.dns_datagrams)?;
        tasks.spawn(answer_datagrams(Arc::clone(&broker), datagrams));
        tasks.spawn(answer_streams(Arc::clone(&broker), listen(doors.dns_streams)?));
        tasks.spawn(change(Arc::clone(&broker), changes));
        ready()?;
        tracing::info!("broker serves");
        hearing.await?;
        // Whatever is under way breaks off here, and says so as it is dropped.
        tracing::info!("supervisor is done, broker ends");
        tasks.shutdown().await;
        broker.end_tasks();
        drop(broker);
        timeout(LAST_WORDS, speaking).await.ok(); // what it did not get out by then is lost
        Ok(())
    })
}

/// Puts other rules into force as they come, and says so.
async fn change(broker: Arc<Broker>, mut changes: mpsc::UnboundedReceiver<Change>) {
    while let Some(Change { number, policy }) = changes.recv().await {
        broker.change(&policy);
        broker.clerk.changed(number);
    }
}

fn listen(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

async fn accept(broker: Arc<Broker>, listener: tokio::net::TcpListener, room: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: those that are open must end first.
            tracing::warn!("broker is out of descriptors");
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        // Nothing rewrites addresses inside the box: its end of the connection is what was dialled.
        let Ok(dialled) = stream.local_addr() else { continue };
        let dialled = SocketAddr::new(dialled.ip().to_canonical(), dialled.port());
        let broker = Arc::clone(&broker);
        connections.spawn(async move {
            connection::serve(broker, stream, dialled).await;
            tracing::trace!(%dialled, "connection of the box is over");
            drop(place);
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
            socket.send_to(&answer, from).await.ok(); // whoever asked may be gone
        }
    }
}

async fn answer_streams(broker: Arc<Broker>, listener: tokio::net::TcpListener) {
    let room = Arc::new(Semaphore::new(DNS_STREAMS));
    let mut tasks = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let broker = Arc::clone(&broker);
        tasks.spawn(async move {
            answer_stream(&broker, stream).await.ok(); // one client's trouble
            drop(place);
        });
    }
}

/// Queries with their length before them; see RFC 7766.
async fn answer_stream(broker: &Broker, mut stream: TcpStream) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let length = timeout(DNS_IDLE, stream.read_u16()).await??;
        let mut query = vec![0; length.into()];
        timeout(DNS_IDLE, stream.read_exact(&mut query)).await??;
        let Some(answer) = broker.answer(&query) else { return Ok(()) };
        stream.write_all(&dns::frame(&answer)).await?;
    }
    Ok(())
}
