//! The section `[serve]` of `belljar.toml`: address, name and certificate of the server `belljar serve`.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// The settings of the server. A server without settings listens on the loopback interface only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeConfig {
    pub listen: Option<SocketAddr>,
    /// The public name of the server, which clients send in the header `Host`.
    pub host: Option<ServeHost>,
    /// The files of the certificate chain and of its key, both in PEM.
    pub certificate: Option<CertificateFiles>,
    /// The requests per second of one principal that change nothing.
    pub reads_per_second: Option<NonZeroU32>,
    /// The other requests per second of one principal.
    pub writes_per_second: Option<NonZeroU32>,
}

/// The paths of a certificate chain and of its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// The name of a server in DNS, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServeHost(String);

/// The reason why a text is not a valid name of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid host name; write a name such as `belljar.example.com`, without a scheme or a port"
)]
pub struct ServeHostError;

const MAX_NAME: usize = 253; // characters of a name in DNS
const MAX_LABEL: usize = 63;

impl ServeHost {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServeHost {
    type Err = ServeHostError;

    fn from_str(text: &str) -> Result<Self, ServeHostError> {
        let name = text.to_ascii_lowercase();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = |label: &str| {
            (1..=MAX_LABEL).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(plain)
        };
        // The last label of a name is not a number, so a name is never an address.
        let is_address =
            name.rsplit('.').next().is_some_and(|it| it.bytes().all(|b| b.is_ascii_digit()));
        if name.len() > MAX_NAME || is_address || !name.split('.').all(is_label) {
            return Err(ServeHostError);
        }
        Ok(Self(name))
    }
}

impl fmt::Display for ServeHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_host_accepts_names_and_refuses_addresses_ports_and_schemes() {
        for (text, name) in [("belljar.example.com", "belljar.example.com"), ("Box-1", "box-1")] {
            assert_eq!(text.parse::<ServeHost>().unwrap().as_str(), name);
        }
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a_b",
            "a b",
            "a:1",
            "https://a",
            "a/b",
            "*.a",
            "127.0.0.1",
            "::1",
            "[::1]",
            "\u{e9}.example",
            &"a".repeat(64),
            &"a.".repeat(200),
        ] {
            assert_eq!(text.parse::<ServeHost>(), Err(ServeHostError), "{text}");
        }
    }
}
