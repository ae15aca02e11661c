//! A network request as people write it: a method and a URL.

use std::fmt;
use std::str::FromStr;

use super::host::{Target, TargetError, authority};
use super::web::{Method, MethodError, Scheme};

/// A network request as people write it, such as `GET https://api.github.com/user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestLine {
    Http {
        scheme: Scheme,
        target: Target,
        port: u16,
        method: Method,
        /// The path with the query.
        path: String,
        /// Whether the request opens a WebSocket.
        upgrade: bool,
    },
    Tcp {
        target: Target,
        port: u16,
    },
}

/// The reason why a text is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestLineError {
    #[error("invalid method: {0}")]
    Method(MethodError),
    #[error("invalid URL {url}: {reason}")]
    Url { url: String, reason: UrlFault },
}

/// The part of a URL at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlFault {
    Target(TargetError),
    TcpPort,
    Scheme,
}

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(error) => error.fmt(f),
            Self::TcpPort => f.write_str("a tcp URL needs a port"),
            Self::Scheme => f.write_str("the scheme must be https, http, wss, ws or tcp"),
        }
    }
}

impl RequestLine {
    /// Parses the URL of a request. The scheme is `https` if the URL has none.
    pub fn new(url: &str, method: &Method) -> Result<Self, RequestLineError> {
        let fault = |reason| RequestLineError::Url { url: url.to_owned(), reason };
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        // Clients never send the fragment after `#`.
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (target, port) = authority(host).map_err(|error| fault(UrlFault::Target(error)))?;
        let (scheme, upgrade) = match scheme {
            "https" => (Scheme::Https, false),
            "wss" => (Scheme::Https, true),
            "http" => (Scheme::Http, false),
            "ws" => (Scheme::Http, true),
            "tcp" => {
                let port = port.ok_or_else(|| fault(UrlFault::TcpPort))?;
                return Ok(Self::Tcp { target, port });
            }
            _ => return Err(fault(UrlFault::Scheme)),
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let port = port.unwrap_or(scheme.port());
        Ok(Self::Http { scheme, target, port, method: method.clone(), path, upgrade })
    }
}

impl FromStr for RequestLine {
    type Err = RequestLineError;

    /// Parses `METHOD URL`, or a URL alone, which stands for `GET`.
    fn from_str(text: &str) -> Result<Self, RequestLineError> {
        let (method, url) = text.split_once(' ').unwrap_or(("GET", text));
        Self::new(url, &method.parse().map_err(RequestLineError::Method)?)
    }
}

impl fmt::Display for RequestLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { scheme, target, port, method, path, upgrade: _ } => {
                write!(f, "{method} {scheme}://{target}")?;
                if *port != scheme.port() {
                    write!(f, ":{port}")?;
                }
                f.write_str(path)
            }
            Self::Tcp { target, port } => write!(f, "tcp://{target}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_line_has_a_method_and_a_url() {
        for (text, expect) in [
            ("POST https://a.example/x?y#z", "POST https://a.example/x?y"),
            ("https://a.example", "GET https://a.example/"),
            ("a.example:8443", "GET https://a.example:8443/"),
            ("GET wss://a.example/s", "GET https://a.example/s"),
            ("GET http://a.example:80/", "GET http://a.example/"),
            ("tcp://db.example:5432", "tcp://db.example:5432"),
        ] {
            assert_eq!(text.parse::<RequestLine>().unwrap().to_string(), expect, "{text}");
        }
    }

    #[test]
    fn invalid_request_line_is_refused_with_its_reason() {
        for (text, expect) in [
            ("", "invalid URL "),
            ("GET https://", "invalid URL https://"),
            ("GET ftp://a.example", "the scheme must be"),
            ("GET tcp://a.example", "a tcp URL needs a port"),
            ("GET https://u@a.example/", "invalid URL"),
            ("GET a b", "invalid URL a b"),
            ("G\u{e9}T a.example", "invalid method"),
        ] {
            let error = text.parse::<RequestLine>().unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }
}
