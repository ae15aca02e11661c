//! Clears away a box's cgroups when its supervisor can no longer do it.
//!
//! A supervisor that is killed takes its box with it, but the directories of its cgroups stay. This
//! process holds one end of a socket and otherwise sleeps; the end of the socket means that the
//! supervisor is gone, for whatever reason, and then it empties and removes what it was told of.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use belljar_sys::clone::CONTROL_FD;
use rustix::process::{Pid, Signal};

use crate::plan::Bytes;
use crate::wire;

/// Waits, then cleans. The first message is the list of cgroup directories.
pub fn run() -> ExitCode {
    let Ok(control) = belljar_sys::exec::adopt(CONTROL_FD) else { return ExitCode::from(2) };
    // Ctrl-C in the terminal is for the supervisor, and so is a hang-up.
    rustix::process::setsid().ok();
    let Ok(Some((directories, _))) =
        wire::receive::<Vec<Bytes>>(control.as_fd(), wire::MAX_MESSAGE)
    else {
        return ExitCode::SUCCESS;
    };
    let directories: Vec<PathBuf> =
        directories.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect();
    // The only later message is that all is clean already.
    match wire::receive::<bool>(control.as_fd(), wire::MAX_WORD) {
        Ok(Some(_)) => ExitCode::SUCCESS,
        Ok(None) | Err(_) => {
            directories.iter().for_each(|directory| remove(directory));
            ExitCode::SUCCESS
        }
    }
}

/// Kills what is left in a cgroup and removes it, as long as that takes within a bound.
pub fn remove(directory: &Path) {
    const ATTEMPTS: u32 = 500; // with the pause below: ten seconds
    for _ in 0..ATTEMPTS {
        match rustix::fs::rmdir(directory) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => return,
            Err(_) => kill_all(directory),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill_all(directory: &Path) {
    if std::fs::write(directory.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
}
