//! `belljar api`: the services that programs of models are given.

mod add;

use std::time::Duration;

use belljar_code::api::{self, Ask, Service, ServiceError};
use belljar_model::Config;
use belljar_model::code::{Api, ApiName};
use belljar_model::display::{safe_line, safe_multiline};
use belljar_model::net::Method;
use serde::Serialize;
use serde_json::json;

use crate::cli::Cli;
use crate::cli::api::{ApiArgs, ApiCommand, ShowArgs};
use crate::commands::code;
use crate::config;
use crate::failure::{Code as _, FAILED, Failure, Outcome, USAGE};
use crate::print;
use crate::workshop::{Language, Program, Work};

pub(crate) fn run(cli: &Cli, args: &ApiArgs) -> Outcome {
    // The operator's own file only: a project declares no services.
    let config = config::load(cli, None)?;
    match &args.command {
        ApiCommand::List { json } => list(&config, *json),
        ApiCommand::Show(args) => show(&config, args),
        ApiCommand::Add(args) => add::run(cli, &config, args),
        ApiCommand::Test { name, path, json } => test(cli, &config, name, path, *json),
    }
}

/// A service in a list.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    description: Option<&'a str>,
    base: Option<String>,
    allow: Vec<String>,
    secrets: Vec<&'a str>,
    restricted: Vec<&'a str>,
    yolo: bool,
    operations: Option<usize>,
    /// What does not work as one may think.
    remarks: Vec<String>,
}

impl<'a> Listed<'a> {
    fn new(api: &'a Api, service: Result<&Service, &ServiceError>) -> Self {
        let remarks = match service {
            Ok(service) => service.remarks.clone(),
            Err(error) => vec![chain(error)],
        };
        Self {
            name: api.name.as_str(),
            description: api.description.as_deref(),
            base: service.ok().and_then(Service::base).map(str::to_owned),
            allow: api.allow.iter().map(|rule| rule.what.to_string()).collect(),
            secrets: api.secrets.iter().map(AsRef::as_ref).collect(),
            restricted: api.restricted.iter().map(Method::as_str).collect(),
            yolo: api.yolo,
            operations: service.ok().map(|service| service.operations()),
            remarks,
        }
    }
}

fn list(config: &Config, json: bool) -> Outcome {
    if config.apis().is_empty() && !json {
        print::note("no services; `belljar api add NAME --host HOST` declares one");
    }
    for api in config.apis().values() {
        let service = read(api, config);
        let listed = Listed::new(api, service.as_ref());
        if json {
            print::json(&listed).code(FAILED)?;
            continue;
        }
        let what = match listed.operations {
            Some(0) | None => String::new(),
            Some(count) => format!(", {count} operations"),
        };
        let mut line = format!("{:<20} {}{what}", listed.name, listed.allow.join("; "));
        if !listed.secrets.is_empty() {
            line.push_str(&format!(", secret {}", listed.secrets.join(", ")));
        }
        if listed.yolo && !listed.restricted.is_empty() {
            line.push_str(&format!(", yolo: {} allowed", listed.restricted.join(", ")));
        }
        print::out(&format!("{}\n", safe_line(line))).code(FAILED)?;
        for remark in &listed.remarks {
            print::note(&format!("{}: {remark}", listed.name));
        }
    }
    Ok(0)
}

fn show(config: &Config, args: &ShowArgs) -> Outcome {
    let api = config.api(&args.name).code(USAGE)?;
    let service = read(api, config);
    if args.json {
        print::json(&Listed::new(api, service.as_ref())).code(FAILED)?;
        return Ok(0);
    }
    let service = service.code(FAILED)?;
    for remark in &service.remarks {
        print::note(remark);
    }
    let text = match (&args.search, &args.operation, args.types) {
        (_, _, true) => Ok(api::declarations([&service])),
        (Some(words), _, _) => service.describe(&Ask::Search(words.clone())),
        (None, Some(name), _) => service.describe(&Ask::Operation(name.clone())),
        (None, None, false) => service.describe(&Ask::Overview),
    };
    print::page(&safe_multiline(text.code(USAGE)?)).code(FAILED)?;
    Ok(0)
}

/// What a test sends; where to comes as its input.
const TEST: &str = "\
const response = await Object.values(apis)[0].fetch(input.path);
const text = await response.text();
return {
  url: response.url || input.path,
  status: response.status,
  type: response.headers.get(\"content-type\"),
  bytes: new TextEncoder().encode(text).length,
  begins: text.slice(0, 400),
};
";

fn test(cli: &Cli, config: &Config, name: &ApiName, path: &str, json: bool) -> Outcome {
    let api = config.api(name).code(USAGE)?;
    let service = read(api, config).code(FAILED)?;
    for remark in &service.remarks {
        print::note(remark);
    }
    let program = Program::Code {
        code: TEST.to_owned(),
        language: Language::JavaScript,
        input: Some(json!({ "path": path }).to_string()),
    };
    let apis = Some([name.clone()].into_iter().collect());
    let work = Work { program, apis, timeout: Some(Duration::from_secs(60)) };
    let answer = code::execute(cli, None, work, json)?;
    let exit = code::told(&answer, json)?;
    Ok(exit)
}

fn read(api: &Api, config: &Config) -> Result<Service, ServiceError> {
    Service::read(api, config, config::home().as_deref())
}

fn chain(error: &ServiceError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(&format!(": {told}"));
        }
        source = error.source();
    }
    text
}

/// What is wrong with a service as a failure of the command.
impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        Self { code: FAILED, error: error.into() }
    }
}
