//! Parser for `[serve]`, the settings of the server `belljar serve`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use super::Config;
use super::keys::{Invalid, ParseValue, Value, invalid, number, path, scalar, set, table};
use super::quota;
use crate::mount::anchor;
use crate::quota::Quota;
use crate::serve::{CertificateFiles, ServeConfig, ServeHost};

/// The parsed keys of the section, before they are checked together.
#[derive(Debug, Default)]
struct Raw {
    listen: Option<SocketAddr>,
    host: Option<ServeHost>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    reads: Option<NonZeroU32>,
    writes: Option<NonZeroU32>,
    quota: Option<Quota>,
}

const KEYS: [(&str, ParseValue<Raw>); 7] = [
    ("listen", |raw, value| set(&mut raw.listen, listen(value))),
    ("host", |raw, value| set(&mut raw.host, scalar(value))),
    ("cert", |raw, value| set(&mut raw.cert, path(value))),
    ("key", |raw, value| set(&mut raw.key, path(value))),
    ("reads-per-second", |raw, value| set(&mut raw.reads, rate(value))),
    ("writes-per-second", |raw, value| set(&mut raw.writes, rate(value))),
    ("quota", |raw, value| set(&mut raw.quota, quota::read(value))),
];

/// Parses the section `[serve]`, and the quotas of all tenants in it. Relative paths are relative to the
/// directory of `file`.
pub(super) fn read(value: &Value<'_>, file: &Path) -> Result<(ServeConfig, Quota), Invalid> {
    let mut raw = Raw::default();
    table(&mut raw, &KEYS, value)?;
    let Raw { listen, host, cert, key, reads, writes, quota } = raw;
    let base = file.parent().unwrap_or(Path::new(""));
    let certificate = match (cert, key) {
        (Some(chain), Some(key)) => Some(CertificateFiles {
            chain: anchor(&chain, base, None),
            key: anchor(&key, base, None),
        }),
        (None, None) => None,
        (Some(_), None) => return Err(invalid("`key` is missing; `cert` needs its private key")),
        (None, Some(_)) => return Err(invalid("`cert` is missing; `key` needs its certificate")),
    };
    let (reads_per_second, writes_per_second) = (reads, writes);
    let settings = ServeConfig { listen, host, certificate, reads_per_second, writes_per_second };
    Ok((settings, quota.unwrap_or_default()))
}

fn rate(value: &Value<'_>) -> Result<NonZeroU32, Invalid> {
    /// The maximum number of requests per second.
    const MAX: u32 = 1_000_000;
    let rate = NonZeroU32::new(number(value)?).filter(|rate| rate.get() <= MAX);
    rate.ok_or_else(|| invalid("must be a number from 1 to 1000000"))
}

fn listen(value: &Value<'_>) -> Result<SocketAddr, Invalid> {
    let address = super::keys::text(value)?.parse();
    address.map_err(|_| invalid("invalid address; write IP:PORT, for example \"127.0.0.1:7070\""))
}

impl Config {
    /// Returns the settings of the server.
    pub const fn serve(&self) -> &ServeConfig {
        &self.serve
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scope;

    fn parse(text: &str) -> Result<ServeConfig, String> {
        let config = Config::parse(text, Path::new("/etc/belljar/belljar.toml"), Scope::Operator);
        config.map(|config| config.serve().clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn serve_section_has_an_address_a_name_and_files_beside_the_configuration() {
        let text = "[serve]\nlisten = \"0.0.0.0:443\"\nhost = \"B.example\"\ncert = \"a.pem\"\nkey = \"/k/a.key\"\nreads-per-second = 500";
        let certificate = CertificateFiles {
            chain: PathBuf::from("/etc/belljar/a.pem"),
            key: PathBuf::from("/k/a.key"),
        };
        let expect = ServeConfig {
            listen: Some("0.0.0.0:443".parse().unwrap()),
            host: Some("b.example".parse().unwrap()),
            certificate: Some(certificate),
            reads_per_second: NonZeroU32::new(500),
            writes_per_second: None,
        };
        assert_eq!(parse(text).unwrap(), expect);
        assert_eq!(parse("").unwrap(), ServeConfig::default());
    }

    #[test]
    fn serve_section_with_an_invalid_value_is_refused_with_its_line() {
        for (text, expect) in [
            (
                "[serve]\nlisten = \"localhost\"",
                "belljar.toml:2: `listen = \"localhost\"`: invalid address",
            ),
            ("[serve]\nhost = \"a:1\"", "belljar.toml:2: `host = \"a:1\"`: invalid host name"),
            ("[serve]\ncert = \"a.pem\"", "belljar.toml:1: "),
            ("[serve]\nkey = \"a.key\"", "`cert` is missing"),
            ("[serve]\nlisten_on = 1", "listen_on"),
            ("[serve]\nreads-per-second = 0", "must be a number from 1 to 1000000"),
            ("[serve]\nwrites-per-second = -1", "must be a whole number"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }
}
