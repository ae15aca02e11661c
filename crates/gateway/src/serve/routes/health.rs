//! The routes for monitoring: liveness, readiness and metrics.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, json_response};
use crate::serve::metrics;
use crate::serve::problem::Problem;

/// The response of `/healthz` and `/readyz`.
#[derive(Serialize)]
struct Health {
    status: &'static str,
}

const OK: Health = Health { status: "ok" };

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .add(Operation::get("/healthz", Access::Anyone), healthz)
        .add(Operation::get("/readyz", Access::Anyone), readyz)
        .add(Operation::get("/metrics", Access::For(Act::ReadMetrics)), metrics)
}

/// The server accepts requests.
async fn healthz(_: Call) -> Result<Response, Problem> {
    json_response(StatusCode::OK, &OK)
}

/// The state directory and the ledger can be written.
async fn readyz(call: Call) -> Result<Response, Problem> {
    call.app.check_ready().await?;
    json_response(StatusCode::OK, &OK)
}

async fn metrics(call: Call) -> Result<Response, Problem> {
    let mut response = Body::from(call.app.metrics.text()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    Ok(response)
}
