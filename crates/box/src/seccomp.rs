//! The system calls that a box may make.
//!
//! [`table`] says which and why, [`rule`] what is checked of their arguments, [`compile`] turns both
//! into a BPF program. The architecture is checked first: calls through another one kill.

mod compile;
mod rule;
mod table;

pub(crate) use compile::{Counted, Machine, filter};
