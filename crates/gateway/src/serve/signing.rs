//! Values that the server signs with the key of its installation.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// The length of a signature in bytes.
const SIGNATURE: usize = 16;

/// The key of the installation.
pub(crate) struct SigningKey(hmac::Key);

/// What a signed value is for. A value for one purpose is invalid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Csrf,
    Cursor,
    /// The values of a login with an identity provider; see [`super::oidc::pending`].
    LoginState,
    LoginNonce,
    LoginVerifier,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Csrf => "csrf",
            Self::Cursor => "cursor",
            Self::LoginState => "login-state",
            Self::LoginNonce => "login-nonce",
            Self::LoginVerifier => "login-verifier",
        }
    }
}

impl SigningKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Returns the signature of some bytes for a purpose, as text.
    pub(crate) fn sign(&self, purpose: Purpose, bytes: &[u8]) -> String {
        let tag = self.tag(purpose, bytes);
        URL_SAFE_NO_PAD.encode(tag.as_ref().get(..SIGNATURE).unwrap_or_default())
    }

    /// Returns a secret that only this server can derive from some bytes for a purpose, as 43 characters.
    pub(crate) fn derive(&self, purpose: Purpose, bytes: &[u8]) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(self.tag(purpose, bytes)))
    }

    fn tag(&self, purpose: Purpose, bytes: &[u8]) -> hmac::Tag {
        let mut signing = hmac::Context::with_key(&self.0);
        signing.update(purpose.name().as_bytes());
        signing.update(&[0]);
        signing.update(bytes);
        signing.sign()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_depends_on_all_bytes_and_on_the_key() {
        let key = SigningKey::new(&[1; 32]);
        let signed = key.sign(Purpose::Csrf, b"session");
        assert_eq!(signed.len(), 22);
        assert_eq!(key.sign(Purpose::Csrf, b"session"), signed, "control");
        assert_ne!(key.sign(Purpose::Csrf, b"session2"), signed);
        assert_eq!(key.derive(Purpose::Csrf, b"session").len(), 43);
        assert_ne!(SigningKey::new(&[2; 32]).sign(Purpose::Csrf, b"session"), signed);
    }
}
