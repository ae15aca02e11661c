//! The static programs that run inside a box, embedded as bytes.
//!
//! The build script builds the programs. This crate does not start them.

#![forbid(unsafe_code)]

/// The program `belljar-init`: PID 1 of a box, and the janitor.
pub static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-init"));

/// The program `belljar-probe`, which tries forbidden operations for `doctor --prove` and the tests.
pub static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-probe"));

/// The program `belljar-worker`, which carries out one job inside a box.
#[cfg(feature = "worker")]
pub static WORKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-worker"));
