//! Tests of the engine as a library, with real boxes, processes and state directories.
//!
//! `BELLJAR_TEST_ROOT` is the directory in which the tests create their directories. The same tests run
//! as root and as a plain user, because boxes of root are built in a different way.

#![forbid(unsafe_code)]

#[cfg(test)]
mod agent_runs;
#[cfg(test)]
mod clones;
#[cfg(test)]
mod config;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod network;
#[cfg(test)]
mod plan_checks;
#[cfg(test)]
mod plan_code;
#[cfg(test)]
mod plan_examples;
#[cfg(test)]
mod plan_faults;
#[cfg(test)]
mod plan_fixes;
#[cfg(test)]
mod plan_gates;
#[cfg(test)]
mod plan_kills;
#[cfg(test)]
mod plan_model;
#[cfg(test)]
mod plan_receipts;
#[cfg(test)]
mod plan_runs;
#[cfg(test)]
mod plan_schedules;
#[cfg(test)]
mod plan_taint;
#[cfg(test)]
mod run;
#[cfg(test)]
mod run_rows;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod test_engine;
