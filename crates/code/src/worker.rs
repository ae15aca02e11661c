//! The program inside a box that runs one job.

#![forbid(unsafe_code)]

fn main() {}
