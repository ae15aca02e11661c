//! The values that `fetch.js` and the native part of `fetch` exchange.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use rquickjs::{Ctx, FromJs, IntoJs, Object, Result, Value};
use url::Url;

use super::binary::Binary;
use crate::runtime::http::{FetchError, HttpRequest, HttpResponse, Redirect, RequestBody};

/// An HTTP request from `fetch.js`.
pub(super) struct FetchRequest {
    method: String,
    url: String,
    /// The headers as alternating names and values.
    headers: Vec<String>,
    body: Content,
    redirect: String,
}

enum Content {
    None,
    Whole(Bytes),
    /// The chunks of the request body follow with `bodyWrite`.
    Stream,
}

impl<'js> FromJs<'js> for FetchRequest {
    fn from_js(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        let request = Object::from_js(ctx, value)?;
        let body: Value<'js> = request.get("body")?;
        let body = if body.is_null() || body.is_undefined() {
            Content::None
        } else if body.is_bool() {
            Content::Stream
        } else if body.is_string() {
            Content::Whole(String::from_js(ctx, body)?.into())
        } else {
            Content::Whole(Binary::from_js(ctx, body)?.0.into())
        };
        Ok(Self {
            method: request.get("method")?,
            url: request.get("url")?,
            headers: request.get("headers")?,
            body,
            redirect: request.get("redirect")?,
        })
    }
}

impl FetchRequest {
    /// Converts the request of `fetch.js` to a request of the HTTP client.
    pub(super) fn into_http(
        self,
        stream: Option<RequestBody>,
    ) -> std::result::Result<HttpRequest, String> {
        let method = Method::from_bytes(self.method.as_bytes());
        let method = method.map_err(|_| format!("{:?} is not a valid HTTP method", self.method))?;
        let url =
            Url::parse(&self.url).map_err(|_| format!("{:?} is not a valid URL", self.url))?;
        let mut headers = HeaderMap::new();
        for [name, value] in self.headers.as_chunks::<2>().0 {
            let bytes: Option<Vec<u8>> = value.chars().map(|it| u8::try_from(it).ok()).collect();
            let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
            let (Ok(known), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) else {
                return Err(format!("the header {name:?} has an invalid name or value"));
            };
            headers.append(known, value);
        }
        let body = match self.body {
            Content::None => RequestBody::None,
            Content::Whole(bytes) => RequestBody::whole(bytes),
            Content::Stream => stream.unwrap_or(RequestBody::None),
        };
        let redirect = match self.redirect.as_str() {
            "manual" => Redirect::Manual,
            "error" => Redirect::Error,
            _ => Redirect::Follow,
        };
        Ok(HttpRequest { method, url, headers, body, redirect })
    }
}

/// The result of an HTTP request: a response or a failure.
pub(super) enum FetchResult {
    Response(Box<ResponseHead>),
    Failed(Failure),
}

/// The status and headers of an HTTP response.
pub(super) struct ResponseHead {
    status: u16,
    reason: String,
    headers: Vec<String>,
    url: String,
    redirected: bool,
}

impl ResponseHead {
    pub(super) fn of(response: &HttpResponse) -> Self {
        let mut headers = Vec::with_capacity(2 * response.headers.len());
        for (name, value) in &response.headers {
            headers.push(name.as_str().to_owned());
            headers.push(value.as_bytes().iter().copied().map(char::from).collect());
        }
        Self {
            status: response.status.as_u16(),
            reason: response.reason.clone(),
            headers,
            url: response.url.to_string(),
            redirected: response.redirected,
        }
    }
}

/// The reason why an HTTP request failed, for the error that `fetch` throws.
pub(super) struct Failure {
    message: String,
    /// The reason code of the broker's refusal.
    code: Option<String>,
    status: Option<u16>,
    retry_after: Option<u32>,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, code: None, status: None, retry_after: None }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        let failure = Self::from(error.to_string());
        match error {
            FetchError::Refused { what: _, code, status, retry_after } => {
                Self { code: Some(code), status: Some(status), retry_after, ..failure }
            }
            FetchError::Scheme(_)
            | FetchError::Credentials(_)
            | FetchError::Unreachable { .. }
            | FetchError::Broken { .. }
            | FetchError::Redirected(_)
            | FetchError::TooManyRedirects
            | FetchError::BadRedirect(_)
            | FetchError::BodyIsGone => failure,
        }
    }
}

impl<'js> IntoJs<'js> for FetchResult {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let object = Object::new(ctx.clone())?;
        match self {
            Self::Response(head) => {
                object.set("status", head.status)?;
                object.set("statusText", head.reason)?;
                object.set("headers", head.headers)?;
                object.set("url", head.url)?;
                object.set("redirected", head.redirected)?;
            }
            Self::Failed(failure) => {
                object.set("error", failure.message)?;
                object.set("code", failure.code)?;
                object.set("refusal", failure.status)?;
                object.set("retryAfter", failure.retry_after)?;
            }
        }
        object.into_js(ctx)
    }
}

/// A chunk of a response body, or its end. In JavaScript, the end is `null` and an error is an
/// object.
pub(super) enum BodyChunk {
    Bytes(Binary),
    Text(String),
    End,
    Broken(String),
}

impl BodyChunk {
    /// Decodes UTF-8 as `text()` does: without a byte order mark, with replacement characters.
    pub(super) fn text(mut bytes: Vec<u8>) -> Self {
        if bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self::Text(String::from_utf8(bytes).unwrap_or_else(|error| lossy(error.as_bytes())))
    }
}

impl<'js> IntoJs<'js> for BodyChunk {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        match self {
            Self::Bytes(bytes) => bytes.into_js(ctx),
            Self::Text(text) => text.into_js(ctx),
            Self::End => Ok(Value::new_null(ctx.clone())),
            Self::Broken(why) => {
                let object = Object::new(ctx.clone())?;
                object.set("error", why)?;
                object.into_js(ctx)
            }
        }
    }
}
