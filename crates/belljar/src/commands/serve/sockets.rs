//! Takes over the listening sockets that systemd passes to a service (sd_listen_fds(3)).

use std::ffi::OsStr;
use std::net::TcpListener;

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::host::HostEnv;
use rustix::net::AddressFamily;

/// The first descriptor that systemd passes.
const FIRST: i32 = 3;
/// The maximum number of sockets.
const MAX: i32 = 16;

/// Returns the sockets that systemd passed to this process, in order. Empty without socket activation.
pub(super) fn from_systemd(host: &HostEnv) -> Result<Vec<TcpListener>, EngineError> {
    let number = |name: &str| host.variable(name).and_then(OsStr::to_str)?.parse::<i32>().ok();
    // The variables are inherited by children, for which they are not meant.
    let own = i32::try_from(std::process::id()).ok();
    let count = match number("LISTEN_FDS") {
        Some(count) if number("LISTEN_PID") == own => count,
        _ => return Ok(Vec::new()),
    };
    if !(1..=MAX).contains(&count) {
        return Err(invalid(format!("LISTEN_FDS must be a number from 1 to {MAX}")));
    }
    (FIRST..FIRST + count).map(socket).collect()
}

fn socket(number: i32) -> Result<TcpListener, EngineError> {
    let socket = belljar_sys::exec::adopt_listener(number)
        .with_context(|| format!("LISTEN_FDS: descriptor {number} is no listening socket"))
        .kind(ErrorKind::Invalid)?;
    let family = rustix::net::getsockname(&socket).map(|address| address.address_family());
    if !matches!(family, Ok(AddressFamily::INET | AddressFamily::INET6)) {
        return Err(invalid(format!("LISTEN_FDS: descriptor {number} is no TCP socket")));
    }
    Ok(TcpListener::from(socket))
}
