//! Sending and receiving messages of [`super::protocol`] on a blocking socket.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use belljar_init::wire as descriptors;
use belljar_wire::{self as wire, FrameError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{BUILD, FromSupervisor, Hello, MAX_REQUEST, PROTOCOL, ToSupervisor};
use crate::error::{EngineError, ErrorKind};

/// The bytes of one message.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    wire::encode(message)
}

/// Sends one message.
pub fn send<T: Serialize>(mut to: &UnixStream, message: &T) -> io::Result<()> {
    wire::write(&mut to, message)
}

/// Sends a greeting and a message with one write.
pub(super) fn send_first(
    mut to: &UnixStream,
    hello: &Hello,
    message: &ToSupervisor,
) -> io::Result<()> {
    let mut bytes = wire::encode(hello)?;
    bytes.extend(wire::encode(message)?);
    to.write_all(&bytes)
}

/// Receives one message of any allowed size. `None`: the other side closed the connection.
pub fn receive<T: DeserializeOwned>(mut from: &UnixStream) -> io::Result<Option<T>> {
    wire::read(&mut from).map_err(failed)
}

/// Receives one message of a client that may be large only by mistake.
pub(super) fn receive_small<T: DeserializeOwned>(mut from: &UnixStream) -> io::Result<Option<T>> {
    wire::read_at_most(&mut from, MAX_REQUEST).map_err(failed)
}

/// Sends descriptors after a message that announces them.
pub(super) fn send_descriptors(to: &UnixStream, list: &[BorrowedFd<'_>]) -> io::Result<()> {
    descriptors::send(to.as_fd(), &0_u8, list)
}

/// Receives the descriptors that follow a message.
pub fn receive_descriptors(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let received = descriptors::receive::<u8>(from.as_fd(), 1)?;
    Ok(received.map(|(_, list)| list).unwrap_or_default())
}

/// Refuses a side of another protocol. `who` names the other side in the message.
pub(super) fn check(who: &str, theirs: &Hello) -> Result<(), EngineError> {
    if theirs.protocol == PROTOCOL {
        return Ok(());
    }
    let Hello { protocol, build, .. } = theirs;
    let text = format!(
        "{who} is belljar {build} (protocol {protocol}), and this is belljar {BUILD} (protocol {PROTOCOL}); use the same version for both"
    );
    Err(EngineError::message(ErrorKind::Version, text))
}

/// The message that reports an error to a client.
pub(super) fn failure(error: &EngineError) -> FromSupervisor {
    FromSupervisor::Failed { kind: error.kind(), message: format!("{error:#}") }
}

fn failed(error: FrameError) -> io::Error {
    match error {
        FrameError::Read { source } => source,
        error @ (FrameError::TooLong { .. } | FrameError::Malformed { .. }) => {
            io::Error::other(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_of_another_protocol_is_refused_and_both_builds_are_named() {
        check("the supervisor", &Hello::of_supervisor()).unwrap();
        let theirs = Hello { protocol: 9, build: "7.0.0".to_owned(), ..Hello::of_supervisor() };
        let error = check("the supervisor", &theirs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let text = error.to_string();
        assert!(text.contains("7.0.0 (protocol 9)") && text.contains(BUILD), "{text}");
    }

    #[test]
    fn hello_of_a_later_version_with_unknown_fields_is_read() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let later = serde_json::json!({ "protocol": 9, "build": "7.0.0", "features": ["x"] });
        send(&theirs, &later).unwrap();
        let hello = receive::<Hello>(&ours).unwrap().unwrap();
        assert_eq!((hello.protocol, hello.pid), (9, None));
    }

    #[test]
    fn request_above_the_limit_is_refused_before_it_is_read() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let length = u32::try_from(MAX_REQUEST + 1).unwrap();
        (&theirs).write_all(&length.to_le_bytes()).unwrap();
        assert!(receive_small::<ToSupervisor>(&ours).is_err());
        // Control: a request of usual size is read from the same kind of socket.
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&theirs, &ToSupervisor::Status).unwrap();
        assert!(matches!(receive_small(&ours), Ok(Some(ToSupervisor::Status))));
    }
}
