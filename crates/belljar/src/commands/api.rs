//! `belljar api`: lists, shows, adds and tests the services that programs in code mode can call.

mod add;

use std::time::Duration;

use belljar_model::code::ApiName;
use belljar_model::display::{safe_line, safe_multiline};
use belljar_model::net::Method;
use serde::Serialize;
use serde_json::json;

use crate::cli::Cli;
use crate::cli::api::{ApiArgs, ApiCommand, ShowArgs};
use crate::commands::code;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::apis::{self, ApiQuery, ApiStatus, Apis, Service};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::programs::{Language, Program, Work};

/// Runs `belljar api`.
pub(crate) fn run(cli: &Cli, args: &ApiArgs) -> Outcome {
    let apis = Apis::open(&scope::open(cli.config.as_deref())?)?;
    match &args.command {
        ApiCommand::List { json } => list(&apis, *json),
        ApiCommand::Show(args) => show(&apis, args),
        ApiCommand::Add(args) => add::run(&apis, args),
        ApiCommand::Test { name, path, json } => test(cli, &apis, name, path, *json),
    }
}

/// A declared service, as JSON.
#[derive(Serialize)]
struct ApiLine<'a> {
    name: &'a str,
    description: Option<&'a str>,
    base: Option<String>,
    allow: Vec<String>,
    secrets: Vec<&'a str>,
    restricted: Vec<&'a str>,
    yolo: bool,
    operations: Option<usize>,
    /// Remarks about parts of the declaration that have no or an unexpected effect.
    remarks: Vec<String>,
}

impl<'a> ApiLine<'a> {
    fn new(ApiStatus { api, service }: &'a ApiStatus) -> Self {
        let service = service.as_ref();
        let remarks = match service {
            Ok(service) => service.remarks.clone(),
            Err(error) => vec![error_chain(error)],
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

/// Prints the declared services.
fn list(apis: &Apis, json: bool) -> Outcome {
    let all = apis.list();
    if all.is_empty() && !json {
        print::note("there are no services; `belljar api add NAME --host HOST` declares a service");
    }
    for api in &all {
        let api_line = ApiLine::new(api);
        if json {
            print::json(&api_line).kind(ErrorKind::Broken)?;
            continue;
        }
        let what = match api_line.operations {
            Some(0) | None => String::new(),
            Some(count) => format!(", {count} operations"),
        };
        let mut line = format!("{:<20} {}{what}", api_line.name, api_line.allow.join("; "));
        if !api_line.secrets.is_empty() {
            line.push_str(&format!(", secret {}", api_line.secrets.join(", ")));
        }
        if api_line.yolo && !api_line.restricted.is_empty() {
            line.push_str(&format!(", yolo: {} allowed", api_line.restricted.join(", ")));
        }
        print::out(&format!("{}\n", safe_line(line))).kind(ErrorKind::Broken)?;
        for remark in &api_line.remarks {
            print::note(&format!("{}: {remark}", api_line.name));
        }
    }
    Ok(0)
}

/// Prints the operations and types of a service.
fn show(apis: &Apis, args: &ShowArgs) -> Outcome {
    let api = apis.get(&args.name)?;
    if args.json {
        print::json(&ApiLine::new(&api)).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let service = api.service?;
    for remark in &service.remarks {
        print::note(remark);
    }
    let text = match (&args.search, &args.operation, args.types) {
        (_, _, true) => Ok(apis::declarations([&service])),
        (Some(words), _, _) => service.describe(&ApiQuery::Search(words.clone())),
        (None, Some(name), _) => service.describe(&ApiQuery::Operation(name.clone())),
        (None, None, false) => service.describe(&ApiQuery::Overview),
    };
    print::page(&safe_multiline(text.kind(ErrorKind::Invalid)?)).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// The program that `belljar api test` runs; its input is the path of the request.
const TEST_PROGRAM: &str = "\
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

/// Sends one request to a service from a box.
fn test(cli: &Cli, apis: &Apis, name: &ApiName, path: &str, json: bool) -> Outcome {
    let service = apis.get(name)?.service?;
    for remark in &service.remarks {
        print::note(remark);
    }
    let program = Program::Code {
        code: TEST_PROGRAM.to_owned(),
        language: Language::JavaScript,
        input: Some(json!({ "path": path }).to_string()),
    };
    let apis = Some([name.clone()].into_iter().collect());
    let work = Work { program, apis, timeout: Some(Duration::from_secs(60)) };
    let answer = code::execute(cli, None, work, json)?;
    let exit = code::report(&answer, json)?;
    Ok(exit)
}

/// Returns an error with its causes in one line, without repeated texts.
fn error_chain(error: &EngineError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(&format!(": {cause}"));
        }
        source = error.source();
    }
    text
}
