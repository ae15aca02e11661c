//! HTTP out of a box: plain HTTP/1.1 to the broker, which does TLS, decides, and adds secrets.
//!
//! There is no name service and no TLS here: a request goes to the door of the box at the port of its
//! URL, in absolute form, and the broker takes it from there. What the broker refuses is an error with
//! the broker's own words, so that whoever wrote the program learns which rule is missing.

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

pub use body::{Broken, Incoming, Outgoing, Sender, stream};
pub use load::{Kind, Loaded, load};
pub use redirect::Redirect;

use pool::Pool;

/// Redirects of one request.
const REDIRECTS: usize = 20; // as browsers
/// What is read of a refusal.
const REFUSAL: usize = 64 * 1024;
/// How long the door may take to open.
const DOOR: Duration = Duration::from_secs(20);

/// The header by which the broker says that an answer is its own.
const BROKER: HeaderName = HeaderName::from_static("x-belljar");

/// One request.
#[derive(Debug)]
pub struct Ask {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Outgoing,
    pub redirect: Redirect,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// As the server said it.
    pub reason: String,
    pub headers: HeaderMap,
    /// Where it came from in the end.
    pub url: Url,
    pub redirected: bool,
    pub body: Incoming,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{0} is no URL that can be fetched: only http: and https: are")]
    Scheme(String),
    #[error("a URL with a user's name or password in it: {0}")]
    Credentials(String),
    #[error("no rule of this box allows {origin}, or the box has no network")]
    Unreachable { origin: String, source: std::io::Error },
    /// The broker's own words.
    #[error("{what}")]
    Refused { what: String, code: String, status: u16, retry_after: Option<u32> },
    #[error("the connection to {origin} broke: {}", said(source))]
    Broken { origin: String, source: hyper::Error },
    #[error("{0} redirects, which this request forbids")]
    Redirected(String),
    #[error("more than {REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("a redirect to {0}, which is no URL that can be fetched")]
    BadRedirect(String),
    #[error("a redirect asks for the body again, which was a stream")]
    BodyIsGone,
}

/// The innermost cause says most.
fn said(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Makes requests, and keeps connections for the next one.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Rc<Pool>,
}

impl Client {
    /// `door`: where the broker listens, at every port.
    pub fn new(door: IpAddr) -> Self {
        Self { pool: Rc::new(Pool::new(door)) }
    }

    /// Sends a request and follows where it leads. To drop the future, or the body of the answer, ends
    /// the connection.
    pub async fn fetch(&self, mut ask: Ask) -> Result<Answer, AskError> {
        let mut hops = 0;
        loop {
            let again = ask.body.again();
            let body = std::mem::replace(&mut ask.body, again);
            let answer = self.once(&ask.method, &ask.url, &ask.headers, body).await?;
            let answer = Answer { redirected: hops > 0, ..answer };
            if !redirect::asks_for_another(&answer) {
                return Ok(answer);
            }
            match ask.redirect {
                Redirect::Manual => return Ok(answer),
                Redirect::Error => return Err(AskError::Redirected(ask.url.to_string())),
                Redirect::Follow if hops == REDIRECTS => return Err(AskError::TooManyRedirects),
                Redirect::Follow => {}
            }
            hops += 1;
            if !redirect::follow(&mut ask, &answer)? {
                return Ok(answer);
            }
        }
    }

    async fn once(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: Outgoing,
    ) -> Result<Answer, AskError> {
        let origin = origin(url)?;
        let make = |body| request(method, url, headers, body);
        let (response, lease) = self.pool.send(&origin, make, body).await?;
        let (parts, body) = response.into_parts();
        let body = Incoming::new(body, lease);
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
        Ok(Answer { status, reason, headers, url: url.clone(), redirected: false, body })
    }
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    text: String,
    port: u16,
}

fn origin(url: &Url) -> Result<Origin, AskError> {
    if !["http", "https"].contains(&url.scheme()) {
        return Err(AskError::Scheme(url.to_string()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AskError::Credentials(url.to_string()));
    }
    let port = url.port_or_known_default().ok_or_else(|| AskError::Scheme(url.to_string()))?;
    Ok(Origin { text: url.origin().ascii_serialization(), port })
}

/// Headers that belong to a connection, or that only this client can know.
const OURS: [HeaderName; 9] = [
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
    body: Outgoing,
) -> Result<Request<Outgoing>, AskError> {
    let bad = || AskError::Scheme(url.to_string());
    let mut absolute = url.clone();
    absolute.set_fragment(None);
    let uri: Uri = absolute.as_str().parse().map_err(|_| bad())?;
    let host = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    let mut own = headers.clone();
    for name in OURS {
        own.remove(name);
    }
    own.insert(header::HOST, host.ok_or_else(bad)?);
    // The broker searches answers for secrets, and hands them out in clear either way.
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

/// Who asks.
pub const USER_AGENT: &str = concat!("Belljar/", env!("CARGO_PKG_VERSION"));

/// What the broker says about a request that it did not carry, or could not.
async fn refused(
    code: String,
    status: StatusCode,
    headers: &HeaderMap,
    mut body: Incoming,
) -> AskError {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = body.next().await {
        text.extend_from_slice(&piece);
        if text.len() > REFUSAL {
            break;
        }
    }
    let what = match serde_json::from_slice::<serde_json::Value>(&text) {
        Ok(told) => told.pointer("/error/message").and_then(|it| it.as_str().map(str::to_owned)),
        Err(_) => None,
    };
    let what = what.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        text.strip_prefix("belljar: ").unwrap_or(text).to_owned()
    });
    let retry_after =
        headers.get(header::RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    AskError::Refused { what, code, status: status.as_u16(), retry_after }
}
