//! One request of the API, after its head was checked and its route was found.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::app::App;
use super::body;
use super::head::Entrance;
use super::problem::{Problem, ProblemKind};
use super::routes::Operation;

/// What the server knows about a request before it is routed.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) entrance: Entrance,
    /// The length of the body that the head declares.
    pub(crate) length: u64,
}

/// The pattern of the route that handled a request, for the log and the metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedRoute(pub(crate) &'static str);

/// One request of the API.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
}

impl Call {
    /// Checks that the operation is allowed, and reads the body.
    pub(super) async fn new(
        app: Arc<App>,
        operation: &Operation,
        request: Request,
    ) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let context = parts.extensions.get::<RequestContext>().cloned();
        let context = context
            .ok_or_else(|| Problem::new(ProblemKind::INTERNAL, "the request has no context"))?;
        operation.access.check(&context)?;
        body::read(body, context.length, operation.max_body).await?;
        Ok(Self { app })
    }
}

/// Returns a response with a JSON body.
pub(crate) fn json_response(
    status: StatusCode,
    value: &impl Serialize,
) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value)
        .map_err(|_| Problem::new(ProblemKind::INTERNAL, "cannot write the response as JSON"))?;
    let mut response = (status, Body::from(text)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Calls a blocking function of the engine on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    /// The maximum time that a request waits for a free thread.
    const QUEUE_TIME: Duration = Duration::from_secs(10);
    let waiting = Arc::clone(&app.blocking).acquire_owned();
    let Ok(Ok(permit)) = tokio::time::timeout(QUEUE_TIME, waiting).await else {
        let problem = Problem::new(ProblemKind::UNAVAILABLE, "too many operations are running");
        return Err(problem.retry_after(5));
    };
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || {
        let result = span.in_scope(work);
        drop(permit);
        result
    });
    done.await.unwrap_or_else(|_| Err(Problem::new(ProblemKind::INTERNAL, "the operation failed")))
}
