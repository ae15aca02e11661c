//! Serves the clients of a named box, each on its own thread.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_box::ExecChannel;

use super::client::{open_directory, socket_in};
use super::connection::{self, receive_small, send};
use super::protocol::{FromSupervisor, Hello, ToSupervisor};
use super::session::BoxSession;
use super::{exec, forwards, kept_execs, viewers};
use crate::approvals::RequestId;
use crate::error::ErrorKind;
use crate::logging;
use crate::network::broker::control::AnswerError;

/// The maximum number of clients that are served at once. Further connections are closed.
const MAX_CLIENTS: usize = 64;
/// The time that a client has to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the socket of a box in its directory. The caller must hold the lock of the box, so that no other
/// process listens on the socket.
pub(crate) fn bind(dir: &Path) -> io::Result<UnixListener> {
    let directory = open_directory(dir)?;
    match rustix::fs::unlinkat(&directory, "socket", rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    UnixListener::bind(socket_in(&directory))
}

/// Serves the clients of a box until the supervisor exits.
pub(super) fn serve(socket: &UnixListener, session: &Arc<BoxSession>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in socket.incoming().filter_map(Result::ok) {
        if !is_own_user(&client) || clients.load(Ordering::Acquire) >= MAX_CLIENTS {
            tracing::warn!("connection is refused: wrong user or too many clients");
            continue;
        }
        clients.fetch_add(1, Ordering::AcqRel);
        let (session, clients) = (Arc::clone(session), Arc::clone(&clients));
        logging::spawn(move || {
            serve_one(&client, &session).ok(); // the client may have disconnected
            tracing::trace!("connection is closed");
            clients.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Returns whether the client runs as the same user as the supervisor, or as root.
pub(crate) fn is_own_user(client: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(client)
        .is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Reads the request of one client and carries it out.
fn serve_one(client: &UnixStream, session: &Arc<BoxSession>) -> io::Result<()> {
    client.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    send(client, &Hello::of_supervisor())?;
    let Some(hello) = receive_small::<Hello>(client)? else { return Ok(()) };
    let Some(request) = receive_small::<ToSupervisor>(client)? else { return Ok(()) };
    tracing::debug!(request = request.name(), "client sent a request");
    if let (Err(error), false) =
        (connection::check_protocol("the client", &hello), request.is_stop())
    {
        return send(client, &connection::failure(&error));
    }
    let response = match request {
        ToSupervisor::Stop { now } => {
            // The response is sent first, because this process may exit as soon as the program ends.
            let sent = send(client, &FromSupervisor::Ok);
            session.stop(now);
            return sent;
        }
        ToSupervisor::Pause => return pause(client, session),
        ToSupervisor::PauseUntilResumed => pause_until_resumed(session),
        ToSupervisor::Resume => match session.target.pauses.resume(&session.target.dir()) {
            Ok(()) => FromSupervisor::Ok,
            Err(error) => session.target.refused(&format!("cannot resume the box: {error}")),
        },
        ToSupervisor::Attach { size, read_only } => {
            return viewers::attach(client, session, size, read_only);
        }
        ToSupervisor::Exec(spec) => match hello.caller {
            Some(caller) => return exec::run(client, &session.target, &caller, spec),
            None => session.target.refused("the request of the client names no caller"),
        },
        ToSupervisor::ExecFiles(arguments) => match hello.caller {
            Some(caller) => return exec::run_files(client, &session.target, &caller, arguments),
            None => session.target.refused("the request of the client names no caller"),
        },
        ToSupervisor::StartExec { id, spec } => match hello.caller {
            Some(caller) => kept_execs::start(session, client, &caller, (id, spec))?,
            None => session.target.refused("the request of the client names no caller"),
        },
        ToSupervisor::DescribeExec(id) => session.execs.status(id),
        ToSupervisor::ListExecs => session.execs.list(),
        ToSupervisor::SignalExec { id, signal } => session.execs.signal(id, signal),
        ToSupervisor::AttachExec { id, stdout, stderr } => {
            return kept_execs::attach(session, client, id, [stdout, stderr]);
        }
        ToSupervisor::Status => FromSupervisor::Status(session.live()),
        ToSupervisor::Forward(forward) => {
            let peer = rustix::net::sockopt::socket_peercred(client)?;
            forwards::open(session, forward, peer.uid.as_raw())
        }
        ToSupervisor::RemoveForward { host_port } => forwards::remove(session, host_port),
        ToSupervisor::SetNetwork(change) => match session.rules.change(&change) {
            Ok(()) => FromSupervisor::Ok,
            Err(error) => session.target.refused(&format!("{error:#}")),
        },
        ToSupervisor::ReloadRules => {
            let target = &session.target;
            match session.rules.reload(&target.scoped, &target.name) {
                Ok(()) => FromSupervisor::Ok,
                Err(error) => target.refused(&format!("{error:#}")),
            }
        }
        ToSupervisor::ApprovalAnswered { run, number } => {
            approval_answered(session, RequestId { run, number })
        }
        other @ (ToSupervisor::Prepare(_)
        | ToSupervisor::Start(_)
        | ToSupervisor::Cancel
        | ToSupervisor::ToolAnswer { .. }
        | ToSupervisor::Extend(_)
        | ToSupervisor::Keys(_)
        | ToSupervisor::Resize(_)
        | ToSupervisor::Scroll(_)
        | ToSupervisor::Signal(_)) => session
            .target
            .refused(&format!("a named box does not support the request `{}`", other.name())),
    };
    send(client, &response)
}

/// Carries out the operator's answer to a question, after the answer was written to the store.
fn approval_answered(session: &BoxSession, id: RequestId) -> FromSupervisor {
    let answered = match id.run == session.target.run {
        true => session.rules.control.apply_answer(id),
        false => Err(AnswerError::NoSuchRequest),
    };
    let Err(error) = answered else { return FromSupervisor::Ok };
    let kind = match error {
        AnswerError::NoSuchRequest | AnswerError::NoClaim => ErrorKind::WrongState,
        AnswerError::OtherDigest => ErrorKind::Conflict,
        AnswerError::Damaged(_) => ErrorKind::Damaged,
        AnswerError::Failed(_) => ErrorKind::Unrecorded,
    };
    FromSupervisor::Failed { kind, message: error.to_string() }
}

/// Pauses the box until the client closes the connection.
fn pause(client: &UnixStream, session: &BoxSession) -> io::Result<()> {
    let paused = match exec_channel(session).and_then(|it| session.target.pauses.pause(it)) {
        Ok(paused) => paused,
        Err(error) => return send(client, &cannot_pause(session, &error)),
    };
    send(client, &FromSupervisor::Ok)?;
    client.set_read_timeout(None)?;
    io::Read::read(&mut &*client, &mut [0])?;
    drop(paused);
    Ok(())
}

/// Pauses the box until it is resumed or stopped.
fn pause_until_resumed(session: &BoxSession) -> FromSupervisor {
    let target = &session.target;
    match exec_channel(session).and_then(|it| target.pauses.keep(it, &target.dir())) {
        Ok(()) => FromSupervisor::Ok,
        Err(error) => cannot_pause(session, &error),
    }
}

fn exec_channel(session: &BoxSession) -> io::Result<&ExecChannel> {
    let no_channel = || io::Error::other("this box cannot start additional programs");
    session.target.channel().ok_or_else(no_channel)
}

fn cannot_pause(session: &BoxSession, error: &io::Error) -> FromSupervisor {
    session.target.refused(&format!("cannot pause the box: {error}"))
}
