//! Idempotency keys: a repeated POST with the key of an earlier one has no second effect.
//!
//! The key is stored before the handler runs, and the response afterwards. A handler continues if its client
//! disconnects, so that the response of every request that the server survives is stored. After a kill of
//! the server the result of an open request is unknown, and its key is refused.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use sha2::{Digest as _, Sha256};

use super::app::App;
use super::call::{Call, blocking};
use super::problem::{Problem, ProblemKind};
use super::routes::{Operation, Replay};
use super::store::{KeyState, RequestKey, StoredResponse};

/// The header with the key of a request.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// The header that marks the response of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The maximum length of a key in bytes.
const MAX_KEY: usize = 128;
/// The maximum length of a stored response in bytes.
const MAX_RESPONSE: usize = 4 * 1024 * 1024;

/// The keys of requests that run in this process.
#[derive(Debug, Default)]
pub(crate) struct RunningKeys(Mutex<HashSet<RequestKey>>);

impl RunningKeys {
    /// Adds a key. Returns `None` if a request with this key runs.
    fn add(self: &Arc<Self>, key: &RequestKey) -> Option<RunningKey> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.insert(key.clone()).then(|| RunningKey { keys: Arc::clone(self), key: key.clone() })
    }
}

/// The key of a running request. Dropping the value removes it from the running keys.
struct RunningKey {
    keys: Arc<RunningKeys>,
    key: RequestKey,
}

impl Drop for RunningKey {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Calls the handler of a route, at most once for each key.
pub(super) async fn once<H, F>(
    call: Call,
    operation: &Arc<Operation>,
    handler: H,
) -> Result<Response, Problem>
where
    H: FnOnce(Call) -> F + Send + 'static,
    F: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    let Some((key, digest)) = key_of(&call, operation)? else { return handler(call).await };
    let app = Arc::clone(&call.app);
    let Some(running) = app.running_keys.add(&key) else {
        let detail = "a request with this idempotency key is running; wait until it has ended";
        return Err(Problem::new(ProblemKind::BUSY, detail).retry_after(1));
    };
    let (shared, taken) = (Arc::clone(&app), key.clone());
    let state =
        blocking(&app, move || Ok(shared.store.take_key(&taken, digest, shared.now())?)).await?;
    match state {
        KeyState::New => {}
        KeyState::Done(response) => return replayed(response),
        KeyState::Open => {
            let detail = "the server ended during the request with this key, and its result is \
                          unknown; look at the object, then use another key";
            return Err(Problem::new(ProblemKind::NEEDS_ATTENTION, detail));
        }
        KeyState::Reused => {
            let detail = "this idempotency key belongs to another request; use another key";
            return Err(Problem::new(ProblemKind::KEY_REUSED, detail));
        }
    }
    let (tasks, replay) = (app.tasks.clone(), operation.replay);
    let carried_out = tasks.spawn(async move {
        let result = handler(call).await;
        let result = kept(&app, &key, replay, result).await;
        drop(running);
        result
    });
    carried_out
        .await
        .unwrap_or_else(|_| Err(Problem::new(ProblemKind::INTERNAL, "the operation failed")))
}

/// Returns the key of a request and the digest of the request. `None` for a request without a key.
fn key_of(call: &Call, operation: &Operation) -> Result<Option<(RequestKey, [u8; 32])>, Problem> {
    if operation.method != Method::POST {
        return Ok(None);
    }
    let Some(text) = call.header(&HEADER) else { return Ok(None) };
    let Ok(who) = call.who() else { return Ok(None) };
    let is_valid = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > MAX_KEY || !is_valid(&text) {
        let detail = "the header `Idempotency-Key` must have 1 to 128 visible ASCII characters";
        return Err(Problem::new(ProblemKind::BAD_REQUEST, detail));
    }
    let mut digest = Sha256::new();
    for part in [call.path().as_bytes(), call.raw_query().as_bytes(), call.raw_body()] {
        digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part);
    }
    let key = who.key((who.caller.principal.to_string(), text));
    Ok(Some((key, digest.finalize().into())))
}

/// Stores the response of a request. A request that was refused before it had an effect frees its key.
async fn kept(
    app: &Arc<App>,
    key: &RequestKey,
    replay: Replay,
    result: Result<Response, Problem>,
) -> Result<Response, Problem> {
    let (shared, key) = (Arc::clone(app), key.clone());
    let response = match result {
        Ok(response) => response,
        // An internal error does not tell whether the effect happened. The status 503 means that it did not.
        Err(problem) if problem.kind.status == StatusCode::INTERNAL_SERVER_ERROR => {
            return Err(problem);
        }
        Err(problem) => {
            blocking(app, move || Ok(shared.store.release_key(&key)?)).await?;
            return Err(problem);
        }
    };
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_RESPONSE).collect().await.map(|body| body.to_bytes());
    let body = body.map_err(|_| {
        Problem::new(ProblemKind::INTERNAL, "the response is too large to be stored")
    })?;
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let stored = StoredResponse {
        status: parts.status.as_u16(),
        content_type: content_type.map(str::to_owned),
        body: (replay == Replay::Stored).then(|| body.to_vec()),
    };
    blocking(app, move || Ok(shared.store.finish_key(&key, &stored)?)).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// Returns the response of the earlier request with the same key.
fn replayed(stored: StoredResponse) -> Result<Response, Problem> {
    let Some(body) = stored.body else {
        let detail = "the response to this key contained a credential, which is shown once; \
                      revoke that credential and use another key";
        return Err(Problem::new(ProblemKind::SHOWN_ONCE, detail));
    };
    let status = StatusCode::from_u16(stored.status)
        .map_err(|_| Problem::new(ProblemKind::INTERNAL, "the stored response is damaged"))?;
    let mut response = (status, Body::from(Bytes::from(body))).into_response();
    let headers = response.headers_mut();
    headers.remove(CONTENT_TYPE);
    if let Some(value) = stored.content_type.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}
