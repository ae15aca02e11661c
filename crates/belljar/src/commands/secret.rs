//! `belljar secret`: what boxes may use and nobody sees again.
//!
//! Write-only: no command gives a value back (B19). What a secret may be used for is in belljar.toml,
//! what it is lies sealed in the vault.

mod source;

use crate::scope::host;
use anyhow::Context as _;
use belljar_broker::vault::sealed::{self, Key};
use belljar_broker::vault::store::{Store, Stored};
use belljar_ledger::{Draft, SecretRemoved, SecretSet};
use belljar_model::Config;
use belljar_model::net::{SecretDecl, SecretName};
use rustix::process::DumpableBehavior;
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::secret::{SecretArgs, SecretCommand, SetArgs};
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope::{self, CLOCK};
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record;
use belljar_engine::scope::Scoped;
use belljar_engine::secrets;

pub(crate) fn run(cli: &Cli, args: &SecretArgs) -> Outcome {
    // The operator's own file only: what a project says about secrets counts for nothing here.
    let (config, _) = config::load_from(host(), cli.config.as_deref(), None)?;
    match &args.command {
        SecretCommand::Set(args) => set(&config, args),
        SecretCommand::List { json } => list(&config, *json),
        SecretCommand::Rm { name } => remove(name),
        SecretCommand::Test { name, json } => test(&config, name, *json),
    }
}

fn set(config: &Config, args: &SetArgs) -> Outcome {
    keep_to_ourselves()?;
    let name = &args.name;
    let state = scope::open(None)?;
    let ledger = record::open(&state).kind(ErrorKind::Broken)?;
    let store = Store::create(state.home()).kind(ErrorKind::Broken)?;
    let key = secrets::key_or_new(config, &store).kind(ErrorKind::Broken)?;
    let value = source::read(name, &args.from)?;
    let declared = config.secret(name);
    if let Some(declared) = declared {
        value
            .check(&declared.kind)
            .with_context(|| format!("{name} was not set"))
            .kind(ErrorKind::Broken)?;
    }
    let prepared = store.prepare(&key, name, &value, CLOCK.nanos()).kind(ErrorKind::Broken)?;
    // On record first; what is left then is to rename a file that is already on the disk.
    let event = SecretSet {
        name: name.to_string(),
        hosts: declared.map_or_else(Vec::new, |declared| texts(&declared.hosts)),
        slots: declared.map_or_else(Vec::new, |declared| texts(&declared.slots)),
    };
    let recorded = ledger.record(Draft::new(event)).context("record that a secret is set");
    prepared.place(&recorded.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)?;
    match declared {
        Some(declared) => print::note(&format!("{name} is set; {}", bound(declared))),
        None => print::note(&format!("{name} is set; {}", undeclared(name))),
    }
    Ok(0)
}

fn remove(name: &SecretName) -> Outcome {
    let state = scope::open(None)?;
    let store = stored(&state, name)?;
    let ledger = record::open(&state).kind(ErrorKind::Broken)?;
    let event = SecretRemoved { name: name.to_string() };
    let recorded = ledger.record(Draft::new(event)).context("record that a secret is removed");
    if !store.remove(name, &recorded.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)? {
        return Err(none(name)); // somebody else was faster
    }
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
    fn new(name: &SecretName, stored: Option<&Stored>, declared: Option<&SecretDecl>) -> Self {
        Self {
            name: name.to_string(),
            set_at: stored.and_then(|stored| stored.set_at).map(moment::rfc3339),
            is_set: stored.is_some(),
            is_declared: declared.is_some(),
            kind: declared.map(|declared| declared.kind.name()),
            hosts: declared.map_or_else(Vec::new, |declared| texts(&declared.hosts)),
            slots: declared.map_or_else(Vec::new, |declared| texts(&declared.slots)),
            env: declared.and_then(|declared| declared.env.clone()),
        }
    }
}

fn list(config: &Config, json: bool) -> Outcome {
    let state = scope::open(None)?;
    let stored = match Store::open(state.home()).kind(ErrorKind::Broken)? {
        Some(store) => store.list().kind(ErrorKind::Broken)?,
        None => Vec::new(),
    };
    let of_name = |name: &SecretName| stored.iter().find(|stored| stored.name == *name);
    // What somebody declared belongs in the list also before it is set; what a preset declares not.
    let mut names: Vec<&SecretName> = stored.iter().map(|stored| &stored.name).collect();
    names.extend(config.declared_secrets().filter(|name| of_name(name).is_none()));
    names.sort();
    if names.is_empty() && !json {
        print::note("no secrets; `belljar secret set NAME` stores one");
    }
    for name in names {
        let (stored, declared) = (of_name(name), config.secret(name));
        if json {
            print::json(&Listed::new(name, stored, declared)).kind(ErrorKind::Broken)?;
            continue;
        }
        let when = match stored.map(|stored| stored.set_at) {
            None => "not set".to_owned(),
            Some(None) => "damaged".to_owned(),
            Some(Some(at)) => moment::to_the_second(at),
        };
        let what = declared.map_or_else(|| "not declared".to_owned(), bound);
        print::out(&format!("{name:<20} {when:<20}  {what}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

#[derive(Serialize)]
struct Tested {
    #[serde(flatten)]
    listed: Listed,
    opens: bool,
}

fn test(config: &Config, name: &SecretName, json: bool) -> Outcome {
    keep_to_ourselves()?;
    let state = scope::open(None)?;
    let store = stored(&state, name)?;
    let set_at = check(config, &store, name).kind(ErrorKind::Broken)?;
    let declared = config.secret(name);
    if json {
        let stored = Stored { name: name.clone(), set_at: Some(set_at) };
        let listed = Listed::new(name, Some(&stored), declared);
        print::json(&Tested { listed, opens: true }).kind(ErrorKind::Broken)?;
    } else {
        let what = declared.map_or_else(|| undeclared(name), bound);
        let when = moment::to_the_second(set_at);
        print::out(&format!("{name} opens; set {when}; {what}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(if declared.is_some() { 0 } else { exit::FAILED })
}

/// Opens a secret and holds it against its declaration; when it was set.
fn check(config: &Config, store: &Store, name: &SecretName) -> anyhow::Result<u64> {
    let (source, from) = secrets::key_descriptor(config.key_command(), store)?;
    let key = Key::read(source, &from)?;
    let file = store.file(name)?.context("the sealed file went away")?;
    let unsealed = sealed::unseal(&key, name, &file)?;
    if let Some(declared) = config.secret(name) {
        unsealed.value.check(&declared.kind).with_context(|| format!("{name} is of no use"))?;
    }
    Ok(unsealed.set_at)
}

/// The vault, if it has this secret.
fn stored(state: &Scoped, name: &SecretName) -> Result<Store, EngineError> {
    let store = Store::open(state.home()).kind(ErrorKind::Broken)?.ok_or_else(|| none(name))?;
    match store.file(name).kind(ErrorKind::Broken)? {
        Some(_) => Ok(store),
        None => Err(none(name)),
    }
}

fn none(name: &SecretName) -> EngineError {
    invalid(format!("no secret {name} is set; `belljar secret list` shows those that are"))
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

/// No core dump of us, and no other process of the operator looks into our memory, while a value is in it.
fn keep_to_ourselves() -> Result<(), EngineError> {
    let set = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    set.context("keep the value out of core dumps").kind(ErrorKind::Broken)
}
