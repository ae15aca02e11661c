//! The headers that every response of the server has.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};

use super::head::Entrance;

/// The header with the id of the request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Scripts, styles and forms of this server only; no frame shows its pages.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; \
                              frame-ancestors 'none'; require-trusted-types-for 'script'; \
                              trusted-types belljar";

/// The policy of responses with a file of a box: a browser runs nothing of it, and gives it no origin.
pub(super) const SANDBOX: &str = "sandbox";

const FIXED: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// The value of `Cache-Control` for files whose address has a version.
pub(super) const CACHED: &str = "public, max-age=31536000, immutable";

/// A part of the policy of pages whose library adds styles.
const NONCE: &str = "style-src 'self' 'nonce-";

/// Returns the policy of a page on which styles with this nonce are permitted. `None` if the nonce is no text of
/// letters and digits.
pub(super) fn policy_with_nonce(nonce: &str) -> Option<HeaderValue> {
    let is_plain = !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let styles = format!("{NONCE}{nonce}'");
    HeaderValue::try_from(CONTENT_POLICY.replace("style-src 'self'", &styles))
        .ok()
        .filter(|_| is_plain)
}

/// Adds the security headers to a response. A response can have another policy or be cached only as this module
/// declares.
pub(super) fn secure(headers: &mut HeaderMap, entrance: Entrance) {
    let has_nonce =
        |policy: &HeaderValue| policy.to_str().is_ok_and(|policy| policy.contains(NONCE));
    let own_policy = headers.remove(CONTENT_SECURITY_POLICY);
    let own_policy = own_policy.filter(|policy| policy == SANDBOX || has_nonce(policy));
    let cached = headers.remove(CACHE_CONTROL).filter(|value| value == CACHED);
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(policy) = own_policy {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    if let Some(value) = cached {
        headers.insert(CACHE_CONTROL, value);
    }
    if matches!(entrance, Entrance::Network { tls: true, .. }) {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(STRICT_TRANSPORT_SECURITY, year);
    }
}
