//! Attacks against a box, each with a control that proves that the attack can succeed.
//!
//! Black box tests: an attack uses only the `belljar` binary, a static probe that performs hostile acts,
//! and its own directory. So the same attacks are tests of this repository and the checks that
//! `belljar doctor --prove` runs on a user's machine.
//!
//! Every attack first shows that its act *can* succeed (outside a box, or with one defence disabled), then
//! requires the exact error inside. Controls use only files, listeners and processes of the lab.

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
