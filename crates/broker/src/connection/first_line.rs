//! The first line of a plain connection, which can name an absolute URL instead of a path.
//!
//! A client that sends `GET https://api.example.com/ HTTP/1.1` in clear text lets the broker do
//! TLS. As with a TLS hello, host and scheme then apply to the whole connection. Every request is
//! still parsed, compared with them and decided on its own; this module allows nothing.

use std::net::{IpAddr, Ipv4Addr};

use belljar_model::net::{self, Scheme, Target};

/// The IP address that clients dial without a DNS lookup; a documentation address (RFC 5737) of no
/// real host.
pub(super) const PROXY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The target that the first line of an HTTP connection names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FirstLine {
    /// The first line has no absolute URL, so the target is the dialled address.
    Dialled,
    Absolute(Scheme, Target),
    /// The first line is incomplete; more bytes are needed.
    Unfinished,
}

pub(super) fn parse(seen: &[u8]) -> FirstLine {
    let (line, is_whole) = match seen.iter().position(|byte| *byte == b'\n') {
        Some(end) => (seen.get(..end).unwrap_or_default(), true),
        None => (seen, false),
    };
    let mut words = line.split(|byte| *byte == b' ').skip(1);
    let target = words.next().unwrap_or_default();
    let is_target_whole = is_whole || words.next().is_some();
    for scheme in [Scheme::Http, Scheme::Https] {
        let prefix = format!("{}://", scheme.name());
        let (received, rest) = target.split_at(prefix.len().min(target.len()));
        let (expected, _) = prefix.as_bytes().split_at(received.len());
        if !received.eq_ignore_ascii_case(expected) {
            continue;
        }
        if !is_target_whole {
            return FirstLine::Unfinished;
        }
        if received.len() < prefix.len() {
            continue;
        }
        let host = rest.split(|byte| b"/?#".contains(byte)).next().unwrap_or_default();
        let host = str::from_utf8(host).ok().and_then(|host| net::authority(host).ok());
        return host.map_or(FirstLine::Dialled, |(host, _)| FirstLine::Absolute(scheme, host));
    }
    FirstLine::Dialled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let got = match parse(line.as_bytes()) {
            FirstLine::Dialled => "dialled".to_owned(),
            FirstLine::Absolute(scheme, host) => format!("{scheme} {host}"),
            FirstLine::Unfinished => "unfinished".to_owned(),
        };
        assert_eq!(got, expected, "{line:?}");
    }

    #[test]
    fn absolute_url_in_the_first_line_sets_scheme_and_host() {
        check("GET https://api.example.com/x HTTP/1.1\r\n", "https api.example.com");
        check("GET HTTPS://API.example.com:8443?x HTTP/1.1\r\n", "https api.example.com");
        check("POST http://api.example.com HTTP/1.1\r\nhost: x\r\n", "http api.example.com");
        check("GET https://[2001:db8::1]/ HTTP/1.1\r\n", "https [2001:db8::1]");
    }

    #[test]
    fn first_line_without_an_absolute_url_uses_the_dialled_target() {
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
    fn incomplete_first_line_is_read_until_it_cannot_be_an_absolute_url() {
        for line in ["GET", "GET ", "GET h", "GET https:/", "GET https://api.exa"] {
            check(line, "unfinished");
        }
        for line in ["GET /", "GET /https://", "GET x", "GET httpx"] {
            check(line, "dialled");
        }
        check("GET https://api.example.com/ ", "https api.example.com");
    }
}
