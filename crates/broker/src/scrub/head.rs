//! Headers and trailers of an answer whose body is scrubbed.

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName,
    HeaderValue,
};

use super::Scrubber;

/// What is said about bytes that are not those that arrive any more.
const ABOUT_THE_BYTES: [&str; 8] = [
    "content-digest",
    "content-md5",
    "digest",
    "repr-digest",
    "signature",
    "signature-input",
    "x-goog-hash",
    "x-ms-blob-content-md5",
];
const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

impl Scrubber {
    /// The headers or trailers without the values. A field whose name tells one is left out.
    pub fn headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut clean = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            if self.tells_folded(name.as_str().as_bytes()) {
                continue;
            }
            let mut scrubbed = match self.text(value.as_bytes()) {
                std::borrow::Cow::Borrowed(_) => value.clone(),
                std::borrow::Cow::Owned(bytes) => match HeaderValue::from_bytes(&bytes) {
                    Ok(value) => value,
                    Err(_) => continue,
                },
            };
            scrubbed.set_sensitive(value.is_sensitive());
            clean.append(name.clone(), scrubbed);
        }
        clean
    }
}

/// Takes out of an answer's head what is no longer true of a body that is decoded and scrubbed: its
/// length, codings and checksums (B08). A strong validator becomes a weak one.
pub fn reframe(headers: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, ACCEPT_RANGES, CONTENT_RANGE] {
        headers.remove(name);
    }
    let checksums: Vec<HeaderName> =
        headers.keys().filter(|name| about_the_bytes(name.as_str())).cloned().collect();
    for name in checksums {
        headers.remove(name);
    }
    if let Some(tag) = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) {
        let weak = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat());
        match weak {
            Ok(weak) => drop(headers.insert(ETAG, weak)),
            Err(_) => drop(headers.remove(ETAG)),
        }
    }
}

fn about_the_bytes(name: &str) -> bool {
    ABOUT_THE_BYTES.contains(&name) || name.starts_with(CHECKSUM_PREFIX)
}
