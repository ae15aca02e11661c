//! What tests need to run the binary from outside: a lab of temporary directories, programs with a
//! deadline, a terminal to sit at, and a search for what a box left behind.
//!
//! For tests only, so every function panics where it cannot go on.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests start programs and are told by their runner which binary to use"
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
pub use git::{commit, git, git_command, picture, write_file};
pub use lab::{Lab, belljar, is_root};
pub use leftovers::{
    Born, Family, cgroups_of, descendants, is_alive, kill, mounts_naming, orphans, signal,
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

/// Enough for anything but a hang, also on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for something that happens soon but at no moment anybody is told of.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_shows(what, String::new, |_| holds());
}

/// Waits for something that can be seen in a text; what was seen last is told if it never comes.
#[track_caller]
pub fn eventually_shows(
    what: &str,
    mut look: impl FnMut() -> String,
    mut holds: impl FnMut(&str) -> bool,
) {
    let until = Instant::now() + DEADLINE;
    let mut seen = look();
    while !holds(&seen) {
        assert!(Instant::now() < until, "still not so after {DEADLINE:?}: {what}\n{seen}");
        std::thread::sleep(Duration::from_millis(5));
        seen = look();
    }
}

/// The environment of the test process, for code that must not read it by itself.
pub fn environment() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().collect()
}

/// The wall clock, for code that must not read it by itself.
pub fn wall_clock() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
