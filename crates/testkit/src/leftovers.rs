//! What a box could leave behind: processes, mounts, cgroups.
//!
//! Other tests run at the same time, so nothing is compared with the state of the whole machine. A
//! process is one that was once seen beneath the supervisor, known by its pid and its time of birth;
//! a cgroup is named after its run; a mount would name the lab.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::eventually;

/// A process, whichever pid the kernel gives out next: its pid and when it was born, in clock ticks.
pub type Born = (i32, u64);

/// Everything that was ever seen beneath one process.
#[derive(Debug)]
pub struct Family {
    root: i32,
    seen: Arc<Mutex<BTreeSet<Born>>>,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Family {
    /// Watches the descendants of `root` from now on. Those that live now are seen before it returns,
    /// however late the watcher gets its turn.
    pub fn watch(root: i32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(descendants(root)));
        let (stopped, ours) = (Arc::clone(&stop), Arc::clone(&seen));
        let watcher = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                look(root, &ours);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        Self { root, seen, stop, watcher: Some(watcher) }
    }

    /// Looks now, without waiting for the watcher's turn; how many were seen so far.
    pub fn look(&self) -> usize {
        look(self.root, &self.seen)
    }

    /// Waits until nobody of the family is alive; how many there were.
    #[track_caller]
    pub fn is_gone(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let watcher = self.watcher.take().expect("taken only here");
        watcher.join().expect("the watcher does not panic");
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        eventually("every process of the box is gone", || !seen.iter().any(is_alive));
        seen.len()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn look(root: i32, seen: &Mutex<BTreeSet<Born>>) -> usize {
    let found = descendants(root);
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.extend(found);
    seen.len()
}

/// All processes below `root`, without it.
pub fn descendants(root: i32) -> BTreeSet<Born> {
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
    found.into_iter().skip(1).filter_map(|pid| Some((pid, birth(pid)?))).collect()
}

/// Whether it still runs; waiting to be waited for is not running.
pub fn is_alive((pid, born): &Born) -> bool {
    birth(*pid) == Some(*born)
}

/// Processes of Belljar's own whose supervisor is gone, of those born since this test began. They
/// are about to end, whosever they were.
pub fn orphans() -> BTreeSet<Born> {
    let began = i32::try_from(std::process::id()).ok().and_then(birth);
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent(*pid) == Some(1) && is_ours(*pid))
        .filter_map(|pid| Some((pid, birth(pid)?)))
        .filter(|(_, born)| Some(*born) >= began)
        .collect()
}

fn is_ours(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.starts_with(b"belljar-init") || line.starts_with(b"belljar-janitor")
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// When a living process was born. One that is dead and only not waited for does not live.
fn birth(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok() // field 22 of proc_pid_stat(5)
}

/// Directories of cgroups that carry the name of one of these runs.
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

/// Lines of the host's mount table that name this directory.
pub fn mounts_naming(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let name = dir.display().to_string();
    table.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect()
}

/// Kills a process that is not a child of ours.
pub fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

/// Sends a signal to a process that is not a child of ours.
pub fn signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("a process to signal");
}
