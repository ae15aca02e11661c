//! Parser for the sections of an operator's file that concern the machine instead of a template.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::de::DeValue;

use super::Config;
use super::keys::{Invalid, ParseValue, Value, fill, invalid, list, scalar, set, table};
use crate::mount::anchor;

const TLS: [(&str, ParseValue<Config>); 1] = [("roots", |config, value| {
    let roots = list::<PathBuf>(value)?;
    if roots.iter().any(|root| root.as_os_str().is_empty()) {
        return Err(invalid("a path in the list is empty"));
    }
    let base = config.file.parent().unwrap_or(Path::new("")).to_owned();
    fill(&mut config.roots, Ok(roots.iter().map(|root| anchor(root, &base, None)).collect()))
})];

const DNS: [(&str, ParseValue<Config>); 1] = [("servers", |config, value| {
    let servers = list::<NameServer>(value)?;
    if servers.is_empty() {
        return Err(invalid("the list is empty; name at least one server"));
    }
    fill(&mut config.dns, Ok(servers.into_iter().map(|NameServer(address)| address).collect()))
})];

/// The address of a DNS server, by default with port 53.
struct NameServer(SocketAddr);

impl FromStr for NameServer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| (ip, 53).into()));
        address.map(Self).map_err(|_| "invalid address; write IP or IP:PORT")
    }
}

const PROXY: [(&str, ParseValue<Config>); 1] =
    [("url", |config, value| set(&mut config.proxy, scalar(value)))];

const VAULT: [(&str, ParseValue<Config>); 1] =
    [("key-command", |config, value| set(&mut config.key_command, command(value)))];

/// Parses the section `[tls]`, `[dns]`, `[proxy]` or `[vault]`.
pub(super) fn read(config: &mut Config, section: &str, value: &Value<'_>) -> Result<(), Invalid> {
    match section {
        "tls" => table(config, &TLS, value),
        "dns" => table(config, &DNS, value),
        "proxy" => table(config, &PROXY, value),
        "vault" => table(config, &VAULT, value),
        _ => Err(invalid("unknown section")),
    }
}

/// Parses a command: a list, or a text without quotes that is split at whitespace.
pub(super) fn command(value: &Value<'_>) -> Result<Vec<String>, Invalid> {
    let words: Vec<String> = match value.get_ref() {
        DeValue::String(text) if text.contains(['"', '\'', '\\', '$', '`', '|', ';', '&']) => {
            return Err(invalid(
                "the command is not run by a shell; write a list of the program and its arguments",
            ));
        }
        DeValue::String(text) => text.split_whitespace().map(str::to_owned).collect(),
        DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => list(value)?,
    };
    match words.first() {
        Some(program) if !program.is_empty() && !words.iter().any(|it| it.contains('\0')) => {
            Ok(words)
        }
        Some(_) | None => {
            Err(invalid("the program is missing; write a list of the program and its arguments"))
        }
    }
}
