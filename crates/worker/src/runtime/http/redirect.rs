//! Redirects as the Fetch standard defines them.

use hyper::header::{self, HeaderName};
use hyper::{Method, StatusCode};
use url::Url;

use super::{FetchError, HttpRequest, HttpResponse, RequestBody};

/// How an HTTP request handles a redirect, as in `fetch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    Follow,
    /// The redirect is returned as the response.
    Manual,
    /// Fail with an error.
    Error,
}

pub(super) fn is_redirect(response: &HttpResponse) -> bool {
    matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The headers with credentials, which must not be sent to another origin.
const PRIVATE: [HeaderName; 4] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, header::HOST];
/// The headers that describe a request body, removed when a redirect drops the body.
const BODY_HEADERS: [HeaderName; 5] = [
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
];

/// Changes an HTTP request so that it follows a redirect. Returns false if the response has no
/// `location`.
pub(super) fn follow(
    request: &mut HttpRequest,
    response: &HttpResponse,
) -> Result<bool, FetchError> {
    let Some(location) = response.headers.get(header::LOCATION) else { return Ok(false) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let bad = || FetchError::BadRedirect(location.to_string());
    let mut next: Url = request.url.join(&location).map_err(|_| bad())?;
    if !["http", "https"].contains(&next.scheme()) {
        return Err(bad());
    }
    if next.fragment().is_none() {
        next.set_fragment(request.url.fragment());
    }
    let becomes_get = match response.status {
        StatusCode::SEE_OTHER => request.method != Method::GET && request.method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method == Method::POST,
        _ => false,
    };
    if becomes_get {
        (request.method, request.body) = (Method::GET, RequestBody::None);
        for name in BODY_HEADERS {
            request.headers.remove(name);
        }
    } else if matches!(request.body, RequestBody::Gone) {
        return Err(FetchError::BodyIsGone);
    }
    if next.origin() != request.url.origin() {
        for name in PRIVATE {
            request.headers.remove(name);
        }
    }
    request.url = next;
    Ok(true)
}
