//! `belljar api add`: a section more in the operator's file. Nothing else in the file is touched, and
//! what is written is shown first.

use crate::scope::host;
use std::path::Path;

use anyhow::Context as _;
use belljar_code::api::Service;
use belljar_code::openapi::Document;
use belljar_ledger::{ApiAdded, Draft};
use belljar_model::code::{BaseUrl, Selection};
use belljar_model::display::{safe_line, safe_multiline};
use belljar_model::net::HostPattern;
use belljar_model::{Config, Scope};
use toml_edit::{Item, Table, Value};

use crate::cli::Cli;
use crate::cli::api::AddArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::config::{self, section};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record;
use belljar_engine::store::durable::{self, Links};

pub(super) fn run(cli: &Cli, config: &Config, args: &AddArgs) -> Outcome {
    let name = &args.name;
    let no_home =
        || invalid("there is no home directory for belljar.toml; name a file with --config");
    let file = cli.config.clone().or_else(|| host().config_file()).ok_or_else(no_home)?;
    not_a_projects(&file)?;
    if config.apis().contains_key(name) {
        return Err(invalid(format!(
            "api {name} is in {} already; change it there",
            file.display()
        )));
    }
    let added = section(args)?;
    let old = config::read_text(&file)?.unwrap_or_default();
    let new = section::appended(&old, &added);
    let with = "with this section the file would be wrong";
    let absolute = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
    let parsed =
        Config::parse(&new, &absolute, Scope::Operator).context(with).kind(ErrorKind::Invalid)?;
    let api = parsed.api(name).kind(ErrorKind::Broken)?;
    let service =
        Service::read(api, &parsed, host().user_home().as_deref()).kind(ErrorKind::Invalid)?;
    let only = [name.clone()].into_iter().collect();
    if let Err(error) = parsed.code().template(&parsed, Selection::Only(&only)) {
        return Err(invalid(error.to_string()));
    }
    print::out(&safe_multiline(&added)).kind(ErrorKind::Broken)?;
    for remark in &service.remarks {
        print::note(remark);
    }
    let question = format!("write this into {}?", file.display());
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was written; -y writes without asking"));
    }
    let ledger = record::open(&scope::open(None)?).kind(ErrorKind::Broken)?;
    let event = ApiAdded {
        name: name.to_string(),
        allow: api.allow.iter().map(|rule| rule.what.to_string()).collect(),
        secrets: api.secrets.iter().map(ToString::to_string).collect(),
    };
    let recorded = ledger.record(Draft::new(event)).map(drop);
    recorded.context("record that a service is added").kind(ErrorKind::Broken)?;
    let written = durable::replace(&file, &old, &new, Links::Follow);
    written.with_context(|| format!("write {}", file.display())).kind(ErrorKind::Broken)?;
    let operations = match service.operations() {
        0 => String::new(),
        count => format!(" with {count} operations"),
    };
    print::note(&format!("programs find it as apis.{}{operations}", name.identifier()));
    Ok(0)
}

/// A project's file may come from a box: it gets nothing that opens anything.
fn not_a_projects(file: &Path) -> Result<(), EngineError> {
    let here = std::env::current_dir().ok();
    let project = config::project_file(here.as_deref());
    match project.is_some_and(|project| config::same_file(&project, file)) {
        true => Err(invalid(format!(
            "{} is a project's file, which declares no services; name your own with --config",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// The section of the service, with every text on one line.
fn section(args: &AddArgs) -> Result<String, EngineError> {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key, Item::Value(value)));
    if let Some(description) = &args.description {
        put("description", one_line(description)?);
    }
    let (path, document) = match &args.openapi {
        Some(path) => {
            let (path, document) = document(path)?;
            (Some(path), Some(document))
        }
        None => (None, None),
    };
    let mut hosts = args.hosts.clone();
    if hosts.is_empty() && args.allow.is_empty() {
        hosts.push(server(document.as_ref())?);
    }
    if !args.allow.is_empty() {
        put("allow", list(args.allow.iter().map(rule))?);
    }
    if !hosts.is_empty() {
        put("hosts", list(&hosts)?);
    }
    if !args.secrets.is_empty() {
        put("secrets", list(&args.secrets)?);
    }
    if !args.restricted.is_empty() {
        put("restricted-methods", list(&args.restricted)?);
    }
    if let Some(base) = &args.base_url {
        put("base-url", one_line(&base.to_string())?);
    }
    if let Some(reference) = &args.reference {
        put("reference", one_line(reference)?);
    }
    if let Some(path) = path {
        put("openapi", one_line(&path)?);
    }
    Ok(section::section(["api", args.name.as_str()], table))
}

/// A rule as it was typed; what it says is its text.
fn rule(allow: &belljar_model::net::Allow) -> String {
    match allow {
        belljar_model::net::Allow::Preset(name) => name.to_string(),
        belljar_model::net::Allow::Rule(rule) => rule.what.to_string(),
    }
}

fn document(path: &Path) -> Result<(String, Document), EngineError> {
    let typed = path.to_string_lossy();
    if typed.starts_with("https://") || typed.starts_with("http://") {
        let typed = safe_line(typed.as_bytes());
        return Err(invalid(format!(
            "--openapi takes a file; fetch it first: curl -fsSLo openapi.json {typed}"
        )));
    }
    let absolute = std::path::absolute(path).context("--openapi").kind(ErrorKind::Invalid)?;
    let bytes = std::fs::read(&absolute)
        .with_context(|| format!("--openapi: read {}", path.display()))
        .kind(ErrorKind::Invalid)?;
    let parsed = Document::parse(&bytes)
        .with_context(|| format!("--openapi: {}", path.display()))
        .kind(ErrorKind::Invalid)?;
    let text =
        absolute.to_str().context("--openapi: the path is no UTF-8").kind(ErrorKind::Invalid)?;
    Ok((text.to_owned(), parsed))
}

/// The host of the document's first server.
fn server(document: Option<&Document>) -> Result<HostPattern, EngineError> {
    let server = document.and_then(Document::server);
    let base = server.and_then(|server| server.parse::<BaseUrl>().ok());
    let told = "say what it reaches with --host or --allow; no document with a server says it";
    let base = base.filter(|base| base.to_string().starts_with("https://"));
    Ok(HostPattern::exact(base.ok_or_else(|| invalid(told))?.target().clone()))
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> Result<Value, EngineError> {
    values.into_iter().map(|value| one_line(&value.to_string())).collect()
}

fn one_line(text: &str) -> Result<Value, EngineError> {
    section::one_line(text).kind(ErrorKind::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f15_what_was_typed_stays_within_its_quotes() {
        for text in ["a\"\nb = 1", "\\", "\u{7f}\u{1b}", "é\u{2028}", "]\n[code]\nyolo = true"] {
            let file = format!(
                "[api.a]\nhosts = ['a.example']\ndescription = {}\n",
                one_line(text).unwrap()
            );
            let config = Config::parse(&file, Path::new("x"), Scope::Operator).unwrap();
            let api = config.apis().values().next().unwrap();
            assert_eq!(api.description.as_deref(), Some(text));
            assert!(!config.code().yolo);
        }
    }
}
