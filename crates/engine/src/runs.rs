//! Runs of plans: graphs of tasks, each in a box.

pub mod plans;
