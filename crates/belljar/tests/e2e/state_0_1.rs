//! State of version 0.1: this version reads and uses all of it.
//!
//! `tests/fixtures/state-0.1` has one archive made as root and one made as a plain user (`make.sh` in
//! that directory makes them), and the output of the commands of version 0.1 on each. The state contains
//! absolute paths, so it is unpacked to a fixed directory, and a lock gives it to one test at a time.

mod boxes;
mod fixture;
mod other_state;
mod printed;
mod reviews;
