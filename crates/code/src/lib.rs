//! Programs of models: the engine that runs them inside a box, and what they can import.
//!
//! The engine is linked into the worker only, which is a program of its own inside a box. What is here
//! without the feature `engine` is the host's side: the frames between the two, skills, declared
//! services and other servers' tools.

#![forbid(unsafe_code)]

pub mod api;
#[cfg(feature = "engine")]
pub mod engine;
pub mod openapi;
pub mod pin;
pub mod schema;
pub mod skill;
pub mod tools;

pub use belljar_wire as wire;
