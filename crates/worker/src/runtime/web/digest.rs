//! Hashes and HMACs by their names in Web Crypto and Node.

use md5::Md5;
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha224, Sha256, Sha384, Sha512};

/// Returns the hash of some bytes, or `None` for an unknown algorithm.
pub(super) fn hash(algorithm: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let name: String = algorithm.chars().filter(|it| *it != '-').collect();
    Some(match name.to_ascii_lowercase().as_str() {
        "md5" => Md5::digest(bytes).to_vec(),
        "sha1" => Sha1::digest(bytes).to_vec(),
        "sha224" => Sha224::digest(bytes).to_vec(),
        "sha256" => Sha256::digest(bytes).to_vec(),
        "sha384" => Sha384::digest(bytes).to_vec(),
        "sha512" => Sha512::digest(bytes).to_vec(),
        _ => return None,
    })
}

/// Returns the HMAC of some bytes (RFC 2104), or `None` for an unknown algorithm.
pub(super) fn hmac(algorithm: &str, key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let is_wide = algorithm.ends_with("384") || algorithm.ends_with("512");
    let block = if is_wide { 128 } else { 64 };
    let mut padded = if key.len() > block { hash(algorithm, key)? } else { key.to_vec() };
    padded.resize(block, 0);
    let masked = |mask: u8| padded.iter().map(move |byte| byte ^ mask);
    let inner: Vec<u8> = masked(0x36).chain(bytes.iter().copied()).collect();
    let outer: Vec<u8> = masked(0x5c).chain(hash(algorithm, &inner)?).collect();
    hash(algorithm, &outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_the_test_vectors_of_their_standards() {
        for (algorithm, expected) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("SHA-1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            assert_eq!(hex::encode(hash(algorithm, b"abc").unwrap()), expected, "{algorithm}");
        }
        assert_eq!(hash("sha3", b""), None);
    }

    #[test]
    fn hmacs_match_the_test_vectors_of_rfc_2202_and_4231() {
        let what = b"what do ya want for nothing?";
        for (algorithm, expected) in [
            ("md5", "750c783e6ab0b503eaa86e310a5db738"),
            ("sha1", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            ("SHA-256", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        ] {
            assert_eq!(
                hex::encode(hmac(algorithm, b"Jefe", what).unwrap()),
                expected,
                "{algorithm}"
            );
        }
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let long = hmac("SHA-256", &[0xaa; 131], text).unwrap();
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(hex::encode(long), expected);
    }
}
