//! Seals, shows and applies the changes of a box in a real overlay.
//!
//! The "box" is a shell in its own user and mount namespace with the same overlay mount as a real
//! box. Nothing is mocked: the kernel writes the upper layer.

#![expect(
    clippy::disallowed_methods,
    reason = "tests start shells, and one test starts its own program again"
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
