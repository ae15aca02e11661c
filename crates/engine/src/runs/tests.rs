//! The properties P1 to P9 of runs, and the rules of the state machine one by one.
//!
//! The properties are checked on random plans by a simulated driver that crashes. `PROPTEST_CASES`
//! multiplies the number of seeds: its default is 256.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the facts and commands that it is about"
)]

mod plans;
mod properties;
mod rules;
mod shapes;
mod sim;
mod taint;
mod threats;
