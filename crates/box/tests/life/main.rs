//! Tests of long-running boxes: exec, pause, persistent homes, masks and injected files.
//!
//! The same tests run as root and as a plain user, because the two build boxes in different ways.

#![forbid(unsafe_code)]

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod home;
#[cfg(test)]
mod masks;
