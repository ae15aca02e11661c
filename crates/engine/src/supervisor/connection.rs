//! Sends and receives messages of [`super::protocol`] on a blocking socket.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use belljar_init::wire as descriptors;
use belljar_wire::{self as wire, FrameError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{BUILD, FromSupervisor, Hello, MAX_REQUEST, PROTOCOL, ToSupervisor};
use crate::error::{EngineError, ErrorKind};

/// Encodes a message as one frame.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    wire::encode(message)
}

/// Sends one message over a connection.
pub fn send<T: Serialize>(mut to: &UnixStream, message: &T) -> io::Result<()> {
    wire::write(&mut to, message)
}

/// Sends a [`Hello`] and the first request to a supervisor with one write.
pub(super) fn send_first(
    mut to: &UnixStream,
    hello: &Hello,
    message: &ToSupervisor,
) -> io::Result<()> {
    let mut bytes = wire::encode(hello)?;
    bytes.extend(wire::encode(message)?);
    to.write_all(&bytes)
}

/// Receives one message, or `None` if the peer closed the connection.
pub fn receive<T: DeserializeOwned>(mut from: &UnixStream) -> io::Result<Option<T>> {
    wire::read(&mut from).map_err(io_error)
}

/// Receives one message of at most [`MAX_REQUEST`] bytes, or `None` if the peer closed the connection.
pub(super) fn receive_small<T: DeserializeOwned>(mut from: &UnixStream) -> io::Result<Option<T>> {
    wire::read_at_most(&mut from, MAX_REQUEST).map_err(io_error)
}

/// Sends file descriptors over a connection, after a message that announces them.
pub(super) fn send_descriptors(to: &UnixStream, list: &[BorrowedFd<'_>]) -> io::Result<()> {
    descriptors::send(to.as_fd(), &0_u8, list)
}

/// Receives the file descriptors that follow a message.
pub fn receive_descriptors(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let received = descriptors::receive::<u8>(from.as_fd(), 1)?;
    Ok(received.map(|(_, list)| list).unwrap_or_default())
}

/// Returns an error if the `hello` of a peer has another protocol version. `peer` names the peer in the
/// error.
pub(super) fn check_protocol(peer: &str, hello: &Hello) -> Result<(), EngineError> {
    if hello.protocol == PROTOCOL {
        return Ok(());
    }
    let Hello { protocol, build, .. } = hello;
    let text = format!(
        "{peer} is belljar {build} (protocol {protocol}), but this is belljar {BUILD} (protocol {PROTOCOL}); use the same version for both"
    );
    Err(EngineError::message(ErrorKind::Version, text))
}

/// Converts an error into the message that reports it to a client.
pub(super) fn failure(error: &EngineError) -> FromSupervisor {
    FromSupervisor::Failed { kind: error.kind(), message: format!("{error:#}") }
}

/// Converts an error of a frame into an I/O error.
fn io_error(error: FrameError) -> io::Error {
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
    fn check_protocol_refuses_a_hello_of_another_protocol_and_names_both_builds() {
        check_protocol("the supervisor", &Hello::of_supervisor()).unwrap();
        let mut hello = Hello::of_supervisor();
        (hello.protocol, hello.build) = (9, "7.0.0".to_owned());
        let error = check_protocol("the supervisor", &hello).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let text = error.to_string();
        assert!(text.contains("7.0.0 (protocol 9)") && text.contains(BUILD), "{text}");
    }

    #[test]
    fn receive_ignores_unknown_fields_in_the_hello_of_a_later_version() {
        let (receiver, sender) = UnixStream::pair().unwrap();
        let later = serde_json::json!({ "protocol": 9, "build": "7.0.0", "features": ["x"] });
        send(&sender, &later).unwrap();
        let hello = receive::<Hello>(&receiver).unwrap().unwrap();
        assert_eq!((hello.protocol, hello.pid), (9, None));
    }

    #[test]
    fn receive_small_refuses_a_request_above_the_size_limit_before_reading_its_content() {
        let (receiver, sender) = UnixStream::pair().unwrap();
        let length = u32::try_from(MAX_REQUEST + 1).unwrap();
        (&sender).write_all(&length.to_le_bytes()).unwrap();
        assert!(receive_small::<ToSupervisor>(&receiver).is_err());
        // Control: a small request is read from the same kind of socket.
        let (receiver, sender) = UnixStream::pair().unwrap();
        send(&sender, &ToSupervisor::Status).unwrap();
        assert!(matches!(receive_small(&receiver), Ok(Some(ToSupervisor::Status))));
    }
}
