//! Lists and reads resources: skills, declared services and results of earlier calls of the
//! session.

use belljar_engine::apis::ApiQuery;
use belljar_engine::programs::{ProgramSession, Programs};
use belljar_engine::skills::{SkillState, Skills};
use belljar_model::code::{Api, ApiName, SkillName};
use serde_json::{Value, json};

use super::instructions::description;
use crate::mcp::service::{ReadError, ResourceContents, ResourceSpec, ResourceTemplateSpec};

pub(super) fn list(
    programs: &Programs,
    skills: &Skills,
    room: Option<&ProgramSession>,
) -> Vec<ResourceSpec> {
    let resource =
        |uri: String, name: &str, description: Option<String>, mime: &str| ResourceSpec {
            uri,
            name: name.to_owned(),
            title: None,
            description,
            mime_type: Some(mime.to_owned()),
        };
    let mut found = Vec::new();
    for info in skills.list().unwrap_or_default() {
        if let SkillState::Active { skill, .. } = &info.state {
            let about = Some(description(&skill.description));
            found.push(resource(format!("skill://{}", info.name), info.name.as_str(), about, CODE));
        }
    }
    if let Ok(config) = programs.config() {
        for api in config.apis().values() {
            let about = api.description.as_deref().map(description);
            found.push(resource(format!("api://{}", api.name), api.name.as_str(), about, TEXT));
        }
    }
    for id in room.map(ProgramSession::result_ids).unwrap_or_default() {
        found.push(resource(format!("run://{id}"), &id, None, JSON));
    }
    found
}

const CODE: &str = "text/x-typescript";
const TEXT: &str = "text/markdown";
const JSON: &str = "application/json";

pub(super) fn templates() -> Vec<ResourceTemplateSpec> {
    let template = |uri: &str, name: &str, about: &str, mime: &str| ResourceTemplateSpec {
        uri_template: uri.to_owned(),
        name: name.to_owned(),
        title: None,
        description: Some(about.to_owned()),
        mime_type: Some(mime.to_owned()),
    };
    vec![
        template("skill://{name}", "skill", "The code of a saved skill", CODE),
        template("api://{name}", "api", "The description of a declared service", TEXT),
        template("run://{id}", "run", "The result of an earlier call of this session", JSON),
    ]
}

pub(super) fn read(
    programs: &Programs,
    skills: &Skills,
    room: Option<&ProgramSession>,
    uri: &str,
) -> Result<Vec<ResourceContents>, ReadError> {
    let (mime, text) = if let Some(name) = uri.strip_prefix("skill://") {
        let name: SkillName = name.parse().map_err(|_| ReadError::NotFound)?;
        let skill = skills.get(&name).map_err(|_| ReadError::NotFound)?;
        (CODE, skill.code)
    } else if let Some(name) = uri.strip_prefix("api://") {
        let name: ApiName = name.parse().map_err(|_| ReadError::NotFound)?;
        let config = programs.config().map_err(|error| ReadError::Internal(error.to_string()))?;
        let api = config.api(&name).map_err(|_| ReadError::NotFound)?;
        (TEXT, describe(programs, api, None).map_err(ReadError::Internal)?)
    } else if let Some(id) = uri.strip_prefix("run://") {
        (JSON, room.and_then(|room| room.result(id)).ok_or(ReadError::NotFound)?)
    } else {
        return Err(ReadError::NotFound);
    };
    Ok(vec![ResourceContents { uri: uri.to_owned(), mime_type: Some(mime.to_owned()), text }])
}

/// Returns a declared service as an entry of a JSON list.
pub(super) fn api_line(api: &Api) -> Value {
    let rules: Vec<String> = api.allow.iter().map(|rule| rule.what.to_string()).collect();
    let restricted: Vec<&str> = match api.yolo {
        true => Vec::new(),
        false => api.restricted.iter().map(|method| method.as_str()).collect(),
    };
    let secrets: Vec<String> = api.secrets.iter().map(ToString::to_string).collect();
    json!({
        "name": api.name.as_str(),
        "use": format!("apis.{}", api.name.identifier()),
        "description": api.description.as_deref().map(description),
        "allowed": rules,
        "restricted_methods": restricted,
        "secrets": secrets,
        "reference": api.reference,
    })
}

/// Returns the description of a service, or of the operations that match a search.
pub(super) fn describe(
    programs: &Programs,
    api: &Api,
    search: Option<&str>,
) -> Result<String, String> {
    let config = programs.config().map_err(|error| error.to_string())?;
    let offer = programs.api_module(&config, api).map_err(|error| error.to_string())?;
    let description = match search {
        None => offer.service.describe(&ApiQuery::Overview),
        Some(words) => {
            let whole = offer.service.describe(&ApiQuery::Operation(words.to_owned()));
            whole.or_else(|_| offer.service.describe(&ApiQuery::Search(words.to_owned())))
        }
    };
    description.map_err(|error| error.to_string())
}
