//! The route that explains what the policy decides about a request. Nothing is sent.

use axum::response::Response;
use belljar_engine::config;
use belljar_engine::policy::explain::{Explainer, Explanation};
use belljar_engine::supervisor::setup;
use belljar_model::net::{Method, RequestLine, Scheme, Target};
use belljar_model::{Config, DEFAULT_TEMPLATE, Template};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::boxes::find;
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::json;
use crate::serve::problem::{Problem, ProblemKind, of_state};

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::post("/v1/policy/explain", Access::For(Act::ProposeRules))
            .about(
                "Explains what the current policy decides about a network request; nothing is sent",
            )
            .body::<ExplainRequest>()
            .with_language()
            .returns::<ExplanationView>(StatusCode::OK)
            .problems(&[ProblemKind::WRONG_STATE]),
        explain,
    )
}

/// The protocol of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    #[default]
    Https,
    Http,
    Wss,
    Ws,
    Tcp,
}

/// A request to explain.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    /// A host name or an address.
    #[schemars(length(min = 1, max = 253))]
    host: String,
    /// By default that of the scheme; required for `tcp`.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 65_535))]
    port: Option<u16>,
    /// `GET` by default.
    #[schemars(regex(pattern = r"^[A-Z][A-Z_-]{0,31}$"))]
    method: Option<String>,
    /// `/` by default.
    #[schemars(regex(pattern = r"^/[!-~]{0,2047}$"))]
    path: Option<String>,
    /// `https` by default.
    scheme: Option<Protocol>,
    /// The box that sends the request.
    #[serde(rename = "box")]
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    box_name: Option<String>,
    /// The template whose rules decide, if there is no `box`; `default` by default.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    template: Option<String>,
}

/// What the policy decides about a request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Explanation")]
struct ExplanationView {
    /// The request as a method and a URL.
    request: String,
    template: String,
    /// `allow`, `ask` or `deny`.
    verdict: &'static str,
    /// The rule that decides.
    rule: Option<String>,
    /// The rule that almost allows a denied request.
    nearest: Option<String>,
    /// A name of the reason of a denial for programs, such as `no-rule`.
    code: Option<String>,
    why: String,
    /// Names of secrets that the request would carry.
    secrets: Vec<String>,
    /// Whether requests are visible to the rules and in the record.
    tls: Option<&'static str>,
}

impl ExplanationView {
    fn of(explanation: Explanation) -> Self {
        let Explanation { request, template, verdict, rule, code, reason, secrets, tls, .. } =
            explanation;
        let decides = verdict != "deny" || code.as_deref() == Some("denied-by-rule");
        let (rule, nearest) = if decides { (rule, None) } else { (None, rule) };
        let why = match verdict {
            "allow" => "a rule allows it",
            "ask" => "a person decides about each request",
            _ => reason.as_deref().unwrap_or("no rule allows it"),
        };
        Self {
            request,
            template,
            verdict,
            rule,
            nearest,
            code,
            why: why.to_owned(),
            secrets: secrets.into_iter().map(|secret| secret.name).collect(),
            tls,
        }
    }
}

impl ExplainRequest {
    fn line(&self) -> Result<RequestLine, Problem> {
        let target: Target =
            self.host.parse().map_err(|error| invalid("host", &format!("{error}")))?;
        let (scheme, upgrade) = match self.scheme.unwrap_or_default() {
            Protocol::Https => (Scheme::Https, false),
            Protocol::Http => (Scheme::Http, false),
            Protocol::Wss => (Scheme::Https, true),
            Protocol::Ws => (Scheme::Http, true),
            Protocol::Tcp => {
                let port = self.port.ok_or_else(|| invalid("port", "`tcp` needs a port"))?;
                return Ok(RequestLine::Tcp { target, port });
            }
        };
        if self.port == Some(0) {
            return Err(invalid("port", "it must be a number from 1 to 65535"));
        }
        let method = self.method.as_deref().unwrap_or("GET");
        let method: Method =
            method.parse().map_err(|error| invalid("method", &format!("{error}")))?;
        let path = self.path.clone().unwrap_or_else(|| "/".to_owned());
        let is_visible = |byte: u8| byte.is_ascii_graphic();
        if !path.starts_with('/') || path.len() > 2048 || !path.bytes().all(is_visible) {
            return Err(invalid(
                "path",
                "it must start with `/` and have visible ASCII characters",
            ));
        }
        let port = self.port.unwrap_or(scheme.port());
        Ok(RequestLine::Http { scheme, target, port, method, path, upgrade })
    }
}

fn invalid(field: &str, why: &str) -> Problem {
    Problem::invalid(format!("invalid `{field}`: {why}")).field(format!("/{field}"))
}

async fn explain(call: Call) -> Result<Response, Problem> {
    let request: ExplainRequest = call.json()?;
    let line = request.line()?;
    if request.box_name.is_some() && request.template.is_some() {
        return Err(invalid("template", "name a box or a template, not both"));
    }
    let (state, owned) = (call.scope()?, call.owned_for(Act::SeeBoxes)?);
    let view = blocking(&call.app, move || {
        let (template, config): (Template, Config) = match &request.box_name {
            Some(name) => {
                let found = find(&state, &owned, name)?;
                let rules = setup::rules(&found, &state).map_err(of_state)?;
                (rules.template, rules.config)
            }
            None => {
                let (config, _) = state.load_config(None).map_err(of_state)?;
                let name = request.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
                let template = config::template(&config, name)
                    .map_err(|error| of_state(error).field("/template"))?;
                (template, config)
            }
        };
        let explainer = Explainer::new(&config, &template).map_err(of_state)?;
        Ok(ExplanationView::of(explainer.explain(&line)))
    })
    .await?;
    json_response(StatusCode::OK, &view)
}
