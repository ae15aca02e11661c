//! What a box leaves in a real overlay, sealed, shown and taken over.
//!
//! The "box" here is a shell in its own user and mount namespace, with the same overlay mount that a
//! box has. Nothing is mocked: the kernel writes the upper layer.

#[cfg(test)]
mod apply;
#[cfg(test)]
mod conflict;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod race;
#[cfg(test)]
mod random;
#[cfg(test)]
mod seal;
