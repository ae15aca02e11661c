//! The worker: the program inside a box that runs one job.
//!
//! It runs only inside a box and shares nothing with the host side but the frames of [`belljar_wire`].
//! This library exists for the program `belljar-worker` and for its tests; nothing else links it.

#![forbid(unsafe_code)]

pub mod runtime;
