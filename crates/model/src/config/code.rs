//! Parser for `[api.NAME]`, `[mcp.NAME]` and `[code]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Config;
use super::keys::{
    Invalid, ParseValue, Value, fill, invalid, list, number, path, scalar, set, table, text,
};
use super::rules::{self, boolean};
use super::sections::command;
use crate::code::{
    Api, ApiName, BaseUrl, CodeConfig, McpServer, ServerError, ServerName, Transport,
};
use crate::env::EnvVar;
use crate::mount::anchor;
use crate::net::{Allow, HostPattern, Method, SecretName};
use crate::size::ByteSize;
use crate::time::Timeout;

const MAX_TEXT: usize = 2000; // characters of a description or an example
const MAX_EXAMPLES: usize = 32;

/// The parsed keys of an `[api.NAME]` section, before they are checked together.
#[derive(Debug, Default)]
struct RawApi {
    description: Option<String>,
    allow: Vec<Allow>,
    hosts: Vec<HostPattern>,
    secrets: Vec<SecretName>,
    restricted: Vec<Method>,
    yolo: Option<bool>,
    reference: Option<String>,
    base_url: Option<BaseUrl>,
    types: Option<PathBuf>,
    openapi: Option<PathBuf>,
    examples: Vec<String>,
}

const API: [(&str, ParseValue<RawApi>); 11] = [
    ("description", |raw, value| set(&mut raw.description, prose(value))),
    ("allow", |raw, value| fill(&mut raw.allow, rules::allow(value))),
    ("hosts", |raw, value| fill(&mut raw.hosts, list(value))),
    ("secrets", |raw, value| fill(&mut raw.secrets, list(value))),
    ("restricted-methods", |raw, value| fill(&mut raw.restricted, list(value))),
    ("yolo", |raw, value| set(&mut raw.yolo, boolean(value))),
    ("reference", |raw, value| set(&mut raw.reference, prose(value))),
    ("base-url", |raw, value| set(&mut raw.base_url, scalar(value))),
    ("types", |raw, value| set(&mut raw.types, path(value))),
    ("openapi", |raw, value| set(&mut raw.openapi, path(value))),
    ("examples", |raw, value| fill(&mut raw.examples, examples(value))),
];

/// Parses an `[api.NAME]` section; an error about the whole section is `Invalid::Here`.
pub(super) fn api(name: ApiName, value: &Value<'_>, file: &Path) -> Result<Api, Invalid> {
    let mut raw = RawApi::default();
    table(&mut raw, &API, value)?;
    // Destructured without `..`, so that a new key cannot be ignored by mistake.
    let RawApi {
        description,
        allow,
        hosts,
        secrets,
        restricted,
        yolo,
        reference,
        base_url,
        types,
        openapi,
        examples,
    } = raw;
    let base = file.parent().unwrap_or(Path::new(""));
    let anchored = |path: PathBuf| anchor(&path, base, None);
    let api = Api {
        description,
        secrets: secrets.into_iter().collect(),
        restricted: restricted.into_iter().collect(),
        yolo: yolo.unwrap_or(false),
        reference,
        base_url,
        types: types.map(anchored),
        openapi: openapi.map(anchored),
        examples,
        ..Api::new(name, allow, hosts).map_err(invalid)?
    };
    api.check().map_err(invalid)?;
    Ok(api)
}

/// The parsed keys of an `[mcp.NAME]` section, before they are checked together.
#[derive(Debug, Default)]
struct RawServer {
    command: Option<Vec<String>>,
    url: Option<BaseUrl>,
    env: Vec<EnvVar>,
    template: Option<String>,
    secrets: Vec<SecretName>,
    allow: Vec<Allow>,
    timeout: Option<Duration>,
}

const SERVER: [(&str, ParseValue<RawServer>); 7] = [
    ("command", |raw, value| set(&mut raw.command, command(value))),
    ("url", |raw, value| set(&mut raw.url, scalar(value))),
    ("env", |raw, value| fill(&mut raw.env, list(value))),
    ("template", |raw, value| set(&mut raw.template, text(value))),
    ("secrets", |raw, value| fill(&mut raw.secrets, list(value))),
    ("allow", |raw, value| fill(&mut raw.allow, rules::allow(value))),
    ("timeout", |raw, value| set(&mut raw.timeout, time(value))),
];

