//! Answers whoever speaks to a keeper, each on a thread of their own.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_box::Door;

use super::hub::Hub;
use super::protocol::{self, Reply, Request};
use super::{guests, viewers};
use crate::approvals::RequestId;
use crate::error::ErrorKind;
use crate::logging;
use crate::network::broker::lever::AnswerError;

/// So many are served at once; more are turned away.
const CONNECTIONS: usize = 64;
/// How long somebody may take to say what they want.
const PATIENCE: Duration = Duration::from_secs(10);

/// Listens in the directory of the box, where nobody does yet: we hold its lock.
pub(super) fn listen(dir: &Path) -> io::Result<UnixListener> {
    let place = super::directory(dir)?;
    match rustix::fs::unlinkat(&place, "socket", rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    UnixListener::bind(super::through(&place))
}

/// Serves until the process ends.
pub(super) fn serve(listener: &UnixListener, hub: &Arc<Hub>) {
    let busy = Arc::new(AtomicUsize::new(0));
    for line in listener.incoming().filter_map(Result::ok) {
        if !is_ours(&line) || busy.load(Ordering::Acquire) >= CONNECTIONS {
            tracing::warn!("connection is refused: another user, or too many at once");
            continue;
        }
        busy.fetch_add(1, Ordering::AcqRel);
        let (hub, busy) = (Arc::clone(hub), Arc::clone(&busy));
        logging::spawn(move || {
            attend(&line, &hub).ok(); // whoever asked may be gone
            tracing::trace!("connection is closed");
            busy.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Whether the one at the other end is our own user, or root.
fn is_ours(line: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(line)
        .is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

fn done(outcome: anyhow::Result<()>) -> Reply {
    outcome.map_or_else(|error| Reply::Refused(format!("{error:#}")), |()| Reply::Done)
}

/// Carries out an answer that is in the store.
fn answered(hub: &Hub, id: RequestId) -> Reply {
    let answered = match id.run == hub.run {
        true => hub.wires.lever.answered(id),
        false => Err(AnswerError::NoSuchQuestion),
    };
    let Err(error) = answered else { return Reply::Done };
    let kind = match error {
        AnswerError::NoSuchQuestion | AnswerError::NoClaim => ErrorKind::WrongState,
        AnswerError::OtherDigest => ErrorKind::Conflict,
        AnswerError::Damaged(_) => ErrorKind::Damaged,
        AnswerError::Failed(_) => ErrorKind::Unrecorded,
    };
    Reply::Failed { kind, message: error.to_string() }
}

fn attend(line: &UnixStream, hub: &Hub) -> io::Result<()> {
    line.set_read_timeout(Some(PATIENCE))?;
    let Some(request) = protocol::receive::<Request>(line)? else { return Ok(()) };
    tracing::debug!(request = request.name(), "supervisor is asked");
    let reply = match request {
        Request::Status => Reply::Status(hub.live()),
        Request::Pause => return pause(line, hub),
        Request::Stop { now } => {
            // First: a program that ends at once takes this process along before it could answer.
            let told = protocol::send(line, &Reply::Done);
            hub.stop(now);
            return told;
        }
        Request::Network(said) => done(hub.wires.change(&said)),
        Request::ApprovalAnswered { run, number } => answered(hub, RequestId { run, number }),
        Request::Attach { size, read_only } => {
            return viewers::attend(line, hub, size, read_only);
        }
        Request::Exec(wish) => return guests::attend(line, hub, wish),
    };
    protocol::send(line, &reply)
}

/// Keeps the box still until whoever asked closes the line.
fn pause(line: &UnixStream, hub: &Hub) -> io::Result<()> {
    let none = || io::Error::other("it has no door");
    let paused = match hub.door().ok_or_else(none).and_then(Door::pause) {
        Ok(paused) => paused,
        Err(error) => {
            return protocol::send(line, &Reply::Refused(format!("it cannot be paused: {error}")));
        }
    };
    protocol::send(line, &Reply::Done)?;
    line.set_read_timeout(None)?;
    io::Read::read(&mut &*line, &mut [0])?;
    drop(paused);
    Ok(())
}
