//! Requests for boxes: the JSON of a new box or run, and its conversion to a spec of the engine.
//!
//! A request cannot name mounts, root file systems, weakened layers or inherited variables. These exist only
//! in templates, which the operator writes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use belljar_model::net::{Allow, Rule, SecretName};
use belljar_model::spec::{Argv, BoxSpec, WorkspaceSpec};
use belljar_model::{ByteSize, Cpus, EnvVar, Net, Overrides, Timeout};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::serve::json;
use crate::serve::problem::Problem;

/// The maximum number of words, variables, rules and secrets of a request.
const MAX_ITEMS: usize = 1024;
/// The smallest and the largest value of each limit, in the units of [`LimitsRequest`].
const MEMORY: (u64, u64) = (16 << 20, 1 << 50);
const CPU_MILLIS: (u32, u32) = (10, 1_000_000);
const PIDS: (u32, u32) = (2, 4_000_000);
const DISK: (u64, u64) = (1 << 20, 1 << 50);
const TIMEOUT: (u64, u64) = (1, 365 * 24 * 60 * 60 * 1000);
/// The maximum length of a health command in characters.
const MAX_HEALTH: usize = 4096;

/// The description of a new box.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBox {
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    pub(super) name: String,
    /// A template of the policy; `default` by default.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    template: Option<String>,
    /// An agent that the box is prepared for, such as `claude`.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9-]{0,39}$"))]
    agent: Option<String>,
    /// The program and its arguments; by default the agent, or a shell.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_program")]
    program: Option<Vec<String>>,
    /// Whether the program has a terminal; true by default.
    terminal: Option<bool>,
    workspace: Option<WorkspaceRequest>,
    /// A shell command in the box that reports its health with its exit status.
    #[schemars(length(min = 1, max = MAX_HEALTH))]
    health: Option<String>,
    /// Environment variables.
    env: Option<BTreeMap<String, String>>,
    /// Names of secrets that the box may use.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_names")]
    secrets: Option<Vec<String>>,
    network: Option<NetworkRequest>,
    limits: Option<LimitsRequest>,
    /// Whether the box is started; true by default.
    pub(super) start: Option<bool>,
}

/// The workspace of a new box: a directory, or a private clone of a repository.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum WorkspaceRequest {
    /// An absolute path on the host.
    #[schemars(schema_with = "schema_of_path")]
    Directory(String),
    Clone {
        /// The absolute path of a repository on the host.
        #[schemars(regex(pattern = r"^/[ -~]{0,1023}$"))]
        repository: String,
        #[schemars(regex(pattern = r"^[!-~]{1,255}$"))]
        branch: Option<String>,
    },
}

/// The network of a box. Rules are added to those of the template.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::routes) struct NetworkRequest {
    #[serde(default)]
    #[schemars(schema_with = "schema_of_net")]
    pub(super) mode: Option<String>,
    /// Rules such as `GET https://api.github.com/repos/acme/**`, or names of presets.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_rules")]
    pub(super) allow: Option<Vec<String>>,
    #[serde(default)]
    #[schemars(schema_with = "schema_of_rules")]
    pub(super) deny: Option<Vec<String>>,
}

/// The limits of a box.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::routes) struct LimitsRequest {
    /// In bytes.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = MEMORY.0, max = MEMORY.1))]
    memory: Option<u64>,
    /// In thousandths of a processor.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = CPU_MILLIS.0, max = CPU_MILLIS.1))]
    cpu_millis: Option<u32>,
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = PIDS.0, max = PIDS.1))]
    pids: Option<u32>,
    /// In bytes.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = DISK.0, max = DISK.1))]
    disk: Option<u64>,
    /// In milliseconds.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = TIMEOUT.0, max = TIMEOUT.1))]
    timeout: Option<u64>,
}

/// Returns the schema of a program with its arguments, which a request must have.
pub(in crate::serve::routes) fn schema_of_command(schemas: &mut SchemaGenerator) -> Schema {
    let mut schema = schema_of_program(schemas);
    schema.insert("type".to_owned(), "array".into());
    schema
}

