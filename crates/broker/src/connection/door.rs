//! What a program says first that leaves TLS to the broker: a request line in absolute form.
//!
//! `GET https://api.example.com/ HTTP/1.1` in clear says as much as a TLS hello, and is held to as much:
//! the host that it names is that of the whole connection, and so is the scheme. Every request is still
//! read, checked against this and decided on its own; nothing here allows anything.

use std::net::{IpAddr, Ipv4Addr};

use belljar_model::net::{self, Scheme, Target};

/// Where a program dials that asks no name server: nobody's address (RFC 5737), so nobody else is meant.
pub(super) const DOOR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Whom the first line of a connection names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// What was dialled, as far as the line tells.
    Dialled,
    Absolute(Scheme, Target),
    /// More of the line must be read.
    Unfinished,
}

pub(super) fn named(seen: &[u8]) -> Named {
    let (line, is_whole) = match seen.iter().position(|byte| *byte == b'\n') {
        Some(end) => (seen.get(..end).unwrap_or_default(), true),
        None => (seen, false),
    };
    let mut words = line.split(|byte| *byte == b' ').skip(1);
    let target = words.next().unwrap_or_default();
    let is_target_whole = is_whole || words.next().is_some();
    for scheme in [Scheme::Http, Scheme::Https] {
        let prefix = format!("{}://", scheme.name());
        let (said, rest) = target.split_at(prefix.len().min(target.len()));
        let (expected, _) = prefix.as_bytes().split_at(said.len());
        if !said.eq_ignore_ascii_case(expected) {
            continue;
        }
        if !is_target_whole {
            return Named::Unfinished;
        }
        if said.len() < prefix.len() {
            continue;
        }
        let host = rest.split(|byte| b"/?#".contains(byte)).next().unwrap_or_default();
        let host = str::from_utf8(host).ok().and_then(|host| net::authority(host).ok());
        return host.map_or(Named::Dialled, |(host, _)| Named::Absolute(scheme, host));
    }
    Named::Dialled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let got = match named(line.as_bytes()) {
            Named::Dialled => "dialled".to_owned(),
            Named::Absolute(scheme, host) => format!("{scheme} {host}"),
            Named::Unfinished => "unfinished".to_owned(),
        };
        assert_eq!(got, expected, "{line:?}");
    }

    #[test]
    fn an_absolute_form_names_scheme_and_host() {
        check("GET https://api.example.com/x HTTP/1.1\r\n", "https api.example.com");
        check("GET HTTPS://API.example.com:8443?x HTTP/1.1\r\n", "https api.example.com");
        check("POST http://api.example.com HTTP/1.1\r\nhost: x\r\n", "http api.example.com");
        check("GET https://[2001:db8::1]/ HTTP/1.1\r\n", "https [2001:db8::1]");
    }

    #[test]
    fn anything_else_is_for_whom_was_dialled() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "GET /https://api.example.com/ HTTP/1.1\r\n",
            "OPTIONS * HTTP/1.1\r\n",
            "CONNECT api.example.com:443 HTTP/1.1\r\n",
            "GET ftp://api.example.com/ HTTP/1.1\r\n",
            "GET https:/api.example.com/ HTTP/1.1\r\n",
            "GET https:// HTTP/1.1\r\n",
            "GET https://user@api.example.com/ HTTP/1.1\r\n",
            "GET https://a\u{e4}.example/ HTTP/1.1\r\n",
            "GET  https://api.example.com/ HTTP/1.1\r\n",
            "GET http\r\n",
            "\r\n",
        ] {
            check(line, "dialled");
        }
    }

    #[test]
    fn a_line_is_read_on_only_while_it_may_still_be_absolute() {
        for line in ["GET", "GET ", "GET h", "GET https:/", "GET https://api.exa"] {
            check(line, "unfinished");
        }
        for line in ["GET /", "GET /https://", "GET x", "GET httpx"] {
            check(line, "dialled");
        }
        check("GET https://api.example.com/ ", "https api.example.com");
    }
}
