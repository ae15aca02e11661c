//! The static programs that run inside a box, as bytes.
//!
//! The build script builds them. Nothing here starts one.

#![forbid(unsafe_code)]

/// PID 1 of a box, and its janitor.
pub static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-init"));

/// The program that tries forbidden acts, for `doctor --prove` and the tests.
pub static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-probe"));

/// The program that runs one job of a model.
#[cfg(feature = "worker")]
pub static WORKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/belljar-worker"));
