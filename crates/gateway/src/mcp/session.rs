//! New session ids. Who asks is a [`Caller`](belljar_model::Caller) of the model.

use belljar_model::caller::SessionId;

/// The kernel gave no random bytes, without which no session or token can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel gave no random bytes")]
pub struct NoRandomness;

/// A new id, from the kernel's random bytes. A client never chooses one.
pub(crate) fn new_session() -> Result<SessionId, NoRandomness> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(SessionId::new(bytes))
}
