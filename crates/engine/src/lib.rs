//! The engine of Belljar: all operations on boxes, runs, secrets and the ledger, as a library.
//!
//! The engine does not print, parse arguments or return exit codes. It does not read the environment, the
//! working directory or the wall clock: the embedding program passes them in. See [`host::HostEnv`],
//! [`clock::Clock`] and [`notice::Observer`]. Every error is an [`error::EngineError`] with a kind.

#![forbid(unsafe_code)]

pub mod agents;
pub mod apis;
pub mod approvals;
pub mod box_store;
pub mod boxes;
pub mod changes;
pub mod clock;
pub mod clones;
pub mod config;
pub mod doctor;
pub mod error;
pub mod file_tools;
pub mod host;
pub mod launch;
mod layer_image;
pub mod lockdown;
pub mod logging;
pub mod moment;
pub mod network;
pub mod notice;
pub mod policy;
pub mod programs;
pub mod record;
pub mod review;
pub mod roles;
pub mod run;
pub mod runs;
pub mod scope;
pub mod screen;
pub mod secrets;
pub mod server;
pub mod skills;
pub mod specs;
pub mod store;
pub mod supervisor;
pub mod tool_servers;
