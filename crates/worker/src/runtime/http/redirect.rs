//! Where an answer leads, as fetch does it.

use hyper::header::{self, HeaderName};
use hyper::{Method, StatusCode};
use url::Url;

use super::{Answer, Ask, AskError, Outgoing};

/// What a redirect does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    Follow,
    /// It is the answer.
    Manual,
    /// It is an error.
    Error,
}

pub(super) fn asks_for_another(answer: &Answer) -> bool {
    matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Headers that tell another origin what was meant for this one.
const PRIVATE: [HeaderName; 4] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, header::HOST];
/// Headers of a body that is sent no more.
const OF_A_BODY: [HeaderName; 5] = [
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
];

/// Turns a request into the next one; false where an answer names no place.
pub(super) fn follow(ask: &mut Ask, answer: &Answer) -> Result<bool, AskError> {
    let Some(location) = answer.headers.get(header::LOCATION) else { return Ok(false) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let bad = || AskError::BadRedirect(location.to_string());
    let mut next: Url = ask.url.join(&location).map_err(|_| bad())?;
    if !["http", "https"].contains(&next.scheme()) {
        return Err(bad());
    }
    if next.fragment().is_none() {
        next.set_fragment(ask.url.fragment());
    }
    let becomes_get = match answer.status {
        StatusCode::SEE_OTHER => ask.method != Method::GET && ask.method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => ask.method == Method::POST,
        _ => false,
    };
    if becomes_get {
        (ask.method, ask.body) = (Method::GET, Outgoing::None);
        for name in OF_A_BODY {
            ask.headers.remove(name);
        }
    } else if matches!(ask.body, Outgoing::Gone) {
        return Err(AskError::BodyIsGone);
    }
    if next.origin() != ask.url.origin() {
        for name in PRIVATE {
            ask.headers.remove(name);
        }
    }
    ask.url = next;
    Ok(true)
}