/// Parses an `[mcp.NAME]` section; an error about the whole section is `Invalid::Here`.
pub(super) fn server(name: ServerName, value: &Value<'_>) -> Result<McpServer, Invalid> {
    let mut raw = RawServer::default();
    table(&mut raw, &SERVER, value)?;
    let RawServer { command, url, env, template, secrets, allow, timeout } = raw;
    let transport = match (command, url) {
        (Some(command), None) => Transport::Command(command),
        (None, Some(url)) => Transport::Url(url),
        (None, None) | (Some(_), Some(_)) => return Err(invalid(ServerError::OneTransport)),
    };
    let server = McpServer {
        name,
        transport,
        env,
        template,
        secrets: secrets.into_iter().collect(),
        allow,
        timeout: timeout.unwrap_or(McpServer::TIMEOUT),
    };
    server.check().map_err(invalid)?;
    Ok(server)
}

/// The parsed keys of the `[code]` section, before they are checked together.
#[derive(Debug, Default)]
struct RawCode {
    template: Option<String>,
    warm: Option<usize>,
    libraries: Option<PathBuf>,
    yolo: Option<bool>,
    timeout: Option<Duration>,
    max_timeout: Option<Duration>,
    output: Option<ByteSize>,
}

const CODE: [(&str, ParseValue<RawCode>); 7] = [
    ("template", |raw, value| set(&mut raw.template, text(value))),
    ("warm", |raw, value| set(&mut raw.warm, warm(value))),
    ("libraries", |raw, value| set(&mut raw.libraries, path(value))),
    ("yolo", |raw, value| set(&mut raw.yolo, boolean(value))),
    ("timeout", |raw, value| set(&mut raw.timeout, time(value))),
    ("max-timeout", |raw, value| set(&mut raw.max_timeout, time(value))),
    ("output", |raw, value| set(&mut raw.output, scalar(value))),
];

/// Parses the `[code]` section.
pub(super) fn code(value: &Value<'_>, file: &Path) -> Result<CodeConfig, Invalid> {
    let mut raw = RawCode::default();
    table(&mut raw, &CODE, value)?;
    let RawCode { template, warm, libraries, yolo, timeout, max_timeout, output } = raw;
    let base = CodeConfig::default();
    let max_timeout = max_timeout.unwrap_or(base.max_timeout);
    let timeout = timeout.unwrap_or(base.timeout.min(max_timeout));
    if timeout > max_timeout {
        let (timeout, most) = (Timeout(Some(timeout)), Timeout(Some(max_timeout)));
        return Err(invalid(format!("`timeout` is {timeout}, but `max-timeout` is {most}")));
    }
    let from = file.parent().unwrap_or(Path::new(""));
    Ok(CodeConfig {
        template,
        warm: warm.unwrap_or(base.warm),
        yolo: yolo.unwrap_or(base.yolo),
        timeout,
        max_timeout,
        output: output.unwrap_or(base.output),
        libraries: libraries.map(|path| anchor(&path, from, None)),
    })
}

impl Config {
    /// Returns the declared services by name.
    pub fn apis(&self) -> &BTreeMap<ApiName, Api> {
        &self.apis
    }

    /// Returns the declared tool servers by name.
    pub fn servers(&self) -> &BTreeMap<ServerName, McpServer> {
        &self.servers
    }

    /// Returns the settings of code mode, `[code]`.
    pub fn code(&self) -> &CodeConfig {
        &self.code
    }
}

/// Parses a description for users and models, which can have several lines.
fn prose(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    if text.chars().count() > MAX_TEXT {
        return Err(invalid(format!("must have at most {MAX_TEXT} characters")));
    }
    Ok(text)
}

fn examples(value: &Value<'_>) -> Result<Vec<String>, Invalid> {
    let examples: Vec<String> = list(value)?;
    if examples.len() > MAX_EXAMPLES {
        return Err(invalid(format!("at most {MAX_EXAMPLES} examples are possible")));
    }
    match examples.iter().any(|example| example.chars().count() > MAX_TEXT) {
        true => Err(invalid(format!("an example can have at most {MAX_TEXT} characters"))),
        false => Ok(examples),
    }
}

fn time(value: &Value<'_>) -> Result<Duration, Invalid> {
    let Timeout(time) = scalar(value)?;
    let bounds = CodeConfig::MIN_TIMEOUT..=CodeConfig::MAX_TIMEOUT;
    time.filter(|time| bounds.contains(time)).ok_or_else(|| {
        let (least, most) = (Timeout(Some(*bounds.start())), Timeout(Some(*bounds.end())));
        invalid(format!("must be from {least} to {most}"))
    })
}

fn warm(value: &Value<'_>) -> Result<usize, Invalid> {
    match number(value)? {
        warm if warm <= CodeConfig::MAX_WARM => Ok(warm),
        _ => Err(invalid(format!("at most {} boxes can be kept ready", CodeConfig::MAX_WARM))),
    }
}
