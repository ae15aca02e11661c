//! Test support: temporary directories, programs with a deadline, terminals, servers on loopback, and
//! checks for processes, mounts and cgroups that a box leaked.
//!
//! This crate is only for tests, so its functions panic on errors.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests start programs, and the test runner names the binary in a variable"
)]

mod canary;
mod git;
mod lab;
mod leftovers;
mod mcp;
mod model;
mod names;
mod planted;
mod program;
mod shop;
mod skip;
mod terminal;
mod upstream;
mod wire;

use std::time::{Duration, Instant};

pub use canary::Canary;
pub use git::{commit, git, git_command, read_tree, write_file};
pub use lab::{Lab, belljar, is_root};
pub use leftovers::{
    ProcessKey, ProcessTree, cgroups_of, descendants, is_alive, kill, mounts_naming, orphans,
    signal,
};
pub use mcp::{Mcp, McpHttp};
pub use model::Model;
pub use names::{A, AAAA, NameServer};
pub use program::{Ended, Live, Program};
pub use rustix::process::Signal;
pub use shop::{SHOP_TOKEN, shop};
pub use skip::{root_or_skip, skip};
pub use terminal::Terminal;
pub use upstream::{Authority, Received, Reply, Upstream};
pub use wire::Wire;

/// Timeout after which a test fails, long enough for a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Polls until the closure `holds` returns true. Panics with `what` at the [`DEADLINE`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_shows(what, String::new, |_| holds());
}

/// Calls `look` repeatedly until the returned text satisfies the condition `holds`. Panics with the
/// last text at the [`DEADLINE`].
#[track_caller]
pub fn eventually_shows(
    what: &str,
    mut look: impl FnMut() -> String,
    mut holds: impl FnMut(&str) -> bool,
) {
    let until = Instant::now() + DEADLINE;
    let mut seen = look();
    while !holds(&seen) {
        assert!(
            Instant::now() < until,
            "condition does not hold after {DEADLINE:?}: {what}\n{seen}"
        );
        std::thread::sleep(Duration::from_millis(5));
        seen = look();
    }
}

/// Returns the environment of the test process, for crates that must not read it themselves.
pub fn environment() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().collect()
}

/// Returns the current wall clock time, for crates that must not read it themselves.
pub fn wall_clock() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
