//! Boxes with a network, whose sockets the test serves itself: what arrives, and what does not.
//!
//! As root and as a plain user the same tests run, since a box is built in different ways for the two.

#![forbid(unsafe_code)]

#[cfg(test)]
mod reach;
#[cfg(test)]
mod room;
#[cfg(test)]
mod trust;
