//! Ports of the host that are forwarded to ports of a named box, for `belljar forward`.
//!
//! The supervisor listens on the loopback of the host. For each connection it connects a socket that init
//! created in the network of the box, so a forward reaches exactly one port of one box. The box cannot open a
//! connection through a forward. A forward ends with its supervisor, or when it is removed.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_ledger::{BoxForwarded, Draft};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use super::protocol::{Forward, FromSupervisor};
use super::session::BoxSession;
use crate::error::ErrorKind;
use crate::{logging, record};

/// The maximum number of forwards of one box.
const MAX_FORWARDS: usize = 16;
/// The maximum number of open connections of one forward. Further connections are closed.
const MAX_CONNECTIONS: usize = 256;
/// The size of the buffer for one direction of a connection, in bytes.
const BUFFER: usize = 64 * 1024;

/// The forwards of one box.
#[derive(Debug, Default)]
pub(super) struct Forwards(Mutex<Vec<OpenForward>>);

/// A forward with its listening socket, and the pipe whose end stops its thread.
#[derive(Debug)]
struct OpenForward {
    forward: Forward,
    listener: TcpListener,
    _stop: OwnedFd,
}

impl Drop for OpenForward {
    /// Refuses new connections at once, before the thread of the forward ends.
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).ok(); // it can be closed
    }
}

impl Forwards {
    /// Returns all forwards of the box.
    pub(super) fn list(&self) -> Vec<Forward> {
        self.lock().iter().map(|open| open.forward).collect()
    }

    /// Ends all forwards, because the box has ended. Open connections continue until the supervisor exits.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenForward>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a forward for a client with this user id. Returns the response.
pub(super) fn open(session: &Arc<BoxSession>, forward: Forward, uid: u32) -> FromSupervisor {
    let refused = |why: &str| session.target.refused(why);
    let Forward { host_port, port } = forward;
    let Some(channel) = session.target.channel() else {
        return refused("this box cannot forward ports");
    };
    let mut list = session.forwards.lock();
    if let Some(open) = list.iter().find(|open| open.forward.host_port == host_port) {
        let why = format!(
            "port {host_port} of this machine is already forwarded to port {} of this box; \
             remove it with `belljar forward {} {host_port} --remove`",
            open.forward.port, session.target.name
        );
        return refused(&why);
    }
    if list.len() >= MAX_FORWARDS {
        return refused(&format!("{MAX_FORWARDS} ports are forwarded already; remove one first"));
    }
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, host_port)) {
        Ok(listener) => listener,
        Err(error) => return refused(&cannot_listen(session, forward, &error)),
    };
    let (name, run) = (session.target.name.to_string(), session.target.run);
    let event =
        BoxForwarded { name, host_port: host_port.into(), port: port.into(), uid: uid.into() };
    let recorded = record::open(&session.target.scoped)
        .and_then(|ledger| Ok(ledger.record(Draft::new(event).of_run(run))?));
    if let Err(error) = recorded {
        let message = format!("cannot record the forward in the ledger: {error:#}");
        return FromSupervisor::Failed { kind: ErrorKind::Unrecorded, message };
    }
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
    let (own, (stopped, stop)) = match listener.try_clone().and_then(|own| Ok((own, pipe?))) {
        Ok(descriptors) => descriptors,
        Err(error) => return refused(&format!("cannot forward the port: {error}")),
    };
    tracing::info!(host_port, port, "port is forwarded");
    list.push(OpenForward { forward, listener: own, _stop: stop });
    drop(list);
    let is_served = channel.connect(port).is_ok();
    let of = Arc::clone(session);
    logging::spawn(move || accept(&listener, &stopped, &of, port));
    FromSupervisor::Forwarded { is_served }
}

/// Removes a forward and ends its connections' listener. Open connections continue.
pub(super) fn remove(session: &BoxSession, host_port: u16) -> FromSupervisor {
    let mut list = session.forwards.lock();
    let Some(index) = list.iter().position(|open| open.forward.host_port == host_port) else {
        return session.target.refused(&format!(
            "port {host_port} is not forwarded; `belljar status {}` lists the forwards",
            session.target.name
        ));
    };
    list.remove(index);
    FromSupervisor::Ok
}

/// Describes why the supervisor cannot listen on a port of the host.
fn cannot_listen(session: &BoxSession, forward: Forward, error: &io::Error) -> String {
    let Forward { host_port, port } = forward;
    if error.kind() != io::ErrorKind::AddrInUse {
        return format!("cannot listen on port {host_port} of this machine: {error}");
    }
    let other = host_port.checked_add(1).unwrap_or(host_port - 1);
    format!(
        "port {host_port} of this machine is in use; choose another one, for example \
         `belljar forward {} {other}:{port}`",
        session.target.name
    )
}

/// Accepts connections until the forward is removed.
fn accept(listener: &TcpListener, stopped: &OwnedFd, session: &Arc<BoxSession>, port: u16) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let mut polled =
            [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let [has_client, is_removed] = polled.map(|it| !it.revents().is_empty());
        if is_removed {
            return;
        }
        let Some((client, _)) = has_client.then(|| listener.accept().ok()).flatten() else {
            continue;
        };
        if connections.fetch_add(1, Ordering::AcqRel) >= MAX_CONNECTIONS {
            connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (session, connections) = (Arc::clone(session), Arc::clone(&connections));
        logging::spawn(move || {
            if let Some(Ok(inside)) = session.target.channel().map(|channel| channel.connect(port))
            {
                exchange(&client, &inside);
            }
            connections.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Copies bytes between two connections until both directions have ended.
fn exchange(client: &TcpStream, inside: &TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| copy(client, inside));
        copy(inside, client);
    });
}

/// Copies bytes in one direction and then reports the end to the receiver.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = match io::Read::read(&mut from, &mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        if io::Write::write_all(&mut to, buffer.get(..read).unwrap_or_default()).is_err() {
            from.shutdown(Shutdown::Read).ok(); // the sender can have disconnected
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok(); // the receiver can have disconnected
}
