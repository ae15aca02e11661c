//! Tests of boxes with a network. A broker of the test serves the listening sockets.
//!
//! The same tests run as root and as a plain user, because the two build boxes in different ways.

#![forbid(unsafe_code)]

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod reach;
#[cfg(test)]
mod trust;
