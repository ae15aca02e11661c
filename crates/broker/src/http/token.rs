//! Access tokens: fetched by the broker for the operator, never by the box.

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use zeroize::Zeroizing;

use crate::broker::Broker;
use crate::record::{Decided, Finished, Verdict, Word};
use crate::scrub::BoxError;
use crate::vault::{Fetched, TokenRequest};

/// Longest answer of a token's server.
const ANSWER: usize = 64 * 1024;

/// Asks the token's server. That is on record like every other way out.
pub(super) async fn fetch(broker: &Broker, request: TokenRequest) -> Result<Fetched, BoxError> {
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
