//! Who asks: one session, by an id that nobody can guess.

use std::fmt;
use std::sync::Arc;

/// The name of one session: 128 random bits, never chosen by a client.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// A new one, from the kernel's random bytes.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Self(hex::encode(bytes).into()))
    }

    /// As it stands on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.0)
    }
}

/// The kernel gave no random bytes, without which no session or token can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel gave no random bytes")]
pub struct NoRandomness;

/// Whoever sent a request. It holds no token: what a service never sees it cannot pass on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub session: SessionId,
}