fn schema_of_program(_: &mut SchemaGenerator) -> Schema {
    let word = json_schema!({ "type": "string", "maxLength": 65_536, "pattern": "^[^\\u0000]*$" });
    let first = json_schema!({ "type": "string", "pattern": "^[^\\u0000]{1,4096}$" });
    json_schema!({
        "type": ["array", "null"], "minItems": 1, "maxItems": MAX_ITEMS,
        "prefixItems": [first], "items": word,
    })
}

pub(in crate::serve::routes) fn schema_of_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^/[ -~]{0,1023}$" })
}

fn schema_of_names(_: &mut SchemaGenerator) -> Schema {
    let name = json_schema!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$" });
    json_schema!({ "type": ["array", "null"], "maxItems": MAX_ITEMS, "items": name })
}

fn schema_of_net(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "enum": ["none", "restricted", "full", null] })
}

fn schema_of_rules(_: &mut SchemaGenerator) -> Schema {
    let rule = json_schema!({ "type": "string", "minLength": 1, "maxLength": 2048 });
    json_schema!({ "type": ["array", "null"], "maxItems": MAX_ITEMS, "items": rule })
}

/// Refuses a health command that is empty or too long.
pub(super) fn check_health(command: Option<&str>) -> Result<(), Problem> {
    let length = command.map_or(1, |command| command.chars().count());
    if (1..=MAX_HEALTH).contains(&length) {
        return Ok(());
    }
    let detail = format!("the health command must have 1 to {MAX_HEALTH} characters");
    Err(Problem::invalid(detail).field("/health"))
}

impl NewBox {
    /// Returns the spec of the box. Paths are not checked.
    pub(super) fn spec(self) -> Result<BoxSpec, Problem> {
        check_health(self.health.as_deref())?;
        let parts = OverrideParts {
            env: self.env,
            secrets: self.secrets,
            network: self.network,
            limits: self.limits,
        };
        let agent = self.agent.map(|text| parse(&text, "/agent")).transpose()?;
        let spec = BoxSpec {
            template: self.template.unwrap_or_else(|| BoxSpec::default().template),
            overrides: parts.overrides()?,
            workspace: self.workspace.map_or(WorkspaceSpec::None, WorkspaceRequest::spec),
            agent,
            program: self.program.map(program).transpose()?,
            terminal: self.terminal.unwrap_or(true),
            health: self.health,
            ..BoxSpec::default()
        };
        spec.check().map_err(|error| Problem::invalid(error.to_string()))?;
        Ok(spec)
    }
}

/// The parts of a request that override values of the template.
pub(in crate::serve::routes) struct OverrideParts {
    pub(in crate::serve::routes) env: Option<BTreeMap<String, String>>,
    pub(in crate::serve::routes) secrets: Option<Vec<String>>,
    pub(in crate::serve::routes) network: Option<NetworkRequest>,
    pub(in crate::serve::routes) limits: Option<LimitsRequest>,
}

impl OverrideParts {
    pub(in crate::serve::routes) fn overrides(self) -> Result<Overrides, Problem> {
        let env = variables(self.env.unwrap_or_default())?;
        let secrets = limited(self.secrets.unwrap_or_default(), "/secrets")?;
        let secrets = parse_all::<SecretName>(secrets, "/secrets")?;
        let mut overrides = Overrides { env, secrets, ..Overrides::default() };
        if let Some(network) = self.network {
            let NetworkParts { mode, allow, deny } = network.parts()?;
            (overrides.net, overrides.allow, overrides.deny) = (mode, allow, deny);
        }
        if let Some(limits) = self.limits {
            limits.set(&mut overrides)?;
        }
        Ok(overrides)
    }
}

/// The parsed parts of the network of a box.
pub(super) struct NetworkParts {
    pub(super) mode: Option<Net>,
    pub(super) allow: Vec<Allow>,
    pub(super) deny: Vec<Rule>,
}

impl NetworkRequest {
    pub(super) fn parts(self) -> Result<NetworkParts, Problem> {
        let mode = self.mode.map(|text| parse(&text, "/network/mode")).transpose()?;
        let allow = limited(self.allow.unwrap_or_default(), "/network/allow")?;
        let deny = limited(self.deny.unwrap_or_default(), "/network/deny")?;
        let deny_rule = |(index, text): (usize, String)| {
            Rule::deny(&text).map_err(|error| at(error, format!("/network/deny/{index}")))
        };
        Ok(NetworkParts {
            mode,
            allow: parse_all(allow, "/network/allow")?,
            deny: deny.into_iter().enumerate().map(deny_rule).collect::<Result<_, _>>()?,
        })
    }
}

