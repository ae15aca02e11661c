//! The host's side of programs of models: skills, declared services and other servers' tools.
//!
//! The programs themselves run inside a box, in the crate `belljar-worker`. Nothing here runs one.

#![forbid(unsafe_code)]

pub mod api;
pub mod openapi;
pub mod pin;
pub mod schema;
pub mod skill;
pub mod tools;
