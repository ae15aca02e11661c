//! Stopping a box that Belljar 0.1 supervises: the only request of protocol 1 that is still sent.

use std::io;
use std::os::unix::net::UnixStream;

use belljar_wire as wire;
use serde::{Deserialize, Serialize};

use super::connection::receive;
use super::protocol::{FromSupervisor, ToSupervisor};
use crate::error::ErrorKind;

/// A request of protocol 1.
#[derive(Debug, Serialize)]
enum Request {
    Stop { now: bool },
}

/// The answers of protocol 1 to that request.
#[derive(Debug, Deserialize)]
enum Reply {
    Done,
    Refused(String),
}

/// Sends a request to stop. Every other request was refused before the connection was made.
pub(super) fn stop(
    mut connection: &UnixStream,
    request: &ToSupervisor,
) -> io::Result<Option<FromSupervisor>> {
    let ToSupervisor::Stop { now } = request else {
        return Err(io::Error::other("belljar 0.1 supervises the box; it can only be stopped"));
    };
    wire::write(&mut connection, &Request::Stop { now: *now })?;
    Ok(receive::<Reply>(connection)?.map(|reply| match reply {
        Reply::Done => FromSupervisor::Ok,
        Reply::Refused(message) => FromSupervisor::Failed { kind: ErrorKind::Invalid, message },
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// The bytes that a supervisor of 0.1 reads and writes.
    fn frame(json: &str) -> Vec<u8> {
        let length = u32::try_from(json.len()).unwrap().to_le_bytes();
        [&length[..], json.as_bytes()].concat()
    }

    #[test]
    fn stop_request_has_the_bytes_of_protocol_1() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&frame("\"Done\"")).unwrap();
        let answer = stop(&ours, &ToSupervisor::Stop { now: true }).unwrap();
        assert!(matches!(answer, Some(FromSupervisor::Ok)), "{answer:?}");
        let expected = frame(r#"{"Stop":{"now":true}}"#);
        let mut sent = vec![0; expected.len()];
        theirs.read_exact(&mut sent).unwrap();
        assert_eq!(sent, expected);
    }

    #[test]
    fn refusal_of_protocol_1_is_an_error_with_its_reason() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&frame(r#"{"Refused":"no"}"#)).unwrap();
        let answer = stop(&ours, &ToSupervisor::Stop { now: false }).unwrap();
        let Some(FromSupervisor::Failed { message, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(message, "no");
    }

    #[test]
    fn other_requests_are_never_sent_to_protocol_1() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        stop(&ours, &ToSupervisor::Status).unwrap_err();
        drop(ours);
        let mut sent = Vec::new();
        (&theirs).read_to_end(&mut sent).unwrap();
        assert!(sent.is_empty(), "{sent:?}");
    }
}
