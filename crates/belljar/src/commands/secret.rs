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

pub(crate) fn run(cli: &Cli, args: &SecretArgs) -> Outcome {
    let secrets = Secrets::open(&scope::open(cli.config.as_deref())?)?;
    match &args.command {
        SecretCommand::Set(args) => set(&secrets, args),
        SecretCommand::List { json } => list(&secrets, *json),
        SecretCommand::Rm { name } => remove(&secrets, name),
        SecretCommand::Test { name, json } => test(&secrets, name, *json),
    }
}

fn set(secrets: &Secrets, args: &SetArgs) -> Outcome {
    let name = &args.name;
    let writer = secrets.writer()?;
    let set = writer.set(name, source::read(name, &args.from)?)?;
    let what = set.declared.as_ref().map_or_else(|| undeclared(name), bound);
    print::note(&format!("{name} is set; {what}"));
    Ok(0)
}

fn remove(secrets: &Secrets, name: &SecretName) -> Outcome {
    secrets.remove(name)?;
    print::note(&format!("{name} is removed"));
    Ok(0)
}

/// A secret as it is listed, never with its value.
#[derive(Serialize)]
struct Listed {
    name: String,
    /// `None`: declared and not set, or damaged.
    set_at: Option<String>,
    is_set: bool,
    is_declared: bool,
    kind: Option<&'static str>,
    hosts: Vec<String>,
    slots: Vec<String>,
    env: Option<String>,
}

impl Listed {
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
            hosts: declared.map_or_else(Vec::new, |declared| texts(&declared.hosts)),
            slots: declared.map_or_else(Vec::new, |declared| texts(&declared.slots)),
            env: declared.and_then(|declared| declared.env.clone()),
        }
    }
}

fn list(secrets: &Secrets, json: bool) -> Outcome {
    let all = secrets.list()?;
    if all.is_empty() && !json {
        print::note("no secrets; `belljar secret set NAME` stores one");
    }
    for secret in &all {
        if json {
            print::json(&Listed::new(secret)).kind(ErrorKind::Broken)?;
            continue;
        }
        let name = &secret.name;
        let when = when(secret.value);
        let what = secret.declared.as_ref().map_or_else(|| "not declared".to_owned(), bound);
        print::out(&format!("{name:<20} {when:<20}  {what}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

fn when(value: ValueState) -> String {
    match value {
        ValueState::NotSet => "not set".to_owned(),
        ValueState::Damaged => "damaged".to_owned(),
        ValueState::Set { at } => moment::readable_seconds(at),
    }
}

#[derive(Serialize)]
struct Tested {
    #[serde(flatten)]
    listed: Listed,
    opens: bool,
}

fn test(secrets: &Secrets, name: &SecretName, json: bool) -> Outcome {
    let secret = secrets.test(name)?;
    if json {
        let listed = Listed::new(&secret);
        print::json(&Tested { listed, opens: true }).kind(ErrorKind::Broken)?;
    } else {
        let what = secret.declared.as_ref().map_or_else(|| undeclared(name), bound);
        let when = when(secret.value);
        print::out(&format!("{name} opens; set {when}; {what}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(if secret.declared.is_some() { 0 } else { exit::FAILED })
}

/// What a secret is bound to, on one line.
fn bound(declared: &SecretDecl) -> String {
    let SecretDecl { hosts, slots, env, .. } = declared;
    let env = env.as_ref().map_or_else(String::new, |env| format!(", placeholder in ${env}"));
    format!("bound to {} in {}{env}", texts(hosts).join(", "), texts(slots).join(", "))
}

fn undeclared(name: &SecretName) -> String {
    format!(
        "no box can use it before belljar.toml says where it may go: [secret.{name}] with hosts = [\"HOST\"]"
    )
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}
