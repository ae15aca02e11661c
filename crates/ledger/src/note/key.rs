//! Named Ed25519 keys for signed notes, in the two text forms of Go's `sumdb/note`.
//!
//! The secret key is wiped from memory on drop, is never printed and is exported only by
//! [`SigningKey::to_text`], whose caller must protect the text.
//!
//! **Invariant:** the id of a key is computed from its name and its public key, so a renamed key
//! does not parse.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer as _;

use super::{DASH, ID, is_name};
use crate::digest::Digest;

/// A public key with a name, written as `NAME+ID+BASE64` in exactly one way.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    name: String,
    id: [u8; ID],
    key: ed25519_dalek::VerifyingKey,
}

/// A secret key with a name.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    public: VerifyingKey,
}

/// Why a text is not a valid key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("not a public key; a public key has the form `NAME+ID+BASE64`")]
    NotPublic,
    #[error("not a secret key; a secret key has the form `PRIVATE+KEY+NAME+ID+BASE64`")]
    NotSecret,
    #[error("not a valid name of a key; spaces, control characters and `+` are not allowed")]
    Name,
    #[error("not an Ed25519 key of 32 bytes")]
    Algorithm,
    #[error("the key is not a valid point of the curve")]
    Point,
    #[error("the id of the key does not match its name and bytes")]
    Id,
}

const ED25519: u8 = 1;
const KEY: usize = 32;
const SECRET: &str = "PRIVATE+KEY+";

impl VerifyingKey {
    fn new(name: &str, key: ed25519_dalek::VerifyingKey) -> Result<Self, KeyError> {
        if !is_name(name) {
            return Err(KeyError::Name);
        }
        // Anyone can create signatures for a key of small order.
        if key.is_weak() {
            return Err(KeyError::Point);
        }
        let hash = Digest::of(&[name.as_bytes(), b"\n", &[ED25519], key.as_bytes()]);
        let [a, b, c, d, ..] = *hash.as_bytes();
        Ok(Self { name: name.to_owned(), id: [a, b, c, d], key })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a short id that distinguishes keys of one name; the id proves nothing.
    pub const fn id(&self) -> [u8; ID] {
        self.id
    }

    /// Returns whether this key signed exactly these bytes.
    #[must_use]
    pub fn verify_bytes(&self, bytes: &[u8], signature: &[u8]) -> bool {
        ed25519_dalek::Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(bytes, &signature).is_ok())
    }

    /// Returns `NAME+ID`, which identifies the key and is safe to print.
    fn label(&self) -> String {
        format!("{}+{:08x}", self.name, u32::from_be_bytes(self.id))
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.label(), encode(self.key.as_bytes()))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (name, id, bytes) = split(text).ok_or(KeyError::NotPublic)?;
        let bytes = decode(bytes)?.ok_or(KeyError::NotPublic)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Point)?;
        Self::new(name, key)?.with_id(id)
    }
}

impl VerifyingKey {
    /// Returns the key if `id` is the text of its id.
    fn with_id(self, id: &str) -> Result<Self, KeyError> {
        let same = format!("{:08x}", u32::from_be_bytes(self.id)) == id;
        if same { Ok(self) } else { Err(KeyError::Id) }
    }
}

impl SigningKey {
    /// Creates a key from 32 random bytes, which must come from the kernel.
    pub fn generate(name: &str, random: [u8; KEY]) -> Result<Self, KeyError> {
        let key = ed25519_dalek::SigningKey::from_bytes(&random);
        let public = VerifyingKey::new(name, key.verifying_key())?;
        Ok(Self { key, public })
    }

    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let rest = text.strip_prefix(SECRET).ok_or(KeyError::NotSecret)?;
        let (name, id, bytes) = split(rest).ok_or(KeyError::NotSecret)?;
        let mut seed = decode(bytes)?.ok_or(KeyError::NotSecret)?;
        let key = Self::generate(name, seed);
        wipe(&mut seed);
        let Self { key, public } = key?;
        Ok(Self { key, public: public.with_id(id)? })
    }

    /// Returns the secret key as text; anyone who reads the text can sign.
    pub fn to_text(&self) -> String {
        format!("{SECRET}{}+{}", self.public.label(), encode(self.key.as_bytes()))
    }

    pub fn verifying(&self) -> VerifyingKey {
        self.public.clone()
    }

    /// Returns the signature line for the text of a note, with its newline.
    pub fn sign(&self, text: &str) -> String {
        let signature = [&self.public.id[..], &self.sign_bytes(text.as_bytes())].concat();
        format!("{DASH}{} {}\n", self.public.name, STANDARD.encode(signature))
    }

    /// Returns the plain Ed25519 signature of these bytes.
    pub fn sign_bytes(&self, bytes: &[u8]) -> [u8; ed25519_dalek::SIGNATURE_LENGTH] {
        self.key.sign(bytes).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}+..)", self.public.label())
    }
}

/// Splits `NAME+ID+BASE64`; only the last part can contain a plus.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('+')?;
    let (id, bytes) = rest.split_once('+')?;
    Some((name, id, bytes))
}

fn encode(key: &[u8; KEY]) -> String {
    let mut bytes = [ED25519; 1 + KEY];
    for (to, from) in bytes.iter_mut().skip(1).zip(key) {
        *to = *from;
    }
    let text = STANDARD.encode(bytes);
    wipe(&mut bytes);
    text
}

/// Decodes a key from base64; `None` if the text is not base64.
fn decode(text: &str) -> Result<Option<[u8; KEY]>, KeyError> {
    let Ok(mut bytes) = STANDARD.decode(text) else { return Ok(None) };
    let key = match bytes.split_first() {
        Some((&ED25519, key)) => key.try_into().map_err(|_| KeyError::Algorithm),
        _ => Err(KeyError::Algorithm),
    };
    wipe(&mut bytes);
    key.map(Some)
}

/// Overwrites a copy of a key in a way that the compiler does not remove.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    black_box(bytes);
}
