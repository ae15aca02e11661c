//! A text with signatures below it: the signed note of <https://c2sp.org/signed-note>.
//!
//! Only Ed25519 is checked here; signatures of other kinds are kept and count as those of unknown
//! keys. Stricter than the specification: no control character at all but the newline, and 64 KiB
//! and 100 signatures at most.
//!
//! **Invariant:** the text of a [`Note`] is worth nothing before [`Note::verified_by`].

mod key;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use key::{KeyError, SigningKey, VerifyingKey};

/// A text and the signatures that someone put below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<Signature>,
}

/// One signature line: whose it claims to be, and the signature itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    name: String,
    id: [u8; ID],
    bytes: Vec<u8>,
}

/// Why a note is not to be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("the note is longer than {MAX_NOTE} bytes")]
    TooLong,
    #[error("the note has more than {MAX_SIGNATURES} signatures")]
    TooManySignatures,
    #[error("the note has a control character")]
    Control,
    #[error("the note is not a text, an empty line and signature lines")]
    Malformed,
    #[error("a signature line of the note is not `— NAME BASE64`")]
    SignatureLine,
    #[error("the note is signed by no key that is known here")]
    NoKnownKey,
    #[error("the signature of `{name}` does not match the note")]
    BadSignature { name: String },
    #[error("two known keys have the name and the id of `{name}`")]
    AmbiguousKey { name: String },
}

/// The longest note that is read.
pub const MAX_NOTE: usize = 64 << 10;
const MAX_SIGNATURES: usize = 100;
const ID: usize = 4;
const DASH: &str = "\u{2014} ";

impl Note {
    /// Takes a note apart. Whether its signatures are good is not looked at.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        if note.len() > MAX_NOTE {
            return Err(NoteError::TooLong);
        }
        if note.chars().any(forbidden) {
            return Err(NoteError::Control);
        }
        // The text may have empty lines; the last one is what separates.
        let (text, lines) = note.rsplit_once("\n\n").ok_or(NoteError::Malformed)?;
        let lines = lines.strip_suffix('\n').ok_or(NoteError::Malformed)?;
        if lines.split('\n').count() > MAX_SIGNATURES {
            return Err(NoteError::TooManySignatures);
        }
        let signatures = lines.split('\n').map(Signature::parse).collect::<Option<_>>();
        let signatures = signatures.ok_or(NoteError::SignatureLine)?;
        Ok(Self { text: format!("{text}\n"), signatures })
    }

    /// The text that is signed, with the newline at its end.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// The first of these keys, in the order of the signatures, that signed this note.
    ///
    /// Signatures of other keys are ignored. One that claims to be by a known key and is not makes
    /// the whole note bad, whoever else signed it.
    pub fn verified_by<'k>(&self, keys: &'k [VerifyingKey]) -> Result<&'k VerifyingKey, NoteError> {
        self.verified(keys)?.first().copied().ok_or(NoteError::NoKnownKey)
    }

    /// All of these keys that signed this note, in the order of the signatures.
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

    /// Whose signature this claims to be.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which key of that name it claims to be by.
    pub const fn id(&self) -> [u8; ID] {
        self.id
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether a key may have this name.
fn is_name(name: &str) -> bool {
    let legal = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
    !name.is_empty() && name.chars().all(legal)
}

/// Whether a note may not have this character.
fn forbidden(c: char) -> bool {
    c.is_control() && c != '\n'
}
