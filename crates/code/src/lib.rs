//! The host side of programs that models write: skills, declared services and tools of MCP servers.
//!
//! This crate never runs such a program. Programs run inside a box, in the crate `belljar-worker`.

#![forbid(unsafe_code)]

pub mod api;
pub mod openapi;
pub mod pin;
pub mod schema;
pub mod skill;
pub mod tools;
