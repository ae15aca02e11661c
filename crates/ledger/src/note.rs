//! Signed notes of <https://c2sp.org/signed-note>: a text with signature lines below it.
//!
//! Only Ed25519 signatures are verified; signatures of other algorithms are kept and treated as
//! signatures of unknown keys. The limits are stricter than in the specification: newline is the
//! only control character, and a note has at most 64 KiB and 100 signatures.
//!
//! **Invariant:** the text of a [`Note`] is not trusted before [`Note::verified_by`].

mod key;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use key::{KeyError, SigningKey, VerifyingKey};

/// A text with the signatures below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<Signature>,
}

/// One signature line: the name and id of the claimed key, and the signature itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    name: String,
    id: [u8; ID],
    bytes: Vec<u8>,
}

/// Why a note is malformed or not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("the note is longer than {MAX_NOTE} bytes")]
    TooLong,
    #[error("the note has more than {MAX_SIGNATURES} signatures")]
    TooManySignatures,
    #[error("the note has a control character")]
    Control,
    #[error("the note does not consist of a text, an empty line and signature lines")]
    Malformed,
    #[error("a signature line of the note is not `— NAME BASE64`")]
    SignatureLine,
    #[error("the note has no signature of a known key")]
    NoKnownKey,
    #[error("the signature of `{name}` does not match the note")]
    BadSignature { name: String },
    #[error("two different known keys have the same name and id as `{name}`")]
    AmbiguousKey { name: String },
}

/// The maximum length of a note in bytes.
pub const MAX_NOTE: usize = 64 << 10;
const MAX_SIGNATURES: usize = 100;
const ID: usize = 4;
const DASH: &str = "\u{2014} ";

impl Note {
    /// Parses a note without verifying its signatures.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        if note.len() > MAX_NOTE {
            return Err(NoteError::TooLong);
        }
        if note.chars().any(forbidden) {
            return Err(NoteError::Control);
        }
        // The text can contain empty lines; the last empty line separates the signatures.
        let (text, lines) = note.rsplit_once("\n\n").ok_or(NoteError::Malformed)?;
        let lines = lines.strip_suffix('\n').ok_or(NoteError::Malformed)?;
        if lines.split('\n').count() > MAX_SIGNATURES {
            return Err(NoteError::TooManySignatures);
        }
        let signatures = lines.split('\n').map(Signature::parse).collect::<Option<_>>();
        let signatures = signatures.ok_or(NoteError::SignatureLine)?;
        Ok(Self { text: format!("{text}\n"), signatures })
    }

    /// Returns the signed text with its final newline.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// Returns the key of the first signature, in the order of the note, that one of `keys` made.
    ///
    /// Signatures of other keys are ignored. An invalid signature in the name of a known key makes
    /// the whole note invalid, even if other signatures are valid.
    pub fn verified_by<'k>(&self, keys: &'k [VerifyingKey]) -> Result<&'k VerifyingKey, NoteError> {
        self.verified(keys)?.first().copied().ok_or(NoteError::NoKnownKey)
    }

    /// Returns all of `keys` that signed this note, in the order of the signatures.
    pub fn verified<'k>(
        &self,
        keys: &'k [VerifyingKey],
    ) -> Result<Vec<&'k VerifyingKey>, NoteError> {
        let mut signers = Vec::new();
        for signature in &self.signatures {
            let mut known =
                keys.iter().filter(|key| key.name() == signature.name && key.id() == signature.id);
            let Some(key) = known.next() else { continue };
            let name = || signature.name.clone();
            if known.any(|other| other != key) {
                return Err(NoteError::AmbiguousKey { name: name() });
            }
            if !key.verify_bytes(self.text.as_bytes(), &signature.bytes) {
                return Err(NoteError::BadSignature { name: name() });
            }
            if !signers.contains(&key) {
                signers.push(key);
            }
        }
        Ok(signers)
    }
}

impl Signature {
    fn parse(line: &str) -> Option<Self> {
        let (name, encoded) = line.strip_prefix(DASH)?.split_once(' ')?;
        let bytes = STANDARD.decode(encoded).ok()?;
        let (id, bytes) = bytes.split_first_chunk::<ID>()?;
        let legal = is_name(name) && !bytes.is_empty();
        legal.then(|| Self { name: name.to_owned(), id: *id, bytes: bytes.to_vec() })
    }

    /// Returns the name of the key that the signature claims.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of the key that the signature claims.
    pub const fn id(&self) -> [u8; ID] {
        self.id
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns whether a text is a valid name of a key.
fn is_name(name: &str) -> bool {
    let legal = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
    !name.is_empty() && name.chars().all(legal)
}

/// Returns whether a character is forbidden in a note.
fn forbidden(c: char) -> bool {
    c.is_control() && c != '\n'
}
