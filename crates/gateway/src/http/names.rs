//! Under which names this server may be spoken to, and from which pages.
//!
//! A browser that was led here by a name of its own (DNS rebinding) says that name in `Host`, and a page
//! that sends requests across says where it came from in `Origin`. Neither can be chosen by the page. An
//! address is no name: who reached us by the address that we have has not been led here by a name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use http::uri::{Authority, Uri};

use crate::error::ServeError;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The names and origins that are let through.
#[derive(Debug, Clone)]
pub(super) struct Names {
    hosts: BTreeSet<String>,
    origins: BTreeSet<(String, String, Option<u16>)>,
}

impl Names {
    pub(super) fn new(hosts: &[String], origins: &[String]) -> Result<Self, ServeError> {
        let bad_host = |text: &String| ServeError::BadHost(text.clone());
        let bad_origin = |text: &String| ServeError::BadOrigin(text.clone());
        let hosts = hosts.iter().map(|text| host(text).ok_or_else(|| bad_host(text)));
        let origins = origins.iter().map(|text| origin(text).ok_or_else(|| bad_origin(text)));
        let mut hosts = hosts.collect::<Result<BTreeSet<_>, _>>()?;
        hosts.extend(LOOPBACK.map(str::to_owned));
        Ok(Self { hosts, origins: origins.collect::<Result<_, _>>()? })
    }

    /// Whether `Host` names us. `local` is the address that the connection came to.
    pub(super) fn allows_host(&self, said: &str, local: IpAddr) -> bool {
        host(said).is_some_and(|host| self.is_ours(&host, local))
    }

    /// Whether a page of this origin may speak to us: one of the list, or one that we could serve.
    pub(super) fn allows_origin(&self, said: &str, local: IpAddr) -> bool {
        let Some((scheme, host, port)) = origin(said) else { return false };
        self.is_ours(&host, local) || self.origins.contains(&(scheme, host, port))
    }

    fn is_ours(&self, host: &str, local: IpAddr) -> bool {
        let address =
            host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical() == local.to_canonical());
        address || self.hosts.contains(host)
    }
}

/// The host of `host[:port]`, in one spelling. A name with a user before it is not a name.
fn host(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok()?;
    (!text.contains('@')).then(|| spelled(authority.host())).filter(|host| !host.is_empty())
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

fn spelled(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn names() -> Names {
        Names::new(&["box.example".to_owned()], &["https://app.example".to_owned()]).unwrap()
    }

    #[test]
    fn f04_only_our_own_names_and_the_address_that_was_reached_are_hosts() {
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
    fn f04_only_pages_from_here_or_from_the_list_are_origins() {
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
    fn a_list_with_something_else_in_it_is_not_taken() {
        Names::new(&["a b".to_owned()], &[]).unwrap_err();
        Names::new(&[], &["app.example".to_owned()]).unwrap_err();
        Names::new(&[], &["*".to_owned()]).unwrap_err();
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic_or_pass(text in ".{0,40}") {
            let ours = ["localhost", "127.0.0.1", "::1", "box.example", "192.0.2.7"];
            if names().allows_host(&text, HERE) {
                let said = text.to_ascii_lowercase();
                proptest::prop_assert!(ours.iter().any(|name| said.contains(name)));
            }
        }
    }
}
