//! The port of the running server, from the lock file of the server.

use std::fs;
use std::path::Path;

use super::layout::Layout;
use super::lock;

/// Returns the TCP port of the server that uses a state directory. `None` if no server runs.
pub(crate) fn server_port(home: &Path) -> Option<u16> {
    let file = Layout::new(home.to_owned()).server_lock();
    if !lock::is_held(&file) {
        return None;
    }
    port(&fs::read_to_string(file).ok()?)
}

/// Returns the port of an address such as `http://name:7070`.
fn port(address: &str) -> Option<u16> {
    let (scheme, host) = address.trim().split_once("://")?;
    match host.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
        _ if scheme == "https" => Some(443),
        _ => Some(80),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_that_of_the_address_or_of_its_scheme() {
        assert_eq!(port("http://belljar-1.localhost:7070"), Some(7070));
        assert_eq!(port("https://belljar.example.com"), Some(443));
        assert_eq!(port("http://[::1]"), Some(80));
        assert_eq!(port("http://[::1]:81"), Some(81));
        for text in ["", "x", "http://a:b", "http://a:70000"] {
            assert_eq!(port(text), None, "{text}");
        }
    }
}
