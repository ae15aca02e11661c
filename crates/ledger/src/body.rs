//! Bodies: content that an event references by a salted commitment instead of containing it.
//!
//! The salt is stored apart from the events. Once the salt and any stored content are erased, the
//! content cannot be guessed from the commitment.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

const DOMAIN: &[u8] = b"belljar body 1\0";

/// 32 random bytes that prevent guessing a content from its commitment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; Self::LENGTH]);

/// A reference in an event to a body: its commitment, its size and whether its content is stored.
#[derive(Clone)]
pub struct Body {
    hash: Digest,
    size: u64,
    kept: bool,
    /// The salt, known only right after the commitment is computed; not part of the event.
    salt: Option<Salt>,
    /// Keeps the stored content until an event references it; not part of the event.
    _lease: Option<Lease>,
}

/// A shared lock on the file of a stored content, released with its last clone.
///
/// While a process holds a lease, no process removes the content because of its age or because no
/// event references it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    _file: Arc<File>,
}

/// A commitment that is computed from content in pieces.
pub struct Committing {
    state: Sha256,
    size: u64,
    salt: Salt,
}

impl Salt {
    pub const LENGTH: usize = 32;

    pub const fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    pub fn random() -> Result<Self, rustix::io::Errno> {
        crate::random::bytes().map(Self)
    }

    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl Body {
    /// Computes a commitment to `content` without storing the content.
    pub fn hash_of(content: &[u8]) -> Result<Self, rustix::io::Errno> {
        let mut committing = Committing::new(Salt::random()?);
        committing.update(content);
        Ok(committing.finish())
    }

    /// Returns the reference to a content whose commitment and salt an earlier process computed with
    /// [`Committing`].
    pub const fn committed(hash: Digest, size: u64, salt: Salt) -> Self {
        Self { hash, size, kept: false, salt: Some(salt), _lease: None }
    }

    pub(crate) const fn named(hash: Digest, size: u64, kept: bool) -> Self {
        Self { hash, size, kept, salt: None, _lease: None }
    }

    /// Returns the reference to a content that is stored.
    pub(crate) fn kept(self) -> Self {
        Self { kept: true, ..self }
    }

    /// Returns the reference with a lease of the stored content.
    pub(crate) fn with_lease(self, lease: Lease) -> Self {
        Self { _lease: Some(lease), ..self }
    }

    /// Returns the reference without the content, for content that was redacted in the meantime.
    #[must_use]
    pub const fn hash_only(&self) -> Self {
        Self { hash: self.hash, size: self.size, kept: false, salt: self.salt, _lease: None }
    }

    /// Returns the commitment, which is also the name under which the content is requested.
    pub const fn hash(&self) -> Digest {
        self.hash
    }

    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether the content is stored, not only its hash.
    pub const fn is_kept(&self) -> bool {
        self.kept
    }

    pub(crate) const fn salt(&self) -> Option<Salt> {
        self.salt
    }
}

impl Committing {
    pub fn new(salt: Salt) -> Self {
        let mut state = Sha256::new();
        state.update(DOMAIN);
        state.update(salt.0);
        Self { state, size: 0, salt }
    }

    pub fn update(&mut self, content: &[u8]) {
        self.state.update(content);
        self.size += content.len() as u64;
    }

    pub fn finish(self) -> Body {
        let hash = Digest::new(self.state.finalize().into());
        Body { hash, size: self.size, kept: false, salt: Some(self.salt), _lease: None }
    }
}

impl Lease {
    /// Creates a lease from a file that is locked.
    pub(crate) fn new(locked: File) -> Self {
        Self { _file: Arc::new(locked) }
    }
}

/// Compares everything but the lease.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (self.hash, self.size, self.kept, self.salt)
            == (other.hash, other.size, other.kept, other.salt)
    }
}

impl Eq for Body {}

/// Omits the salt, which must not appear in messages.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({}, {} bytes, kept: {})", self.hash, self.size, self.kept)
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

impl fmt::Debug for Committing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Committing({} bytes)", self.size)
    }
}
