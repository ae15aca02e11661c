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

/// The old path and names of [`belljar_wire`], until its users are changed.
pub mod wire {
    pub use belljar_wire::*;
    pub use belljar_wire::{
        FrameDecoder as Cutter, FromWorker as Said, HttpServerJob as Bridge,
        ProgramError as Trouble, ProgramResult as Done, ToWorker as Told,
    };
}
