//! The worker: the program inside a box that runs one job and exits.
//!
//! A worker talks to the host only in frames of [`belljar_wire`] on its standard streams. Only the
//! binary `belljar-worker` and its tests use this library.

#![forbid(unsafe_code)]

pub mod model;
pub mod runtime;
