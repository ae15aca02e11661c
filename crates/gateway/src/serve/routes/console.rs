//! The pages of the web console, and their files.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use belljar_console::{ASSETS, Api, PATTERNS, PageRequest, Refusal, Text};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::Value;

use super::{Access, Operation, Routes};
use crate::serve::call::Call;
use crate::serve::headers::{CACHED, policy_with_nonce};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::session::random;

/// The maximum length of a response of the API to a page.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

const HTML: &str = "text/html; charset=utf-8";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(super) fn add(mut routes: Routes) -> Routes {
    for pattern in PATTERNS {
        routes = routes.add(Operation::get(pattern, Access::Page), page);
    }
    for asset in &ASSETS {
        routes = routes.add(Operation::get(asset.path, Access::Anyone), file);
    }
    routes
}

/// Returns a file of the console. Its address has a version, so a browser may keep it.
async fn file(call: Call) -> Result<Response, Problem> {
    let found = ASSETS.iter().find(|asset| asset.path == call.route());
    let asset = found.ok_or_else(|| Problem::internal("the console has no such file"))?;
    let mut response = Body::from(asset.content()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(CACHED));
    Ok(response)
}

/// The API with the rights of the person who opened a page.
struct PageApi<'a>(&'a Call);

impl Api for PageApi<'_> {
    async fn get(&self, path: &str) -> Result<Value, Refusal> {
        let response = self.0.get(path).await.map_err(|problem| refusal(&problem))?;
        let status = response.status();
        let is_text = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == TEXT);
        if let Some(problem) = response.extensions().get::<Problem>() {
            return Err(refusal(problem));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        let bytes = body.map_err(|_| unreadable(status))?.to_bytes();
        if is_text {
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        }
        serde_json::from_slice(&bytes).map_err(|_| unreadable(status))
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn refusal(problem: &Problem) -> Refusal {
    Refusal {
        status: problem.kind.status.as_u16(),
        title: problem.kind.title.to_owned(),
        detail: problem.detail().to_owned(),
    }
}

fn unreadable(status: StatusCode) -> Refusal {
    Refusal {
        status: status.as_u16(),
        title: "The page cannot be shown".to_owned(),
        detail: "a response of the API cannot be read".to_owned(),
    }
}

/// The parameters of a page. Each page uses those that it knows.
#[derive(Deserialize)]
#[serde(transparent)]
struct Query(Vec<(String, String)>);

async fn page(call: Call) -> Result<Response, Problem> {
    let Query(query) = call.query()?;
    let nonce = hex::encode(random::<16>()?.as_slice());
    let request = PageRequest {
        pattern: call.route(),
        params: call.params().to_vec(),
        query,
        now: call.app.now(),
        nonce: nonce.clone(),
    };
    match belljar_console::render(&PageApi(&call), &request).await {
        Ok(page) => {
            let mut response = html(StatusCode::OK, page);
            if page_has_terminal(call.route()) {
                let policy = policy_with_nonce(&nonce)
                    .ok_or_else(|| Problem::internal("the nonce of a page is invalid"))?;
                response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            }
            Ok(response)
        }
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok(html(status, belljar_console::refused(&refusal)))
        }
    }
}

/// Returns whether a page has a terminal, whose library adds styles to the page.
fn page_has_terminal(pattern: &str) -> bool {
    pattern == "/boxes/{box}"
}

fn html(status: StatusCode, page: String) -> Response {
    let mut response = Body::from(page).into_response();
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    response
}

/// Where a browser came from when it requested a page.
pub(super) struct Origin {
    path: String,
    /// Whether a page of another site led here. The browser then sends no strict cookie.
    is_other_site: bool,
}

impl Origin {
    pub(super) fn of(request: &Request) -> Self {
        let site = request.headers().get(FETCH_SITE).and_then(|site| site.to_str().ok());
        let is_other_site = site.is_some_and(|site| site == "cross-site");
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        Self { path: path.to_owned(), is_other_site }
    }
}

/// Returns the page for a person who is not logged in, or whose request is refused.
pub(super) fn refused(problem: &Problem, from: &Origin) -> Response {
    if problem.kind != ProblemKind::UNAUTHENTICATED {
        let status = problem.kind.status;
        return html(status, belljar_console::refused(&refusal(problem)));
    }
    if from.is_other_site {
        // A page of this server must open the page again, so that the browser sends the session.
        return html(StatusCode::OK, belljar_console::opened_again(&Text::from(&*from.path)));
    }
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/login"));
    response
}
