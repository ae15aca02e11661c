//! A secret on disk: one file, sealed with AES-256-GCM under the vault's key.
//!
//! ```text
//!  0   8  "BJSECRET"
//!  8   1  version: 1
//!  9   8  key id, which distinguishes another key from damage
//! 17   8  time of sealing, nanoseconds since 1970
//! 25   1  length of the name
//! 26   n  name
//!     12  nonce, random
//!      …  value, and a tag of 16 bytes over the value and everything before the nonce
//! ```
//!
//! The tag covers the name: a file that is renamed to another secret's name, or replaces it, does
//! not open. All functions read from descriptors, so the caller needs no path.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use belljar_model::net::SecretName;
use zeroize::Zeroizing;

use super::private::{self, NotPrivate};
use super::value::{MAX_VALUE, Value, ValueError};

const MAGIC: &[u8; 8] = b"BJSECRET";
const VERSION: u8 = 1;
const TAG: usize = 16;
const KEY: usize = 32;
const KEY_ID: usize = 8;
/// The maximum size of a file with an encrypted secret.
pub(super) const MAX_FILE: u64 = (MAX_VALUE as u64) + 1024;
/// The minimum length of a vault key from a command; shorter output is a mistake or could be
/// guessed.
const MIN_COMMAND_KEY: usize = 32;
const MAX_COMMAND_KEY: usize = 4096;

/// The key that encrypts all secrets of one vault. Wiped when dropped.
pub struct Key {
    bytes: Zeroizing<[u8; KEY]>,
    id: [u8; KEY_ID],
}

/// The source of a vault key, whose bytes are read from a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum KeySource {
    /// The vault key is in the file `key` of the vault.
    File,
    /// The vault key is the output of the operator's `key-command`.
    Command,
}

/// The reason why the key of the vault cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the key of the vault")]
    Read { source: io::Error },
    #[error("the key file of the vault is not private")]
    NotPrivate(#[from] NotPrivate),
    #[error(
        "the key file of the vault is damaged: it must have {KEY} bytes; restore it from a backup"
    )]
    Length,
    #[error(
        "`key-command` printed fewer than {MIN_COMMAND_KEY} bytes; it must print a random key, for example from `openssl rand -hex 32`"
    )]
    TooShort,
    #[error("`key-command` printed more than {MAX_COMMAND_KEY} bytes, which is not a key")]
    TooLong,
    #[error("cannot derive the key of the vault")]
    Derive,
}

/// The reason why a secret's file cannot be decrypted.
#[derive(Debug, thiserror::Error)]
pub enum UnsealError {
    #[error("cannot read the sealed secret {name}")]
    Read { name: SecretName, source: io::Error },
    #[error("the file of the secret {name} is not private")]
    NotPrivate { name: SecretName, source: NotPrivate },
    #[error("the file of {name} is not a sealed secret")]
    NotSealed { name: SecretName },
    #[error("the file of {name} has version {version}, but this program supports only {VERSION}")]
    Version { name: SecretName, version: u8 },
    #[error("the file of {name} contains another secret; set {name} again")]
    Swapped { name: SecretName },
    #[error(
        "{name} was sealed with another key than the current one; restore that key, or set {name} again"
    )]
    OtherKey { name: SecretName },
    #[error("the file of {name} was modified or is damaged; set {name} again")]
    Damaged { name: SecretName },
    #[error("the sealed value of {name} is invalid")]
    Value { name: SecretName, source: ValueError },
}

/// The unencrypted part of a secret's file. It is not authenticated before the file is unsealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: SecretName,
    /// The time at which the secret was stored, in nanoseconds since 1970.
    pub set_at: u64,
    key: [u8; KEY_ID],
}

/// A decrypted secret with the time at which it was stored.
#[derive(Debug)]
pub struct Unsealed {
    pub value: Value,
    /// The time at which the secret was stored, in nanoseconds since 1970.
    pub set_at: u64,
}

impl Header {
    /// Returns whether this file holds the same secret as `old`, stored later with the same key.
    pub(super) fn follows(&self, old: &Self) -> bool {
        self.name == old.name && self.key == old.key && self.set_at > old.set_at
    }
}

