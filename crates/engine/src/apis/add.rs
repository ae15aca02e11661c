//! A new section in the operator's file. The rest of the file stays as it is.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_code::api::Service;
use belljar_code::openapi::Document;
use belljar_ledger::{ApiAdded, Draft};
use belljar_model::code::{ApiName, BaseUrl, Selection};
use belljar_model::display::safe_line;
use belljar_model::net::{Allow, HostPattern, Method, SecretName};
use belljar_model::{Config, Scope};
use toml_edit::{Item, Table, Value};

use super::Apis;
use crate::config::{self, section};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::store::durable::{self, Links};

/// A service that is to be declared.
#[derive(Clone, Debug)]
pub struct NewApi {
    pub name: ApiName,
    pub description: Option<String>,
    /// An OpenAPI document.
    pub openapi: Option<PathBuf>,
    /// Hosts that it reaches over TLS. Without hosts and rules it is the first server of the document.
    pub hosts: Vec<HostPattern>,
    pub allow: Vec<Allow>,
    pub secrets: Vec<SecretName>,
    pub restricted: Vec<Method>,
    pub base_url: Option<BaseUrl>,
    pub reference: Option<String>,
}

/// A checked section that is not written yet.
#[derive(Debug)]
pub struct Addition<'a> {
    apis: &'a Apis,
    file: PathBuf,
    old: String,
    new: String,
    section: String,
    service: Service,
    event: ApiAdded,
}

impl Apis {
    /// Checks the declaration of a new service and the file that results from it. Relative paths start
    /// at `here`.
    pub fn prepare(&self, api: &NewApi, here: &Path) -> Result<Addition<'_>, EngineError> {
        let name = &api.name;
        let no_home =
            || invalid("there is no home directory for belljar.toml; name a file with --config");
        let file = self.state.config_file().map(Path::to_owned);
        let file = file.or_else(|| self.state.host().config_file()).ok_or_else(no_home)?;
        refuse_project_file(&file, here)?;
        if self.config.apis().contains_key(name) {
            let text = format!("api {name} is in {} already; change it there", file.display());
            return Err(EngineError::message(ErrorKind::AlreadyExists, text));
        }
        let section = section_of(api, here)?;
        let old = config::read_text(&file)?.unwrap_or_default();
        let new = section::appended(&old, &section);
        let with = "with this section the file would be wrong";
        let parsed = Config::parse(&new, &absolute(here, &file), Scope::Operator);
        let parsed = parsed.context(with).kind(ErrorKind::Invalid)?;
        let api = parsed.api(name).kind(ErrorKind::Broken)?;
        let home = self.state.host().user_home();
        let service = Service::read(api, &parsed, home.as_deref()).kind(ErrorKind::Invalid)?;
        let only = [name.clone()].into_iter().collect();
        if let Err(error) = parsed.code().template(&parsed, Selection::Only(&only)) {
            return Err(invalid(error.to_string()));
        }
        let event = ApiAdded {
            name: name.to_string(),
            allow: api.allow.iter().map(|rule| rule.what.to_string()).collect(),
            secrets: api.secrets.iter().map(ToString::to_string).collect(),
        };
        Ok(Addition { apis: self, file, old, new, section, service, event })
    }
}

impl Addition<'_> {
    /// The text that [`Addition::write`] appends.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// The file that it is appended to.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The service as the section declares it.
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// Records the new service and appends its section. A file that changed in the meantime is an error.
    pub fn write(self) -> Result<Service, EngineError> {
        let Self { apis, file, old, new, service, event, .. } = self;
        let ledger = record::open(&apis.state).kind(ErrorKind::Broken)?;
        let recorded = ledger.record(Draft::new(event)).map(drop);
        recorded.context("record that a service is added").kind(ErrorKind::Broken)?;
        let written = durable::replace(&file, &old, &new, Links::Follow);
        written.with_context(|| format!("write {}", file.display())).kind(ErrorKind::Broken)?;
        Ok(service)
    }
}

/// A project's file may come from a box, so nothing in it may open anything.
fn refuse_project_file(file: &Path, here: &Path) -> Result<(), EngineError> {
    let project = config::project_file(Some(here));
    match project.is_some_and(|project| config::same_file(&project, file)) {
        true => Err(invalid(format!(
            "{} is a project's file, which declares no services; name your own with --config",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// The section of the service, with every text on one line.
fn section_of(api: &NewApi, here: &Path) -> Result<String, EngineError> {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key, Item::Value(value)));
    if let Some(description) = &api.description {
        put("description", one_line(description)?);
    }
    let (path, document) = match &api.openapi {
        Some(path) => {
            let (path, document) = document(path, here)?;
            (Some(path), Some(document))
        }
        None => (None, None),
    };
    let mut hosts = api.hosts.clone();
    if hosts.is_empty() && api.allow.is_empty() {
        hosts.push(server(document.as_ref())?);
    }
    if !api.allow.is_empty() {
        put("allow", list(api.allow.iter().map(rule))?);
    }
    if !hosts.is_empty() {
        put("hosts", list(&hosts)?);
    }
    if !api.secrets.is_empty() {
        put("secrets", list(&api.secrets)?);
    }
    if !api.restricted.is_empty() {
        put("restricted-methods", list(&api.restricted)?);
    }
    if let Some(base) = &api.base_url {
        put("base-url", one_line(&base.to_string())?);
    }
    if let Some(reference) = &api.reference {
        put("reference", one_line(reference)?);
    }
    if let Some(path) = path {
        put("openapi", one_line(&path)?);
    }
    Ok(section::section(["api", api.name.as_str()], table))
}

/// The text of a rule.
fn rule(allow: &Allow) -> String {
    match allow {
        Allow::Preset(name) => name.to_string(),
        Allow::Rule(rule) => rule.what.to_string(),
    }
}

fn document(path: &Path, here: &Path) -> Result<(String, Document), EngineError> {
    let typed = path.to_string_lossy();
    if typed.starts_with("https://") || typed.starts_with("http://") {
        let typed = safe_line(typed.as_bytes());
        return Err(invalid(format!(
            "--openapi takes a file; fetch it first: curl -fsSLo openapi.json {typed}"
        )));
    }
    let absolute = absolute(here, path);
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
    let advice = "say what it reaches with --host or --allow; no document with a server says it";
    let base = base.filter(|base| base.to_string().starts_with("https://"));
    Ok(HostPattern::exact(base.ok_or_else(|| invalid(advice))?.target().clone()))
}

/// The path below `here`, without `.` and repeated slashes.
fn absolute(here: &Path, path: &Path) -> PathBuf {
    let path = here.join(path);
    std::path::absolute(&path).unwrap_or(path)
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
