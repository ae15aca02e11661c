//! What a box leaves in a real overlay, sealed, shown and taken over.
//!
//! The "box" here is a shell in its own user and mount namespace, with the same overlay mount that a
//! box has. Nothing is mocked: the kernel writes the upper layer.

#![expect(
    clippy::disallowed_methods,
    reason = "tests start shells, and one of them a second process of itself"
)]

#[cfg(test)]
mod again;
#[cfg(test)]
mod apply;
#[cfg(test)]
mod conflict;
#[cfg(test)]
mod diff;
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
