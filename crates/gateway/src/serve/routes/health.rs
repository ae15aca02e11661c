//! The routes for monitoring: liveness, readiness and metrics.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::metrics;
use crate::serve::problem::{Problem, ProblemKind};

/// The response of `/healthz` and `/readyz`.
#[derive(Serialize, schemars::JsonSchema)]
struct Health {
    status: &'static str,
}

const OK: Health = Health { status: "ok" };

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .add(
            Operation::get("/healthz", Access::Anyone)
                .about("Tells whether the server accepts requests")
                .returns::<Health>(StatusCode::OK),
            healthz,
        )
        .add(
            Operation::get("/readyz", Access::Anyone)
                .about("Tells whether the state directory and the ledger can be written")
                .returns::<Health>(StatusCode::OK),
            readyz,
        )
        .add(
            Operation::get("/metrics", Access::For(Act::ReadMetrics))
                .about("Returns the metrics of the server in the format of Prometheus")
                .returns_bytes(StatusCode::OK, metrics::CONTENT_TYPE),
            metrics,
        )
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

/// Returns the metrics of the whole server, which only the tenant `local` may see.
async fn metrics(call: Call) -> Result<Response, Problem> {
    if !call.who()?.tenant().is_local() {
        let detail = "metrics describe all tenants; use a token of the tenant `local`";
        return Err(Problem::new(ProblemKind::FORBIDDEN, detail));
    }
    let app = call.app.clone();
    let text = blocking(&call.app, move || {
        app.read_durations()?;
        Ok(app.metrics.text())
    })
    .await?;
    let mut response = Body::from(text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    Ok(response)
}