impl LimitsRequest {
    /// Sets the limits of the request.
    pub(super) fn set(self, overrides: &mut Overrides) -> Result<(), Problem> {
        // Destructured without `..`, so that a new limit cannot be forgotten here.
        let Self { memory, cpu_millis, pids, disk, timeout } = self;
        overrides.memory = size(memory, MEMORY, "/limits/memory")?.or(overrides.memory);
        overrides.disk = size(disk, DISK, "/limits/disk")?.or(overrides.disk);
        let cpus = within(cpu_millis, CPU_MILLIS, "/limits/cpu_millis")?;
        overrides.cpus = cpus.and_then(Cpus::from_millis).or(overrides.cpus);
        overrides.pids = within(pids, PIDS, "/limits/pids")?.or(overrides.pids);
        if let Some(timeout) = within(timeout, TIMEOUT, "/limits/timeout")? {
            overrides.timeout = Some(Timeout(Some(Duration::from_millis(timeout))));
        }
        Ok(())
    }
}

impl WorkspaceRequest {
    pub(super) fn spec(self) -> WorkspaceSpec {
        match self {
            Self::Directory(path) => WorkspaceSpec::Directory(PathBuf::from(path)),
            Self::Clone { repository, branch } => {
                let repo = PathBuf::from(repository);
                WorkspaceSpec::Clone { repo, branch, uncommitted: false }
            }
        }
    }
}

/// Parses the program of a box.
fn program(words: Vec<String>) -> Result<Argv, Problem> {
    argv(words, "/program")
}

/// Parses the command of a run or of an exec.
pub(in crate::serve::routes) fn command(words: Vec<String>) -> Result<Argv, Problem> {
    argv(words, "/command")
}

fn argv(words: Vec<String>, field: &str) -> Result<Argv, Problem> {
    Argv::new(limited(words, field)?).map_err(|error| at(error, field))
}

/// Parses the environment variables of a request.
pub(in crate::serve::routes) fn variables(
    env: BTreeMap<String, String>,
) -> Result<Vec<EnvVar>, Problem> {
    let parse = |(name, value): (String, String)| {
        let invalid = |error| at(error, format!("/env/{}", pointer(&name)));
        EnvVar::new(&name, Some(&value)).map_err(invalid)
    };
    limited(env, "/env")?.into_iter().map(parse).collect()
}

fn size(bytes: Option<u64>, range: (u64, u64), field: &str) -> Result<Option<ByteSize>, Problem> {
    Ok(within(bytes, range, field)?.and_then(ByteSize::new))
}

/// Refuses a number outside of a range, which includes both of its ends.
fn within<T: PartialOrd + std::fmt::Display>(
    number: Option<T>,
    (min, max): (T, T),
    field: &str,
) -> Result<Option<T>, Problem> {
    if number.as_ref().is_some_and(|number| *number < min || *number > max) {
        let detail = format!("the number must be from {min} to {max}");
        return Err(Problem::invalid(detail).field(field));
    }
    Ok(number)
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
    field: &str,
) -> Result<T, Problem> {
    text.parse().map_err(|error| at(error, field))
}

fn parse_all<T: std::str::FromStr<Err: std::fmt::Display>>(
    texts: Vec<String>,
    field: &str,
) -> Result<Vec<T>, Problem> {
    let parse = |(index, text): (usize, String)| parse(&text, &format!("{field}/{index}"));
    texts.into_iter().enumerate().map(parse).collect()
}

/// Returns the problem of an invalid field.
fn at(error: impl std::fmt::Display, field: impl Into<String>) -> Problem {
    Problem::invalid(error.to_string()).field(field)
}

/// Escapes a name for a JSON pointer (RFC 6901).
fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Refuses lists and maps that are too long.
fn limited<T>(items: T, field: &str) -> Result<T, Problem>
where
    for<'t> &'t T: IntoIterator,
{
    if (&items).into_iter().nth(MAX_ITEMS).is_some() {
        let detail = format!("at most {MAX_ITEMS} items are permitted");
        return Err(Problem::invalid(detail).field(field));
    }
    Ok(items)
}
