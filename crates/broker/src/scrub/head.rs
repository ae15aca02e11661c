//! Headers and trailers of a response whose body is scrubbed.

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName,
    HeaderValue,
};

use super::Scrubber;

/// The names of headers with checksums of a body, which are wrong after scrubbing.
const BODY_CHECKSUMS: [&str; 8] = [
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
    /// Returns the headers or trailers with every secret value replaced. Drops a field whose name
    /// contains a value.
    pub fn headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut clean = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            if self.is_in_name(name.as_str().as_bytes()) {
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

/// Removes headers that are wrong for a decoded and scrubbed body: length, codings and checksums
/// (B08). Makes a strong validator weak.
pub fn reframe(headers: &mut HeaderMap) {
    if headers.contains_key(CONTENT_ENCODING) {
        // Ranges are positions in the encoded content, which the client does not see.
        headers.remove(ACCEPT_RANGES);
    }
    for name in [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE] {
        headers.remove(name);
    }
    remove_checksums(headers);
    if let Some(tag) = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) {
        let weak = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat());
        match weak {
            Ok(weak) => drop(headers.insert(ETAG, weak)),
            Err(_) => drop(headers.remove(ETAG)),
        }
    }
}

/// Removes the checksums of a body that the client does not get unchanged.
pub(super) fn remove_checksums(headers: &mut HeaderMap) {
    let checksums: Vec<HeaderName> =
        headers.keys().filter(|name| is_body_checksum(name.as_str())).cloned().collect();
    for name in checksums {
        headers.remove(name);
    }
}

fn is_body_checksum(name: &str) -> bool {
    BODY_CHECKSUMS.contains(&name) || name.starts_with(CHECKSUM_PREFIX)
}
