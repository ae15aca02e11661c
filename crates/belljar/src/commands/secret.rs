//! `belljar secret`: sets, lists, tests and removes secrets of the vault.
//!
//! No command prints a value (B19).

mod source;

use belljar_model::net::{SecretDecl, SecretName};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::secret::{SecretArgs, SecretCommand, SetArgs};
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::secrets::{SecretStatus, Secrets, ValueState};

/// Runs `belljar secret`.
pub(crate) fn run(cli: &Cli, args: &SecretArgs) -> Outcome {
    let secrets = Secrets::open(&scope::open(cli.config.as_deref())?)?;
    match &args.command {
        SecretCommand::Set(args) => set(&secrets, args),
        SecretCommand::List { json } => list(&secrets, *json),
        SecretCommand::Rm { name } => remove(&secrets, name),
        SecretCommand::Test { name, json } => test(&secrets, name, *json),
    }
}

/// Stores the value of a secret.
fn set(secrets: &Secrets, args: &SetArgs) -> Outcome {
    let name = &args.name;
    let writer = secrets.writer()?;
    let set = writer.set(name, source::read(name, &args.from)?)?;
    let what = set.declared.as_ref().map_or_else(|| missing_declaration(name), binding);
    print::note(&format!("stored the secret {name}; {what}"));
    Ok(0)
}

/// Removes a secret from the vault.
fn remove(secrets: &Secrets, name: &SecretName) -> Outcome {
    secrets.remove(name)?;
    print::note(&format!("removed the secret {name}"));
    Ok(0)
}

/// A secret in the list, without its value, as JSON.
#[derive(Serialize)]
struct SecretLine {
    name: String,
    /// The time when the value was stored; `None` if there is no value or it is damaged.
    set_at: Option<String>,
    is_set: bool,
    is_declared: bool,
    kind: Option<&'static str>,
    hosts: Vec<String>,
    slots: Vec<String>,
    env: Option<String>,
}

impl SecretLine {
    fn new(secret: &SecretStatus) -> Self {
        let declared = secret.declared.as_ref();
        let set_at = match secret.value {
            ValueState::Set { at } => Some(moment::rfc3339(at)),
            ValueState::NotSet | ValueState::Damaged => None,
        };
        Self {
            name: secret.name.to_string(),
            set_at,
            is_set: secret.value != ValueState::NotSet,
            is_declared: declared.is_some(),
            kind: declared.map(|declared| declared.kind.name()),
            hosts: declared.map_or_else(Vec::new, |declared| to_strings(&declared.hosts)),
            slots: declared.map_or_else(Vec::new, |declared| to_strings(&declared.slots)),
            env: declared.and_then(|declared| declared.env.clone()),
        }
    }
}

/// Prints the secrets, without their values.
fn list(secrets: &Secrets, json: bool) -> Outcome {
    let all = secrets.list()?;
    if all.is_empty() && !json {
        print::note("there are no secrets; `belljar secret set NAME` stores a secret");
    }
    for secret in &all {
        if json {
            print::json(&SecretLine::new(secret)).kind(ErrorKind::Broken)?;
            continue;
        }
        let name = &secret.name;
        let stored = describe_value(secret.value);
        let what = secret.declared.as_ref().map_or_else(|| "not declared".to_owned(), binding);
        print::out(&format!("{name:<20} {stored:<20}  {what}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Returns the time when the value of a secret was stored, or its state.
fn describe_value(value: ValueState) -> String {
    match value {
        ValueState::NotSet => "not set".to_owned(),
        ValueState::Damaged => "damaged".to_owned(),
        ValueState::Set { at } => moment::readable_seconds(at),
    }
}

/// The result of `belljar secret test`, as JSON.
#[derive(Serialize)]
struct TestReport {
    #[serde(flatten)]
    line: SecretLine,
    opens: bool,
}

/// Checks that a secret can be decrypted.
fn test(secrets: &Secrets, name: &SecretName, json: bool) -> Outcome {
    let secret = secrets.test(name)?;
    if json {
        let line = SecretLine::new(&secret);
        print::json(&TestReport { line, opens: true }).kind(ErrorKind::Broken)?;
    } else {
        let what = secret.declared.as_ref().map_or_else(|| missing_declaration(name), binding);
        let stored = describe_value(secret.value);
        print::out(&format!("{name} can be decrypted; stored {stored}; {what}\n"))
            .kind(ErrorKind::Broken)?;
    }
    Ok(if secret.declared.is_some() { 0 } else { exit::FAILED })
}

/// Returns the hosts, slots and placeholder variable of a secret in one line.
fn binding(declared: &SecretDecl) -> String {
    let SecretDecl { hosts, slots, env, .. } = declared;
    let env = env.as_ref().map_or_else(String::new, |env| format!(", placeholder in ${env}"));
    format!("bound to {} in {}{env}", to_strings(hosts).join(", "), to_strings(slots).join(", "))
}

/// Returns the advice for a secret without a declaration in belljar.toml.
fn missing_declaration(name: &SecretName) -> String {
    format!(
        "no box can use it until belljar.toml declares its hosts: [secret.{name}] with hosts = [\"HOST\"]"
    )
}

/// Converts all values to strings.
fn to_strings<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}
