//! Java's trust store format, the only form in which a Java program accepts a root from outside.
//!
//! Version 2, trusted certificates only. The hash at the end uses a well-known password; the file
//! contains no secret.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const PASSWORD: &str = "changeit";
const SALT: &[u8] = b"Mighty Aphrodite";

/// Returns a Java trust store with these certificates (DER).
pub fn trust_store<'a>(
    certificates: impl IntoIterator<Item = &'a [u8]>,
    now: SystemTime,
) -> Vec<u8> {
    let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    let (mut entries, mut count) = (Vec::new(), 0u32);
    for certificate in certificates {
        let Ok(length) = u32::try_from(certificate.len()) else { continue };
        count += 1;
        number(&mut entries, TRUSTED_CERTIFICATE);
        text(&mut entries, &format!("belljar-{count}"));
        entries.extend_from_slice(&millis.to_be_bytes());
        text(&mut entries, "X.509");
        number(&mut entries, length);
        entries.extend_from_slice(certificate);
    }
    let mut store = Vec::with_capacity(entries.len() + 32);
    for word in [MAGIC, VERSION, count] {
        number(&mut store, word);
    }
    store.append(&mut entries);
    let hash = keyed_hash(&store);
    store.extend_from_slice(hash.as_ref());
    store
}

fn number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends a short ASCII text with its length, as a Java key store requires.
fn text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend(text.bytes().take(length.into()));
}

fn keyed_hash(store: &[u8]) -> aws_lc_rs::digest::Digest {
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        hash.update(&unit.to_be_bytes());
    }
    hash.update(SALT);
    hash.update(store);
    hash.finish()
}
