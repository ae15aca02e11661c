//! Fetches access tokens for the operator's secrets. The box never does this itself.

use std::sync::Arc;
use std::time::Duration;

use belljar_model::net::SecretName;
use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::sync::oneshot;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::broker::Broker;
use crate::record::{BrokerEvent, Decided, Finished, NOT_KEPT, Unrecorded, Verdict, not_kept};
use crate::scrub::BoxError;
use crate::vault::{Due, Fetched, RefreshError, Renewal, TokenRequest};

/// Maximum size of a token server's response.
const MAX_RESPONSE: usize = 64 * 1024;

/// Timeout for storing a new refresh token.
const STORE_TIMEOUT: Duration = Duration::from_secs(20);

/// Fetches an access token that a request needs. Continues if the client cancels its request: the
/// server can already have replaced the refresh token, and the new one must not be lost.
pub(super) async fn refresh(broker: &Arc<Broker>, due: Due) -> Result<(), RefreshError> {
    let (sender, result) = oneshot::channel();
    let (own, name) = (Arc::clone(broker), due.name().clone());
    broker.spawn(async move {
        let fetch = |request| fetch(&own, request);
        let store = |name, renewal| store(&own, name, renewal);
        sender.send(own.vault.fetch(due, fetch, store).await).ok(); // the client can be gone, see above
    });
    let ended =
        |source: oneshot::error::RecvError| RefreshError::Fetch { name, source: source.into() };
    result.await.map_err(ended)?
}

/// Stores a new refresh token in the vault and returns whether that succeeded. If that fails, the
/// access token is still valid, and an alarm tells the operator to log in again.
async fn store(broker: &Broker, name: SecretName, renewal: Option<Renewal>) -> bool {
    let why = match renewal {
        None => "it could not be sealed",
        Some(renewal) => match timeout(STORE_TIMEOUT, broker.recorder.renew(renewal)).await {
            Ok(Ok(_)) => return true,
            // The supervisor has already raised the alarm with the cause.
            Ok(Err(Unrecorded::Refused)) => return false,
            Ok(Err(Unrecorded::Gone)) => "the supervisor has exited",
            Err(_) => "the supervisor did not answer",
        },
    };
    broker.alarm(NOT_KEPT, not_kept(&name, why));
    false
}

/// Sends the request to the token server, and records it like every other request.
async fn fetch(broker: &Broker, request: TokenRequest) -> Result<Fetched, BoxError> {
    let TokenRequest { name, url, headers, body } = request;
    let permit = broker.rules().token(&url)?;
    let route = broker.upstream.find(&permit, false).await?;
    let decided = Decided {
        method: "POST".to_owned(),
        scheme: permit.scheme().to_string(),
        host: permit.target().to_string(),
        port: permit.port(),
        path: url.path.clone(),
        verdict: Verdict::Allow,
        rule: Some(permit.rule().to_owned()),
        reason: format!("an access token for {name}"),
        secrets: vec![name.to_string()],
        is_websocket: false,
    };
    let recorded = broker.recorder.record(vec![BrokerEvent::Decided(decided)]).await?;
    let began = std::time::Instant::now();
    let sent = u64::try_from(body.len())?;
    let body = Full::new(Bytes::copy_from_slice(&body)).map_err(|never| match never {});
    let mut request = Request::new(body.boxed_unsync());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.path.parse::<Uri>()?;
    *request.headers_mut() = headers;
    let answered = async {
        let answer = broker.upstream.send(&permit, route, request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_RESPONSE).collect().await?.to_bytes();
        Ok::<_, BoxError>(Fetched { status, body: Zeroizing::new(body.to_vec()) })
    };
    let answered = answered.await;
    broker.recorder.send(vec![BrokerEvent::Finished(Finished {
        cause: recorded.index(),
        status: answered.as_ref().ok().map(|fetched| fetched.status.as_u16()),
        sent,
        received: answered.as_ref().map_or(0, |it| u64::try_from(it.body.len()).unwrap_or(0)),
        micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        error: answered.as_ref().err().map(ToString::to_string),
    })]);
    answered
}
