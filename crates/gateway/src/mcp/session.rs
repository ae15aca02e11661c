//! Generates session ids. The owner of a session is a [`Caller`](belljar_model::Caller).

use belljar_model::caller::SessionId;

/// The error that the kernel returned no random bytes for a session id or token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel returned no random bytes")]
pub struct NoRandomness;

/// Generates a session id from the random bytes of the kernel. A client never chooses one.
pub(crate) fn new_session() -> Result<SessionId, NoRandomness> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(SessionId::new(bytes))
}
