//! The attacks that Belljar answers, each with its control.
//!
//! Black box: an attack knows the `belljar` binary, a static probe that performs hostile acts, and a
//! directory of its own; it knows nothing of the code. So the same rows are the tests of this tree and
//! what `belljar doctor --prove` runs on a user's machine.
//!
//! Every row first shows that its act *can* succeed (outside a box, or with that one defence off), then
//! demands the exact error inside. Controls touch only what the lab made: its own files, listeners and
//! processes, never those of the machine.

#![forbid(unsafe_code)]

mod bombs;
mod boxed;
mod command;
mod deputies;
mod handoff;
mod host;
mod json;
mod kernel;
mod lab;
mod ledger;
mod network;
mod paths;
mod processes;
mod record;
mod rootfs;
mod secrets;
mod sockets;
mod state;
mod supervisor;
mod surface;
mod table;
mod trial;

pub use lab::{Lab, LabError};
pub use table::ATTACKS;
pub use trial::{Attack, Verdict};
