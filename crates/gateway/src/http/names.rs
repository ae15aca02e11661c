//! The allowed values of the headers `Host` and `Origin`.
//!
//! A browser that is led here by DNS rebinding sends the attacker's name in `Host`, and a page of
//! another site sends its site in `Origin`. A page can choose neither. An address is safe: a client
//! that uses the server's own address was not led here by a name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use http::uri::{Authority, Uri};

use crate::error::ServeError;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The host names and origins that the server accepts.
#[derive(Debug, Clone)]
pub(crate) struct AllowedNames {
    hosts: BTreeSet<String>,
    origins: BTreeSet<(String, String, Option<u16>)>,
}

impl AllowedNames {
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Result<Self, ServeError> {
        let bad_host = |text: &String| ServeError::BadHost(text.clone());
        let bad_origin = |text: &String| ServeError::BadOrigin(text.clone());
        let hosts = hosts.iter().map(|text| host(text).ok_or_else(|| bad_host(text)));
        let origins = origins.iter().map(|text| origin(text).ok_or_else(|| bad_origin(text)));
        let mut hosts = hosts.collect::<Result<BTreeSet<_>, _>>()?;
        hosts.extend(LOOPBACK.map(str::to_owned));
        Ok(Self { hosts, origins: origins.collect::<Result<_, _>>()? })
    }

    /// Returns whether the server accepts a request with this `Host` header. `local` is the local
    /// address of the connection.
    pub(crate) fn allows_host(&self, header: &str, local: IpAddr) -> bool {
        host(header).is_some_and(|host| self.is_ours(&host, local))
    }

    /// Returns whether a page of this origin can call the server: it is on the list, or its host is
    /// this server.
    pub(crate) fn allows_origin(&self, header: &str, local: IpAddr) -> bool {
        let Some((scheme, host, port)) = origin(header) else { return false };
        self.is_ours(&host, local) || self.origins.contains(&(scheme, host, port))
    }

    fn is_ours(&self, host: &str, local: IpAddr) -> bool {
        let address =
            host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical() == local.to_canonical());
        address || self.hosts.contains(host)
    }
}

/// Returns the host of a text `host[:port]` in normalized form. A value with user information is
/// invalid.
fn host(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok()?;
    (!text.contains('@')).then(|| normalized(authority.host())).filter(|host| !host.is_empty())
}

fn origin(text: &str) -> Option<(String, String, Option<u16>)> {
    let uri: Uri = text.parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let host = host(uri.authority()?.as_str())?;
    let bare = uri.path() == "/" && uri.query().is_none() && !text.ends_with('/');
    let standard = if scheme == "http" { 80 } else { 443 };
    let port = uri.port_u16().filter(|port| *port != standard);
    bare.then(|| (scheme.to_owned(), host, port))
}

fn normalized(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn names() -> AllowedNames {
        AllowedNames::new(&["box.example".to_owned()], &["https://app.example".to_owned()]).unwrap()
    }

    #[test]
    fn f04_only_names_of_this_server_and_its_own_address_are_allowed_hosts() {
        for host in [
            "localhost",
            "LOCALHOST:7070",
            "127.0.0.1:1",
            "[::1]:7070",
            "box.example",
            "192.0.2.7:7",
        ] {
            assert!(names().allows_host(host, HERE), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil.example:7070",
            "192.0.2.8",
            "127.0.0.1.evil.example",
            "evil.example@localhost",
            "localhost@evil.example",
            "localhost.",
            "0.0.0.0:7070",
            "2130706433",
            "",
            ":7070",
            "localhost, evil.example",
        ] {
            assert!(!names().allows_host(host, HERE), "{host}");
        }
        assert!(names().allows_host("192.0.2.7", "::ffff:192.0.2.7".parse().unwrap()));
    }

    #[test]
    fn f04_only_origins_of_this_server_or_on_the_list_are_allowed() {
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://[::1]:9",
            "https://app.example",
            "https://app.example:443",
            "https://box.example:8443",
        ] {
            assert!(names().allows_origin(origin, HERE), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://app.example",
            "https://app.example:8443",
            "https://app.example/",
            "https://app.example/path",
            "https://app.example@evil.example",
            "https://evil.example?https://app.example",
            "file://localhost",
            "chrome-extension://localhost",
            "localhost",
            "http://localhost.evil.example",
        ] {
            assert!(!names().allows_origin(origin, HERE), "{origin}");
        }
    }

    #[test]
    fn allowed_names_refuse_an_invalid_host_or_origin() {
        AllowedNames::new(&["a b".to_owned()], &[]).unwrap_err();
        AllowedNames::new(&[], &["app.example".to_owned()]).unwrap_err();
        AllowedNames::new(&[], &["*".to_owned()]).unwrap_err();
    }

    proptest::proptest! {
        #[test]
        fn allows_host_refuses_a_header_without_an_allowed_name(text in ".{0,40}") {
            let ours = ["localhost", "127.0.0.1", "::1", "box.example", "192.0.2.7"];
            if names().allows_host(&text, HERE) {
                let header = text.to_ascii_lowercase();
                proptest::prop_assert!(ours.iter().any(|name| header.contains(name)));
            }
        }
    }
}
