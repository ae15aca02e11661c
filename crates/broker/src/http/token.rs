//! Access tokens: fetched by the broker for the operator, never by the box.

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
use crate::record::{Decided, Finished, NOT_KEPT, Unrecorded, Verdict, Word, not_kept};
use crate::scrub::BoxError;
use crate::vault::{Due, Fetched, RefreshError, Renewal, TokenRequest};

/// Longest answer of a token's server.
const ANSWER: usize = 64 * 1024;

/// How long a request waits until a new refresh token is stored.
const PATIENCE: Duration = Duration::from_secs(20);

/// Fetches a token that is due. That goes on when the request is given up: its server may have
/// exchanged the refresh token by then, and the new one must not be lost.
pub(super) async fn refresh(broker: &Arc<Broker>, due: Due) -> Result<(), RefreshError> {
    let (tell, told) = oneshot::channel();
    let (own, name) = (Arc::clone(broker), due.name().clone());
    broker.spawn(async move {
        let fetch = |request| fetch(&own, request);
        let keep = |name, renewal| keep(&own, name, renewal);
        tell.send(own.vault.fetch(due, fetch, keep).await).ok(); // see above
    });
    let ended =
        |source: oneshot::error::RecvError| RefreshError::Fetch { name, source: source.into() };
    told.await.map_err(ended)?
}

/// Has a new refresh token stored. If that fails the access token is still good, and whoever has to
/// log in again is told so.
async fn keep(broker: &Broker, name: SecretName, renewal: Option<Renewal>) -> bool {
    let why = match renewal {
        None => "it could not be sealed",
        Some(renewal) => match timeout(PATIENCE, broker.clerk.renew(renewal)).await {
            Ok(Ok(_)) => return true,
            // The supervisor raised the alarm, which knows why.
            Ok(Err(Unrecorded::Refused)) => return false,
            Ok(Err(Unrecorded::Gone)) => "the supervisor is gone",
            Err(_) => "the supervisor did not answer",
        },
    };
    broker.alarm(NOT_KEPT, not_kept(&name, why));
    false
}

/// Asks the token's server. That is on record like every other way out.
async fn fetch(broker: &Broker, request: TokenRequest) -> Result<Fetched, BoxError> {
    let TokenRequest { name, url, headers, body } = request;
    let permit = broker.rules().token(&url)?;
    let way = broker.upstream.find(&permit, false).await?;
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
    };
    let recorded = broker.clerk.record(vec![Word::Decided(decided)]).await?;
    let began = std::time::Instant::now();
    let sent = u64::try_from(body.len())?;
    let body = Full::new(Bytes::copy_from_slice(&body)).map_err(|never| match never {});
    let mut request = Request::new(body.boxed_unsync());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.path.parse::<Uri>()?;
    *request.headers_mut() = headers;
    let answered = async {
        let answer = broker.upstream.send(&permit, way, request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER).collect().await?.to_bytes();
        Ok::<_, BoxError>(Fetched { status, body: Zeroizing::new(body.to_vec()) })
    };
    let answered = answered.await;
    broker.clerk.tell(vec![Word::Finished(Finished {
        cause: recorded.index(),
        status: answered.as_ref().ok().map(|fetched| fetched.status.as_u16()),
        sent,
        received: answered.as_ref().map_or(0, |it| u64::try_from(it.body.len()).unwrap_or(0)),
        micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        error: answered.as_ref().err().map(ToString::to_string),
    })]);
    answered
}
