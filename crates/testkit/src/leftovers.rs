//! Finds processes, mounts and cgroups that a box leaked.
//!
//! Other tests run at the same time, so the checks do not compare the state of the whole machine. A
//! process belongs to a box if it was once a descendant of its supervisor; its pid and start time identify
//! it. A cgroup has the name of its run, and a mount contains the path of the lab.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::eventually;

/// The pid and the start time (in clock ticks) of a process, which identify it even if the pid is
/// reused.
pub type ProcessKey = (i32, u64);

/// All processes that were seen as descendants of one process while this value exists.
#[derive(Debug)]
pub struct ProcessTree {
    root: i32,
    seen: Arc<Mutex<BTreeSet<ProcessKey>>>,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl ProcessTree {
    /// Starts to record the descendants of the process `root`. The current descendants are recorded
    /// before this function returns.
    pub fn watch(root: i32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(descendants(root)));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&seen));
        let watcher = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                add_descendants(root, &shared);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        Self { root, seen, stop, watcher: Some(watcher) }
    }

    /// Records the current descendants of the process. Returns the number of processes seen so far.
    pub fn scan(&self) -> usize {
        add_descendants(self.root, &self.seen)
    }

    /// Waits until all recorded descendants have ended. Returns their number.
    #[track_caller]
    pub fn wait_until_gone(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let watcher = self.watcher.take().expect("taken only here");
        watcher.join().expect("the watcher does not panic");
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        eventually("every process of the box has ended", || !seen.iter().any(is_alive));
        seen.len()
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Adds the current descendants of the process `root` to `seen`. Returns the number of processes
/// seen so far.
fn add_descendants(root: i32, seen: &Mutex<BTreeSet<ProcessKey>>) -> usize {
    let found = descendants(root);
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.extend(found);
    seen.len()
}

/// Returns all descendants of the process `root`.
pub fn descendants(root: i32) -> BTreeSet<ProcessKey> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found.into_iter().skip(1).filter_map(|pid| Some((pid, start_time(pid)?))).collect()
}

/// Returns whether a process, identified by pid and start time, still runs. A zombie does not run.
pub fn is_alive((pid, start): &ProcessKey) -> bool {
    start_time(*pid) == Some(*start)
}

/// Returns the init and janitor processes without a supervisor that started after this test. They can
/// belong to another test, and end soon.
pub fn orphans() -> BTreeSet<ProcessKey> {
    let test_start = i32::try_from(std::process::id()).ok().and_then(start_time);
    let all = fs::read_dir("/proc").expect("cannot read /proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent(*pid) == Some(1) && is_init_or_janitor(*pid))
        .filter_map(|pid| Some((pid, start_time(pid)?)))
        .filter(|(_, start)| Some(*start) >= test_start)
        .collect()
}

/// Returns whether a process is an init or a janitor of Belljar.
fn is_init_or_janitor(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.starts_with(b"belljar-init") || line.starts_with(b"belljar-janitor")
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the start time of a running process, or `None` for a missing process or a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok() // field 22 of proc_pid_stat(5)
}

/// Returns the cgroup directories that belong to one of these runs.
pub fn cgroups_of(runs: &[PathBuf]) -> Vec<PathBuf> {
    let names: Vec<String> = runs
        .iter()
        .filter_map(|run| Some(format!("belljar-{}", run.file_name()?.to_str()?)))
        .collect();
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = left.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())) {
            if names.iter().any(|name| entry.file_name() == name.as_str()) {
                found.push(entry.path());
            }
            left.push(entry.path());
        }
    }
    found
}

/// Returns the lines of the host's mount table that contain this directory.
pub fn mounts_naming(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("cannot read the mount table");
    let name = dir.display().to_string();
    table.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect()
}

/// Kills any process, also one that is not a child of the test.
pub fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

/// Sends a signal to any process, also one that is not a child of the test.
pub fn signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("cannot send a signal");
}
