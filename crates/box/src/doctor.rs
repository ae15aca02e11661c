//! What this machine can enforce, found by looking and by trying.

use std::fs;

use belljar_model::RunId;
use belljar_sys::{clone, landlock, process};
use rustix::process::Signal;
use serde::Serialize;

use crate::cgroup::Cgroup;
use crate::hint;
use crate::seccomp::Machine;
use crate::standing::Standing;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub health: Health,
    pub detail: String,
    /// What would make it better, where something would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Good,
    /// A box runs, with less than it could have.
    Weak,
    /// No box runs.
    Missing,
}

/// Everything, in the order of importance.
pub fn examine() -> Vec<Finding> {
    vec![user(), user_namespaces(), seccomp(), landlock(), cgroup(), kernel(), vulnerabilities()]
}

fn user() -> Finding {
    let detail = match Standing::of_this_process() {
        Standing::Root => "root: every box gets a user id of its own",
        Standing::Rootless => {
            "a plain user: boxes have this user's id, in a namespace of their own"
        }
    };
    finding("user", Health::Good, detail, None)
}

fn user_namespaces() -> Finding {
    let subject = "user namespaces";
    let tried = clone::hold_user_namespace().and_then(|held| {
        // Some systems let one be made and then forbid everything in it, beginning with the maps.
        let mapped = fs::write(format!("/proc/{}/setgroups", held.pid), "deny");
        rustix::process::pidfd_send_signal(&held.pidfd, Signal::KILL)?;
        process::wait(held.pid, true)?;
        mapped
    });
    match tried {
        Ok(()) => finding(subject, Health::Good, "can be made", None),
        Err(error) => {
            let remedy = hint::user_namespaces(&error);
            finding(subject, Health::Missing, &error.to_string(), Some(remedy))
        }
    }
}

fn seccomp() -> Finding {
    match Machine::current() {
        Some(_) => finding("seccomp", Health::Good, std::env::consts::ARCH, None),
        None => {
            finding("seccomp", Health::Missing, "no table of system calls for this machine", None)
        }
    }
}

fn landlock() -> Finding {
    match landlock::abi() {
        Ok(abi) if abi >= 6 => finding("landlock", Health::Good, &format!("abi {abi}"), None),
        Ok(abi) => {
            let remedy = "Linux 6.12 adds the scopes for signals and abstract sockets".to_owned();
            finding("landlock", Health::Weak, &format!("abi {abi}"), Some(remedy))
        }
        Err(error) => {
            let remedy =
                "boot with `lsm=landlock,…`, or go without: `--weaken landlock`".to_owned();
            finding("landlock", Health::Missing, &error.to_string(), Some(remedy))
        }
    }
}

fn cgroup() -> Finding {
    match Cgroup::find(RunId::new(0, 0)) {
        Some(place) => finding("cgroup", Health::Good, place.describe(), None),
        None => {
            let remedy = "with systemd: `systemd-run --user --scope -p Delegate=yes belljar run …`";
            let detail = "none can be made; rlimits and a watcher stand in";
            finding("cgroup", Health::Weak, detail, Some(remedy.to_owned()))
        }
    }
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 6) {
        return finding("kernel", Health::Good, &release, None);
    }
    let remedy =
        "the kernel is what holds a box: run one that still gets security fixes".to_owned();
    finding("kernel", Health::Weak, &release, Some(remedy))
}

/// What the kernel itself says about the processor.
fn vulnerabilities() -> Finding {
    let mut open: Vec<String> = fs::read_dir("/sys/devices/system/cpu/vulnerabilities")
        .map(|entries| {
            entries
                .flatten()
                .filter(|entry| {
                    fs::read_to_string(entry.path())
                        .is_ok_and(|text| text.starts_with("Vulnerable"))
                })
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    open.sort_unstable();
    if open.is_empty() {
        return finding(
            "processor",
            Health::Good,
            "no open vulnerability known to the kernel",
            None,
        );
    }
    let remedy = "side channels: keep secrets off machines that run hostile code".to_owned();
    finding("processor", Health::Weak, &open.join(", "), Some(remedy))
}

fn finding(subject: &'static str, health: Health, detail: &str, remedy: Option<String>) -> Finding {
    Finding { subject, health, detail: detail.to_owned(), remedy }
}
