//! The system calls that a box may make, and those of a broker.
//!
//! [`table`] says which and why, [`broker`] the same for the process beside the box, [`rule`] what is checked of their arguments, [`compile`] turns both
//! into a BPF program. The architecture is checked first: calls through another one kill.

mod broker;
mod compile;
mod rule;
mod table;

pub(crate) use compile::{Counted, Machine, filter};
pub use compile::{broker_filter, screen_filter};
