//! Stops a box that a supervisor of Belljar 0.1 watches. No other request of protocol 1 is sent.

use std::io;
use std::os::unix::net::UnixStream;

use belljar_wire as wire;
use serde::{Deserialize, Serialize};

use super::connection::receive;
use super::protocol::{FromSupervisor, ToSupervisor};
use crate::error::ErrorKind;

/// The requests of protocol 1 that this build sends to supervisors of Belljar 0.1.
#[derive(Debug, Serialize)]
enum Request {
    Stop { now: bool },
}

/// The responses of protocol 1 to a request to stop a box.
#[derive(Debug, Deserialize)]
enum Reply {
    Done,
    Refused(String),
}

/// Sends a request to stop a box in the form of protocol 1, and returns the response in the current form.
/// Any other request is an error.
pub(super) fn stop(
    mut connection: &UnixStream,
    request: &ToSupervisor,
) -> io::Result<Option<FromSupervisor>> {
    let ToSupervisor::Stop { now } = request else {
        let text = "the supervisor of the box is belljar 0.1, which this version can only stop";
        return Err(io::Error::other(text));
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

    /// Returns the frame that a supervisor of Belljar 0.1 reads or writes for this JSON text.
    fn frame(json: &str) -> Vec<u8> {
        let length = u32::try_from(json.len()).unwrap().to_le_bytes();
        [&length[..], json.as_bytes()].concat()
    }

    #[test]
    fn stop_request_has_the_bytes_of_protocol_1() {
        let (client, mut supervisor) = UnixStream::pair().unwrap();
        supervisor.write_all(&frame("\"Done\"")).unwrap();
        let response = stop(&client, &ToSupervisor::Stop { now: true }).unwrap();
        assert!(matches!(response, Some(FromSupervisor::Ok)), "{response:?}");
        let expected = frame(r#"{"Stop":{"now":true}}"#);
        let mut sent = vec![0; expected.len()];
        supervisor.read_exact(&mut sent).unwrap();
        assert_eq!(sent, expected);
    }

    #[test]
    fn stop_returns_the_reason_when_a_supervisor_of_protocol_1_refuses() {
        let (client, mut supervisor) = UnixStream::pair().unwrap();
        supervisor.write_all(&frame(r#"{"Refused":"no"}"#)).unwrap();
        let response = stop(&client, &ToSupervisor::Stop { now: false }).unwrap();
        let Some(FromSupervisor::Failed { message, .. }) = response else { panic!("{response:?}") };
        assert_eq!(message, "no");
    }

    #[test]
    fn stop_sends_no_other_request_to_a_supervisor_of_protocol_1() {
        let (client, supervisor) = UnixStream::pair().unwrap();
        stop(&client, &ToSupervisor::Status).unwrap_err();
        drop(client);
        let mut sent = Vec::new();
        (&supervisor).read_to_end(&mut sent).unwrap();
        assert!(sent.is_empty(), "{sent:?}");
    }
}
