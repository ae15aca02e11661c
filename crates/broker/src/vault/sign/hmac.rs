//! HMAC signatures of requests, sent in a header (for webhooks and the like).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_model::net::{HmacAlgorithm, HmacEncoding, MessagePart, SignedMessage};

use crate::vault::value::Value;

/// The parts of a request that an HMAC can cover.
pub(in crate::vault) struct Request<'a> {
    pub(in crate::vault) method: &'a str,
    pub(in crate::vault) host: &'a str,
    pub(in crate::vault) path: &'a str,
    pub(in crate::vault) query: &'a str,
    pub(in crate::vault) body: &'a [u8],
    /// The time of signing, in seconds since 1970.
    pub(in crate::vault) timestamp: &'a str,
}

/// Returns the text that replaces `{timestamp}`: seconds since 1970.
pub(in crate::vault) fn timestamp(now: SystemTime) -> String {
    now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs().to_string()
}

/// Returns the encoded HMAC of a request.
pub(in crate::vault) fn code(
    key: &Value,
    algorithm: HmacAlgorithm,
    encoding: HmacEncoding,
    message: &SignedMessage,
    request: &Request<'_>,
) -> String {
    let algorithm = match algorithm {
        HmacAlgorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        HmacAlgorithm::Sha256 => hmac::HMAC_SHA256,
        HmacAlgorithm::Sha512 => hmac::HMAC_SHA512,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key.expose()));
    for part in message.parts() {
        context.update(match part {
            MessagePart::Literal(text) => text.as_bytes(),
            MessagePart::Method => request.method.as_bytes(),
            MessagePart::Host => request.host.as_bytes(),
            MessagePart::Path => request.path.as_bytes(),
            MessagePart::Query => request.query.as_bytes(),
            MessagePart::Timestamp => request.timestamp.as_bytes(),
            MessagePart::Body => request.body,
        });
    }
    let tag = context.sign();
    match encoding {
        HmacEncoding::Hex => hex::encode(tag.as_ref()),
        HmacEncoding::Base64 => STANDARD.encode(tag.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[track_caller]
    fn check(key: &[u8], algorithm: HmacAlgorithm, message: &str, body: &[u8], expect: &str) {
        let key = Value::new(Zeroizing::new(key.to_vec())).unwrap();
        let request = Request {
            method: "POST",
            host: "hooks.example.com",
            path: "/a",
            query: "b=c",
            body,
            timestamp: "1440938160",
        };
        let message = message.parse().unwrap();
        assert_eq!(code(&key, algorithm, HmacEncoding::Hex, &message, &request), expect);
    }

    /// Checks GitHub's example of a webhook, and test vectors of RFC 4231 and RFC 2202.
    #[test]
    fn b22_hmac_matches_published_test_vectors() {
        check(
            b"It's a Secret to Everybody",
            HmacAlgorithm::Sha256,
            "{body}",
            b"Hello, World!",
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        );
        check(
            &[0xaa; 131],
            HmacAlgorithm::Sha256,
            "{body}",
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );
        check(
            &[0xaa; 131],
            HmacAlgorithm::Sha512,
            "{body}",
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        );
        check(
            &[0xaa; 80],
            HmacAlgorithm::Sha1,
            "{body}",
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        );
    }

    #[test]
    fn b22_hmac_covers_the_parts_of_the_template() {
        let key = Value::new(Zeroizing::new(b"canary-1234".to_vec())).unwrap();
        let request = |body| Request {
            method: "POST",
            host: "h.example.com",
            path: "/a",
            query: "b=c",
            body,
            timestamp: "1440938160",
        };
        let code = |message: &str, body| {
            let message = message.parse().unwrap();
            super::code(&key, HmacAlgorithm::Sha256, HmacEncoding::Base64, &message, &request(body))
        };
        let literal = code("{body}", b"v0:1440938160:POST /a?b=c h.example.com".as_slice());
        let by_parts = code("v0:{timestamp}:{method} {path}?{query} {host}", b"".as_slice());
        assert_eq!(literal, by_parts);
        assert_ne!(by_parts, code("v0:{timestamp}:{method} {path}?{query}", b"".as_slice()));
    }
}
