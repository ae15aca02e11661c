//! End-to-end tests of the `belljar` binary: real programs work in a box, limits are enforced, and no
//! process, file or mount is left behind. Attacks by hostile programs are in `belljar-attacks`.
//!
//! `BELLJAR_BIN` selects another binary. `BELLJAR_TEST_ROOT` selects the directory in which
//! each test creates its temporary directory.
//! The same tests run as root and as a plain user, because a box is built differently for the two.
//! `BELLJAR_TEST_LOGS` names a directory to which all processes of the tests write logs at level trace.

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
mod concurrent_reviews;
#[cfg(test)]
mod console;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod gates;
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
mod plan_write;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod python_verifier;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod run;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod secret;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod skill;
#[cfg(test)]
mod state;
#[cfg(test)]
mod state_0_1;
#[cfg(test)]
mod terminal;

/// Returns a directory for `PATH` that contains the binary under test under the name `belljar`.
#[cfg(test)]
fn bin_dir(lab: &belljar_testkit::Lab) -> std::path::PathBuf {
    let bin = lab.dir().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let binary = belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"));
    if !bin.join("belljar").exists() {
        std::os::unix::fs::symlink(binary, bin.join("belljar")).unwrap();
    }
    bin
}

/// Creates a temporary home, project and state directory for one test.
#[cfg(test)]
fn lab() -> belljar_testkit::Lab {
    belljar_testkit::Lab::new(belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar")))
}