impl Key {
    /// Generates a random vault key.
    pub(super) fn generate() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; KEY]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice()).map_err(|_| KeyError::Derive)?;
        Self::of(bytes)
    }

    /// Reads a vault key from its source.
    pub fn read(source: KeySource, from: &File) -> Result<Self, KeyError> {
        match source {
            KeySource::File => Self::from_file(from),
            KeySource::Command => Self::from_command(from),
        }
    }

    fn from_file(mut file: &File) -> Result<Self, KeyError> {
        private::check(file)?;
        let mut bytes = Zeroizing::new([0; KEY + 1]);
        let length = read_up_to(&mut file, bytes.as_mut_slice());
        let length = length.map_err(|source| KeyError::Read { source })?;
        match bytes.split_last_chunk::<1>() {
            Some((key, _)) if length == KEY => {
                let mut own = Zeroizing::new([0; KEY]);
                own.copy_from_slice(key);
                Self::of(own)
            }
            _ => Err(KeyError::Length),
        }
    }

    /// Derives a vault key from the output of a command, because keyrings store text.
    fn from_command(mut output: &File) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new(vec![0; MAX_COMMAND_KEY + 2]);
        let length = read_up_to(&mut output, &mut bytes);
        bytes.truncate(length.map_err(|source| KeyError::Read { source })?);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        match bytes.len() {
            ..MIN_COMMAND_KEY => Err(KeyError::TooShort),
            MIN_COMMAND_KEY..=MAX_COMMAND_KEY => {
                let key = Salt::new(HKDF_SHA256, b"belljar vault").extract(&bytes);
                let mut own = Zeroizing::new([0; KEY]);
                expand(&key, b"key of a command", own.as_mut_slice())?;
                Self::of(own)
            }
            _ => Err(KeyError::TooLong),
        }
    }

    fn of(bytes: Zeroizing<[u8; KEY]>) -> Result<Self, KeyError> {
        let prk = Salt::new(HKDF_SHA256, b"belljar vault").extract(bytes.as_slice());
        let mut id = [0; KEY_ID];
        expand(&prk, b"id of a key", &mut id)?;
        Ok(Self { bytes, id })
    }

    pub(super) fn bytes(&self) -> &[u8; KEY] {
        &self.bytes
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, self.bytes.as_slice()).ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Encrypts a secret and returns the content of its file; `None` only if the random number
/// generator fails.
pub fn seal(key: &Key, name: &SecretName, value: &Value, set_at: u64) -> Option<Vec<u8>> {
    let name = name.as_str().as_bytes();
    let mut sealed = Vec::with_capacity(64 + name.len() + value.expose().len());
    sealed.extend_from_slice(MAGIC);
    sealed.push(VERSION);
    sealed.extend_from_slice(&key.id);
    sealed.extend_from_slice(&set_at.to_be_bytes());
    sealed.push(u8::try_from(name.len()).ok()?);
    sealed.extend_from_slice(name);
    // Space for the tag, so that a reallocation leaves no copy of the value in memory.
    let mut content = Zeroizing::new(Vec::with_capacity(value.expose().len() + TAG));
    content.extend_from_slice(value.expose());
    let aad = Aad::from(sealed.as_slice());
    let nonce = key.cipher()?.seal_in_place_append_tag(aad, &mut *content).ok()?;
    sealed.extend_from_slice(nonce.as_ref());
    sealed.extend_from_slice(&content);
    Some(sealed)
}

/// Decrypts the secret `name` from its file.
pub fn unseal(key: &Key, name: &SecretName, mut file: &File) -> Result<Unsealed, UnsealError> {
    private::check(file)
        .map_err(|source| UnsealError::NotPrivate { name: name.clone(), source })?;
    let mut bytes = Zeroizing::new(Vec::new());
    let read = Read::by_ref(&mut file).take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|source| UnsealError::Read { name: name.clone(), source })?;
    open(key, name, &mut bytes)
}

/// Decrypts the secret `name` from the content of its file, which is overwritten.
pub(super) fn open(key: &Key, name: &SecretName, file: &mut [u8]) -> Result<Unsealed, UnsealError> {
    let (header, length) = parse(name, file)?;
    if header.name != *name {
        return Err(UnsealError::Swapped { name: name.clone() });
    }
    if header.key != key.id {
        return Err(UnsealError::OtherKey { name: name.clone() });
    }
    let damaged = || UnsealError::Damaged { name: name.clone() };
    let (head, rest) = file.split_at_mut_checked(length).ok_or_else(damaged)?;
    let (nonce, content) = rest.split_first_chunk_mut::<NONCE_LEN>().ok_or_else(damaged)?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let cipher = key.cipher().ok_or_else(damaged)?;
    let value = cipher.open_in_place(nonce, Aad::from(head), content).map_err(|_| damaged())?;
    let value = Value::new(Zeroizing::new(value.to_vec()));
    let value = value.map_err(|source| UnsealError::Value { name: name.clone(), source })?;
    Ok(Unsealed { value, set_at: header.set_at })
}

/// Parses the header of a secret's file; `name` is the expected secret, for error messages.
pub(super) fn parse(name: &SecretName, file: &[u8]) -> Result<(Header, usize), UnsealError> {
    let version = file.strip_prefix(MAGIC).and_then(|rest| rest.first().copied());
    match version {
        Some(VERSION) => {}
        Some(version) => return Err(UnsealError::Version { name: name.clone(), version }),
        None => return Err(UnsealError::NotSealed { name: name.clone() }),
    }
    fields(file).ok_or_else(|| UnsealError::Damaged { name: name.clone() })
}

fn fields(file: &[u8]) -> Option<(Header, usize)> {
    let rest = file.get(MAGIC.len() + 1..)?;
    let (key, rest) = rest.split_first_chunk::<KEY_ID>()?;
    let (set_at, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first()?;
    let (name, content) = rest.split_at_checked(usize::from(*length))?;
    let name: SecretName = std::str::from_utf8(name).ok()?.parse().ok()?;
    let header = Header { name, set_at: u64::from_be_bytes(*set_at), key: *key };
    Some((header, file.len().checked_sub(content.len())?))
}

/// The output length of the key derivation (HKDF) in bytes.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(prk: &Prk, purpose: &[u8], into: &mut [u8]) -> Result<(), KeyError> {
    let purpose = [purpose];
    let okm = prk.expand(&purpose, Length(into.len())).map_err(|_| KeyError::Derive)?;
    okm.fill(into).map_err(|_| KeyError::Derive)
}

/// Reads until the buffer is full or the input ends.
fn read_up_to(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
