//! AWS Signature Version 4: the broker signs a request again with the real key.
//!
//! The signature of the box is not verified. Only its scope and its list of headers are read, as a
//! request; time and scope are set by the broker. Requests with signed chunks, and presigned URLs,
//! are refused, because they cannot be signed again here.

use aws_lc_rs::{digest, hmac};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::Stamp;
use crate::vault::percent::{RESERVED, RESERVED_IN_PATH, decode, encode};
use crate::vault::value::Value;

pub(in crate::vault) const SCHEME: &str = "AWS4-HMAC-SHA256";
const CONTENT_HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// The values of `x-amz-content-sha256` for bodies that the AWS signature does not cover.
const UNSIGNED: [&str; 2] = ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"];
/// The headers that the broker or a later hop can set; AWS does not require their signature.
const UNSTABLE: [&str; 9] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "expect",
    "te",
    "transfer-encoding",
    "user-agent",
    "x-amzn-trace-id",
];

/// An AWS key pair, parsed from `ID:SECRET` or `ID:SECRET:SESSION-TOKEN`.
pub(in crate::vault) struct Keys<'a> {
    pub(in crate::vault) id: &'a str,
    pub(in crate::vault) secret: &'a [u8],
    pub(in crate::vault) session: Option<&'a str>,
}

/// The access key id, region and service that the box's AWS signature names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::vault) struct Claim {
    /// The access key id in the box's signature, which is a placeholder.
    pub(in crate::vault) id: String,
    region: String,
    service: String,
    headers: Vec<String>,
}

/// The region and service of a new AWS signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::vault) struct Scope {
    region: String,
    service: String,
    headers: Vec<String>,
}

/// The reason why a request cannot be signed for AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigV4Error {
    #[error(
        "its chunks are signed separately; configure the client to sign the whole body, or to leave it unsigned"
    )]
    Chunked,
    #[error("the header `x-amz-content-sha256` is not a valid hash")]
    Hash,
    #[error("the request body, which must be hashed, is missing")]
    NoBody,
    #[error("the request has no host")]
    NoHost,
    #[error("a signed header contains bytes that are not ASCII")]
    Header,
}

/// The parts of a request that an AWS signature covers.
pub(in crate::vault) struct Request<'a> {
    pub(in crate::vault) method: &'a str,
    /// The path of the request in its encoded form.
    pub(in crate::vault) path: &'a str,
    pub(in crate::vault) query: &'a str,
    /// The value of the request's `Host` header.
    pub(in crate::vault) host: &'a str,
    pub(in crate::vault) body: Option<&'a [u8]>,
}

impl<'a> Keys<'a> {
    /// Parses an AWS key pair; `None` if the value is not `ID:SECRET`.
    pub(in crate::vault) fn parse(value: &'a Value) -> Option<Self> {
        let mut parts = std::str::from_utf8(value.expose()).ok()?.splitn(3, ':');
        let (id, secret, session) = (parts.next()?, parts.next()?, parts.next());
        let is_id = (8..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_secret = secret.len() >= 16 && secret.bytes().all(|byte| byte.is_ascii_graphic());
        let is_session = session.is_none_or(|text| {
            text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_graphic())
        });
        (is_id && is_secret && is_session).then_some(Self {
            id,
            secret: secret.as_bytes(),
            session,
        })
    }
}

impl Claim {
    /// Parses an AWS signature header: `AWS4-HMAC-SHA256
    /// Credential=ID/DATE/REGION/SERVICE/aws4_request, SignedHeaders=a;b, …`.
    pub(in crate::vault) fn parse(authorization: &str) -> Option<Self> {
        let rest = authorization.strip_prefix(SCHEME)?.strip_prefix(' ')?;
        let field = |name: &str| {
            let mut found = rest.split(',').filter_map(|part| part.trim().strip_prefix(name));
            let only = found.next()?.strip_prefix('=');
            if found.next().is_some() { None } else { only }
        };
        let mut scope = field("Credential")?.rsplitn(5, '/');
        let (end, service, region) = (scope.next()?, scope.next()?, scope.next()?);
        let (_date, id) = (scope.next()?, scope.next()?);
        let headers = field("SignedHeaders")?.split(';').map(str::to_owned).collect();
        let known = end == "aws4_request" && is_word(service) && is_word(region);
        known.then(|| Self {
            id: id.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
            headers,
        })
    }

    /// Returns the region and service of the new signature; the operator's settings take
    /// precedence.
    pub(in crate::vault) fn scope(self, region: Option<&str>, service: Option<&str>) -> Scope {
        Scope {
            region: region.map_or(self.region, str::to_owned),
            service: service.map_or(self.service, str::to_owned),
            headers: self.headers,
        }
    }
}

fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

/// Returns whether the request body is needed for the AWS signature.
pub(in crate::vault) fn needs_body(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_HASH)
}

