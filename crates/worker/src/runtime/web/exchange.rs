//! What passes between `fetch.js` and the native half of it.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use rquickjs::{Ctx, FromJs, IntoJs, Object, Result, Value};
use url::Url;

use super::binary::Binary;
use crate::runtime::http::{Answer, Ask, AskError, Outgoing, Redirect};

/// A request as `fetch.js` words it.
pub(super) struct Wanted {
    method: String,
    url: String,
    /// Names and values in turn.
    headers: Vec<String>,
    body: Content,
    redirect: String,
}

enum Content {
    None,
    Whole(Bytes),
    /// Comes by `bodyWrite`.
    Stream,
}

impl<'js> FromJs<'js> for Wanted {
    fn from_js(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        let wanted = Object::from_js(ctx, value)?;
        let body: Value<'js> = wanted.get("body")?;
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
            method: wanted.get("method")?,
            url: wanted.get("url")?,
            headers: wanted.get("headers")?,
            body,
            redirect: wanted.get("redirect")?,
        })
    }
}

impl Wanted {
    pub(super) fn ask(self, stream: Option<Outgoing>) -> std::result::Result<Ask, String> {
        let method = Method::from_bytes(self.method.as_bytes());
        let method = method.map_err(|_| format!("{:?} is no method", self.method))?;
        let url = Url::parse(&self.url).map_err(|_| format!("{:?} is no URL", self.url))?;
        let mut headers = HeaderMap::new();
        for [name, value] in self.headers.as_chunks::<2>().0 {
            let bytes: Option<Vec<u8>> = value.chars().map(|it| u8::try_from(it).ok()).collect();
            let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
            let (Ok(known), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) else {
                return Err(format!("{name:?} is no header that can be sent"));
            };
            headers.append(known, value);
        }
        let body = match self.body {
            Content::None => Outgoing::None,
            Content::Whole(bytes) => Outgoing::whole(bytes),
            Content::Stream => stream.unwrap_or(Outgoing::None),
        };
        let redirect = match self.redirect.as_str() {
            "manual" => Redirect::Manual,
            "error" => Redirect::Error,
            _ => Redirect::Follow,
        };
        Ok(Ask { method, url, headers, body, redirect })
    }
}

/// What comes of it: an answer, or why there is none.
pub(super) enum Outcome {
    Answer(Box<Head>),
    Failed(Failure),
}

pub(super) struct Head {
    status: u16,
    reason: String,
    headers: Vec<String>,
    url: String,
    redirected: bool,
}

impl Head {
    pub(super) fn of(answer: &Answer) -> Self {
        let mut headers = Vec::with_capacity(2 * answer.headers.len());
        for (name, value) in &answer.headers {
            headers.push(name.as_str().to_owned());
            headers.push(value.as_bytes().iter().copied().map(char::from).collect());
        }
        Self {
            status: answer.status.as_u16(),
            reason: answer.reason.clone(),
            headers,
            url: answer.url.to_string(),
            redirected: answer.redirected,
        }
    }
}

pub(super) struct Failure {
    message: String,
    /// The broker's word for it.
    code: Option<String>,
    status: Option<u16>,
    retry_after: Option<u32>,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, code: None, status: None, retry_after: None }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let failure = Self::from(error.to_string());
        match error {
            AskError::Refused { what: _, code, status, retry_after } => {
                Self { code: Some(code), status: Some(status), retry_after, ..failure }
            }
            AskError::Scheme(_)
            | AskError::Credentials(_)
            | AskError::Unreachable { .. }
            | AskError::Broken { .. }
            | AskError::Redirected(_)
            | AskError::TooManyRedirects
            | AskError::BadRedirect(_)
            | AskError::BodyIsGone => failure,
        }
    }
}

impl<'js> IntoJs<'js> for Outcome {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let told = Object::new(ctx.clone())?;
        match self {
            Self::Answer(head) => {
                told.set("status", head.status)?;
                told.set("statusText", head.reason)?;
                told.set("headers", head.headers)?;
                told.set("url", head.url)?;
                told.set("redirected", head.redirected)?;
            }
            Self::Failed(failure) => {
                told.set("error", failure.message)?;
                told.set("code", failure.code)?;
                told.set("refusal", failure.status)?;
                told.set("retryAfter", failure.retry_after)?;
            }
        }
        told.into_js(ctx)
    }
}

/// A piece of a body: bytes or text, null at its end, an object where it broke.
pub(super) enum Piece {
    Bytes(Binary),
    Text(String),
    End,
    Broken(String),
}

impl Piece {
    /// What `text()` makes of bytes.
    pub(super) fn text(mut bytes: Vec<u8>) -> Self {
        if bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self::Text(String::from_utf8(bytes).unwrap_or_else(|error| lossy(error.as_bytes())))
    }
}

impl<'js> IntoJs<'js> for Piece {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        match self {
            Self::Bytes(bytes) => bytes.into_js(ctx),
            Self::Text(text) => text.into_js(ctx),
            Self::End => Ok(Value::new_null(ctx.clone())),
            Self::Broken(why) => {
                let told = Object::new(ctx.clone())?;
                told.set("error", why)?;
                told.into_js(ctx)
            }
        }
    }
}
