//! The binary from outside, end to end: real programs work in a box, limits hold, and nothing is
//! left behind. What a hostile program tries is in `belljar-attacks`.
//!
//! `BELLJAR_BIN` names another binary, `BELLJAR_TEST_ROOT` where the labs are made. As root and as a
//! plain user the same tests run, since a box is built in different ways for the two.
//! `BELLJAR_TEST_LOGS` names a directory that all processes of the labs write logs to, at level trace.

#![forbid(unsafe_code)]

#[cfg(test)]
mod agents;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod boxes;
#[cfg(test)]
mod broker_lockdown;
#[cfg(test)]
mod callers;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod code;
#[cfg(test)]
mod code_attacks;
#[cfg(test)]
mod compat;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod net;
#[cfg(test)]
mod net_cli;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod picture;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod python_verifier;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod run;
#[cfg(test)]
mod secret;
#[cfg(test)]
mod skill;
#[cfg(test)]
mod state;
#[cfg(test)]
mod state_0_1;
#[cfg(test)]
mod terminal;

#[cfg(test)]
fn lab() -> belljar_testkit::Lab {
    belljar_testkit::Lab::new(belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar")))
}