/// Signs a request for AWS: sets the time, the session token and the signature.
pub(in crate::vault) fn sign(
    keys: &Keys<'_>,
    scope: &Scope,
    stamp: &Stamp,
    request: &Request<'_>,
    headers: &mut HeaderMap,
) -> Result<(), SigV4Error> {
    let payload = payload(headers, request.body)?;
    headers.insert(DATE, ascii(&stamp.time)?);
    headers.remove(TOKEN);
    if let Some(session) = keys.session {
        headers.insert(TOKEN, sensitive(session)?);
    }
    if scope.service == "s3" && !headers.contains_key(CONTENT_HASH) {
        headers.insert(CONTENT_HASH, ascii(&payload)?);
    }
    let (names, lines) = signed_headers(scope, request.host, headers)?;
    let path = canonical_path(request.path, &scope.service);
    let query = canonical_query(request.query);
    let canonical = [request.method, &path, &query, &lines, &names, &payload].join("\n");
    let credential_scope =
        format!("{}/{}/{}/aws4_request", stamp.date(), scope.region, scope.service);
    let text =
        format!("{SCHEME}\n{}\n{credential_scope}\n{}", stamp.time, sha256(canonical.as_bytes()));
    let signature = hex::encode(signing_key(keys, scope, stamp, text.as_bytes()).as_slice());
    let authorization = format!(
        "{SCHEME} Credential={}/{credential_scope}, SignedHeaders={names}, Signature={signature}",
        keys.id
    );
    headers.insert(AUTHORIZATION, sensitive(&authorization)?);
    Ok(())
}

/// Derives the signing key and returns the signature of the text.
fn signing_key(keys: &Keys<'_>, scope: &Scope, stamp: &Stamp, text: &[u8]) -> Zeroizing<Vec<u8>> {
    let first = Zeroizing::new([b"AWS4", keys.secret].concat());
    let steps = [
        stamp.date().as_bytes(),
        scope.region.as_bytes(),
        scope.service.as_bytes(),
        b"aws4_request",
    ];
    let code = |key: &[u8], text: &[u8]| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        Zeroizing::new(hmac::sign(&key, text).as_ref().to_vec())
    };
    let last = steps.iter().fold(first, |key, step| code(&key, step));
    code(&last, text)
}

fn payload(headers: &HeaderMap, body: Option<&[u8]>) -> Result<String, SigV4Error> {
    let Some(claimed) = headers.get(CONTENT_HASH) else {
        return body.map(sha256).ok_or(SigV4Error::NoBody);
    };
    let claimed = claimed.to_str().map_err(|_| SigV4Error::Hash)?;
    let is_hash = claimed.len() == 64
        && claimed.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match claimed {
        _ if is_hash || UNSIGNED.contains(&claimed) => Ok(claimed.to_owned()),
        chunked if chunked.starts_with("STREAMING-") => Err(SigV4Error::Chunked),
        _ => Err(SigV4Error::Hash),
    }
}

/// Returns the names and lines of the headers that the AWS signature covers.
fn signed_headers(
    scope: &Scope,
    host: &str,
    headers: &HeaderMap,
) -> Result<(String, String), SigV4Error> {
    if host.is_empty() {
        return Err(SigV4Error::NoHost);
    }
    let is_signed = |name: &str| {
        name == "content-type"
            || name.starts_with("x-amz-")
            || scope.headers.iter().any(|requested| requested == name)
    };
    let keys = headers.keys().map(HeaderName::as_str);
    let mut names: Vec<&str> =
        keys.filter(|name| is_signed(name) && !UNSTABLE.contains(name) && *name != HOST).collect();
    names.push("host");
    names.sort_unstable();
    names.dedup();
    let mut lines = String::new();
    for name in &names {
        lines.push_str(name);
        lines.push(':');
        if *name == "host" {
            lines.push_str(host);
        } else {
            let values: Result<Vec<String>, _> =
                headers.get_all(*name).iter().map(|value| value.to_str().map(trim_all)).collect();
            lines.push_str(&values.map_err(|_| SigV4Error::Header)?.join(","));
        }
        lines.push('\n');
    }
    Ok((names.join(";"), lines))
}

/// Collapses whitespace to single spaces, and trims the ends.
fn trim_all(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<&str>>().join(" ")
}

/// Returns the canonical path for an AWS signature: S3 encodes it once, all other services twice.
fn canonical_path(path: &str, service: &str) -> String {
    let mut canonical = String::with_capacity(path.len());
    if service == "s3" {
        for (at, segment) in path.split('/').enumerate() {
            if at > 0 {
                canonical.push('/');
            }
            encode(&decode(segment.as_bytes()), RESERVED, &mut canonical);
        }
    } else {
        encode(path.as_bytes(), RESERVED_IN_PATH, &mut canonical);
    }
    if canonical.is_empty() { "/".to_owned() } else { canonical }
}

fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        let mut encoded = String::new();
        encode(&decode(text.as_bytes()), RESERVED, &mut encoded);
        encoded
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (encoded(key), encoded(value))
    });
    let mut pairs: Vec<(String, String)> = pairs.collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join("&")
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn ascii(text: &str) -> Result<HeaderValue, SigV4Error> {
    HeaderValue::from_str(text).map_err(|_| SigV4Error::Header)
}

fn sensitive(text: &str) -> Result<HeaderValue, SigV4Error> {
    let mut value = ascii(text)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
