//! Adds the section of a new api to the operator's belljar.toml. The rest of the file is not changed.

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

/// The declaration of a new api.
#[derive(Clone, Debug)]
pub struct NewApi {
    pub name: ApiName,
    pub description: Option<String>,
    /// The path of an OpenAPI document.
    pub openapi: Option<PathBuf>,
    /// The hosts that the api may reach over TLS. If `hosts` and `allow` are empty, the host of the first
    /// server in the OpenAPI document is used.
    pub hosts: Vec<HostPattern>,
    pub allow: Vec<Allow>,
    pub secrets: Vec<SecretName>,
    pub restricted: Vec<Method>,
    pub base_url: Option<BaseUrl>,
    pub reference: Option<String>,
}

/// A checked section for a new api that is not yet written to belljar.toml.
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
    /// Checks the declaration of a new api and the belljar.toml that results from it.
    ///
    /// Relative paths in the declaration are relative to `current_dir`.
    pub fn prepare(&self, api: &NewApi, current_dir: &Path) -> Result<Addition<'_>, EngineError> {
        let name = &api.name;
        if self.state.policy_file().is_some() {
            let text = "the apis of this tenant are declared in its policy";
            return Err(EngineError::message(ErrorKind::Refused, text));
        }
        let no_home =
            || invalid("cannot find belljar.toml: HOME is not set; name the file with --config");
        let file = self.state.config_file().map(Path::to_owned);
        let file = file.or_else(|| self.state.host().config_file()).ok_or_else(no_home)?;
        refuse_project_file(&file, current_dir)?;
        if self.config.apis().contains_key(name) {
            let text = format!(
                "api {name} already exists in {}; edit the file to change it",
                file.display()
            );
            return Err(EngineError::message(ErrorKind::AlreadyExists, text));
        }
        let section = section_of(api, current_dir)?;
        let old = config::read_text(&file)?.unwrap_or_default();
        let new = section::appended(&old, &section);
        let parsed = Config::parse(&new, &absolute(current_dir, &file), Scope::Operator);
        let parsed = parsed
            .context("belljar.toml would be invalid with the new section")
            .kind(ErrorKind::Invalid)?;
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
    /// Returns the text that [`Addition::write`] appends to belljar.toml.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// Returns the path of the belljar.toml that the section is appended to.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the service that the section declares.
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// Records the new api in the ledger and appends its section to belljar.toml.
    ///
    /// Fails if belljar.toml changed after [`Apis::prepare`] read it.
    pub fn write(self) -> Result<Service, EngineError> {
        let Self { apis, file, old, new, service, event, .. } = self;
        let ledger = record::open(&apis.state).kind(ErrorKind::Broken)?;
        let recorded = ledger.record(Draft::new(event)).map(drop);
        recorded.context("cannot record that an api is added").kind(ErrorKind::Broken)?;
        let written = durable::replace(&file, &old, &new, Links::Follow);
        written
            .with_context(|| format!("cannot write {}", file.display()))
            .kind(ErrorKind::Broken)?;
        Ok(service)
    }
}

/// Refuses a project's belljar.toml, which a box may have written and which cannot declare apis.
fn refuse_project_file(file: &Path, current_dir: &Path) -> Result<(), EngineError> {
    let project = config::project_file(Some(current_dir));
    match project.is_some_and(|project| config::same_file(&project, file)) {
        true => Err(invalid(format!(
            "{} is the file of a project, which cannot declare apis; name your own file with --config",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// Returns the text of the api's section, with each string on one line.
fn section_of(api: &NewApi, current_dir: &Path) -> Result<String, EngineError> {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key, Item::Value(value)));
    if let Some(description) = &api.description {
        put("description", one_line(description)?);
    }
    let (path, document) = match &api.openapi {
        Some(path) => {
            let (path, document) = document(path, current_dir)?;
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

/// Returns the text of an allow rule, or the name of a preset.
fn rule(allow: &Allow) -> String {
    match allow {
        Allow::Preset(name) => name.to_string(),
        Allow::Rule(rule) => rule.what.to_string(),
    }
}

/// Reads an OpenAPI document. Returns its absolute path and the parsed document.
fn document(path: &Path, current_dir: &Path) -> Result<(String, Document), EngineError> {
    let typed = path.to_string_lossy();
    if typed.starts_with("https://") || typed.starts_with("http://") {
        let typed = safe_line(typed.as_bytes());
        return Err(invalid(format!(
            "--openapi needs a file, not a URL; download it first: curl -fsSLo openapi.json {typed}"
        )));
    }
    let absolute = absolute(current_dir, path);
    let bytes = std::fs::read(&absolute)
        .with_context(|| format!("--openapi: cannot read {}", path.display()))
        .kind(ErrorKind::Invalid)?;
    let parsed = Document::parse(&bytes)
        .with_context(|| format!("--openapi: cannot parse {}", path.display()))
        .kind(ErrorKind::Invalid)?;
    let text =
        absolute.to_str().context("--openapi: the path is not UTF-8").kind(ErrorKind::Invalid)?;
    Ok((text.to_owned(), parsed))
}

/// Returns the host of the first server in an OpenAPI document.
fn server(document: Option<&Document>) -> Result<HostPattern, EngineError> {
    let server = document.and_then(Document::server);
    let base = server.and_then(|server| server.parse::<BaseUrl>().ok());
    let no_host = "cannot tell which hosts the api uses: there is no OpenAPI document with an https server; name the hosts with --host or --allow";
    let base = base.filter(|base| base.to_string().starts_with("https://"));
    Ok(HostPattern::exact(base.ok_or_else(|| invalid(no_host))?.target().clone()))
}

/// Returns an absolute path without `.` and repeated slashes. `path` is relative to `current_dir`.
fn absolute(current_dir: &Path, path: &Path) -> PathBuf {
    let path = current_dir.join(path);
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
    fn f15_text_of_a_new_api_cannot_add_keys_or_sections_to_the_configuration() {
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
