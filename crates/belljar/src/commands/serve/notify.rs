//! Reports the state of the server to systemd (sd_notify(3)).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use belljar_engine::host::HostEnv;

/// Sends a state such as `READY=1`. Does nothing without systemd. A state that cannot be sent is not an
/// error of the server.
pub(super) fn send(host: &HostEnv, state: &str) {
    let Some(path) = host.variable("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        Some((b'/', _)) => SocketAddr::from_pathname(path),
        _ => return,
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    });
    if sent.is_err() {
        tracing::warn!("the state of the server cannot be sent to systemd");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_sent_to_the_socket_of_systemd() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let host = HostEnv::new([("NOTIFY_SOCKET".into(), path.into())], "/proc/self/exe".into());
        send(&host, "READY=1");
        let mut buffer = [0; 16];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        send(&HostEnv::new([], "/proc/self/exe".into()), "READY=1"); // nothing to do
    }
}
