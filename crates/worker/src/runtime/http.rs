//! An HTTP/1.1 client that sends every request to the broker of the box.
//!
//! The client needs neither DNS nor TLS: it connects to the broker at the port of the URL and sends
//! the request in absolute form. The broker checks the rules, does TLS and adds secrets. A request
//! that the broker refuses fails with the broker's own message, which names the missing rule.

mod body;
mod load;
mod pool;
mod redirect;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use url::Url;

pub use body::{BodyError, RequestBody, ResponseBody, Sender, stream};
pub use load::{LoadedModule, ModuleKind, load};
pub use redirect::Redirect;

use pool::Pool;

/// The maximum number of redirects of one request, the same as in browsers.
const MAX_REDIRECTS: usize = 20;
/// The maximum number of bytes that are read from the broker's refusal of a request.
const REFUSAL: usize = 64 * 1024;
/// The timeout of a connection to the broker.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The header that marks a response as created by the broker itself.
const BROKER: HeaderName = HeaderName::from_static("x-belljar");

/// An HTTP request.
#[derive(Debug)]
pub struct HttpRequest {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: RequestBody,
    pub redirect: Redirect,
}

/// The response to an HTTP request, with a body that is still to be read.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    /// The reason phrase of the response's status line.
    pub reason: String,
    pub headers: HeaderMap,
    /// The URL of the response, after redirects.
    pub url: Url,
    pub redirected: bool,
    pub body: ResponseBody,
}

/// The reason why an HTTP request of a program failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot fetch {0}: only http: and https: URLs are supported")]
    Scheme(String),
    #[error("cannot fetch {0}: the URL contains a user name or password")]
    Credentials(String),
    #[error("no rule of this box allows {origin}, or the box has no network")]
    Unreachable { origin: String, source: std::io::Error },
    /// The broker refused the request. `what` is the broker's message.
    #[error("{what}")]
    Refused { what: String, code: String, status: u16, retry_after: Option<u32> },
    #[error("the connection to {origin} failed: {}", innermost_cause(source))]
    Broken { origin: String, source: hyper::Error },
    #[error("the server at {0} responded with a redirect, which this request does not allow")]
    Redirected(String),
    #[error("the request was redirected more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    #[error("cannot follow the redirect to {0}: only http: and https: URLs are supported")]
    BadRedirect(String),
    #[error("cannot follow the redirect: the request body was a stream and cannot be sent again")]
    BodyIsGone,
}

/// Returns the message of an error's innermost cause, which is the most specific one.
fn innermost_cause(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// An HTTP client that reuses its connections.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Rc<Pool>,
}

impl Client {
    /// Creates a client. `broker` is the address of the broker, which listens on every port.
    pub fn new(broker: IpAddr) -> Self {
        Self { pool: Rc::new(Pool::new(broker)) }
    }

    /// Sends an HTTP request through the broker and follows redirects.
    ///
    /// Dropping the future or the body of the response closes the connection.
    pub async fn fetch(&self, mut request: HttpRequest) -> Result<HttpResponse, FetchError> {
        let mut hops = 0;
        loop {
            let again = request.body.again();
            let body = std::mem::replace(&mut request.body, again);
            let response =
                self.send_once(&request.method, &request.url, &request.headers, body).await?;
            let response = HttpResponse { redirected: hops > 0, ..response };
            if !redirect::is_redirect(&response) {
                return Ok(response);
            }
            match request.redirect {
                Redirect::Manual => return Ok(response),
                Redirect::Error => return Err(FetchError::Redirected(request.url.to_string())),
                Redirect::Follow if hops == MAX_REDIRECTS => {
                    return Err(FetchError::TooManyRedirects);
                }
                Redirect::Follow => {}
            }
            hops += 1;
            if !redirect::follow(&mut request, &response)? {
                return Ok(response);
            }
        }
    }

    async fn send_once(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: RequestBody,
    ) -> Result<HttpResponse, FetchError> {
        let origin = origin(url)?;
        let make = |body| request(method, url, headers, body);
        let (response, lease) = self.pool.send(&origin, make, body).await?;
        let (parts, body) = response.into_parts();
        let body = ResponseBody::new(body, lease);
        if let Some(code) = parts.headers.get(BROKER) {
            let code = String::from_utf8_lossy(code.as_bytes()).into_owned();
            return Err(refused(code, parts.status, &parts.headers, body).await);
        }
        let reason = parts.extensions.get::<hyper::ext::ReasonPhrase>();
        let reason = match reason {
            Some(reason) => String::from_utf8_lossy(reason.as_bytes()).into_owned(),
            None => parts.status.canonical_reason().unwrap_or_default().to_owned(),
        };
        let (status, headers) = (parts.status, parts.headers);
        Ok(HttpResponse { status, reason, headers, url: url.clone(), redirected: false, body })
    }
}

/// The origin of a URL: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    text: String,
    port: u16,
}

fn origin(url: &Url) -> Result<Origin, FetchError> {
    if !["http", "https"].contains(&url.scheme()) {
        return Err(FetchError::Scheme(url.to_string()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::Credentials(url.to_string()));
    }
    let port = url.port_or_known_default().ok_or_else(|| FetchError::Scheme(url.to_string()))?;
    Ok(Origin { text: url.origin().ascii_serialization(), port })
}

/// The request headers that only this client sets, not the program.
const CLIENT_HEADERS: [HeaderName; 9] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::ACCEPT_ENCODING,
];

fn request(
    method: &Method,
    url: &Url,
    headers: &HeaderMap,
    body: RequestBody,
) -> Result<Request<RequestBody>, FetchError> {
    let bad = || FetchError::Scheme(url.to_string());
    let mut absolute = url.clone();
    absolute.set_fragment(None);
    let uri: Uri = absolute.as_str().parse().map_err(|_| bad())?;
    let host = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    let mut own = headers.clone();
    for name in CLIENT_HEADERS {
        own.remove(name);
    }
    own.insert(header::HOST, host.ok_or_else(bad)?);
    // The broker searches responses for secrets, and decompresses them anyway.
    own.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    own.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    own.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    let expects_body = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    if let Some(length) = body.length().filter(|length| *length > 0 || expects_body) {
        own.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let mut request = Request::new(body);
    (*request.method_mut(), *request.uri_mut()) = (method.clone(), uri);
    *request.headers_mut() = own;
    Ok(request)
}

/// The value of the `user-agent` header.
pub const USER_AGENT: &str = concat!("Belljar/", env!("CARGO_PKG_VERSION"));

/// Returns the error for a request that the broker refused or could not forward.
async fn refused(
    code: String,
    status: StatusCode,
    headers: &HeaderMap,
    mut body: ResponseBody,
) -> FetchError {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = body.next().await {
        text.extend_from_slice(&piece);
        if text.len() > REFUSAL {
            break;
        }
    }
    let what = match serde_json::from_slice::<serde_json::Value>(&text) {
        Ok(json) => json.pointer("/error/message").and_then(|it| it.as_str().map(str::to_owned)),
        Err(_) => None,
    };
    let what = what.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        text.strip_prefix("belljar: ").unwrap_or(text).to_owned()
    });
    let retry_after =
        headers.get(header::RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    FetchError::Refused { what, code, status: status.as_u16(), retry_after }
}
