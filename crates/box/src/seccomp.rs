//! The system call filters of a box, a broker and a screen process.
//!
//! [`table`] lists the calls of a box with reasons, [`broker`] those of a broker, [`rule`] the checks of
//! their arguments. [`compile`] turns a table into a BPF program. The program first checks the
//! architecture: a call through another architecture kills the process.

mod broker;
mod compile;
mod rule;
mod table;

pub(crate) use compile::{Accounting, Machine, filter};
pub use compile::{broker_filter, screen_filter};
