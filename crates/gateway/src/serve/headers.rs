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

/// Adds the security headers to a response.
pub(super) fn secure(headers: &mut HeaderMap, entrance: Entrance) {
    let own_policy = headers.remove(CONTENT_SECURITY_POLICY).filter(|it| it == SANDBOX);
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(policy) = own_policy {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    if matches!(entrance, Entrance::Network { tls: true, .. }) {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(STRICT_TRANSPORT_SECURITY, year);
    }
}
