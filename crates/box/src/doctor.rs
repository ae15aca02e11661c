//! Checks which layers of a box this machine can enforce.

use std::fs;

use belljar_model::RunId;
use belljar_sys::{clone, landlock, process};
use rustix::process::Signal;
use serde::Serialize;

use crate::cgroup::Cgroup;
use crate::hint;
use crate::image;
use crate::privilege::Privilege;
use crate::seccomp::Machine;

/// The result of checking one feature of this machine.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub health: Health,
    pub detail: String,
    /// Advice how to improve the result of the check, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The rating of one feature of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Good,
    /// The feature is weak: boxes run, but with weaker protection.
    Weak,
    /// The feature is missing: boxes cannot run without `--weaken`, or not at all.
    Missing,
}

/// Checks all features of this machine, the most important first.
pub fn examine() -> Vec<Finding> {
    vec![
        user(),
        user_namespaces(),
        seccomp(),
        landlock(),
        cgroup(),
        disk_limit(),
        kernel(),
        vulnerabilities(),
    ]
}

fn user() -> Finding {
    let detail = match Privilege::of_this_process() {
        Privilege::Root => "root: every box gets its own user id",
        Privilege::Rootless => "plain user: boxes have this user's id, in their own user namespace",
    };
    finding("user", Health::Good, detail, None)
}

fn user_namespaces() -> Finding {
    let subject = "user namespaces";
    let tried = clone::hold_user_namespace().and_then(|held| {
        // Some systems allow the creation of a user namespace, but forbid writing its maps.
        let mapped = fs::write(format!("/proc/{}/setgroups", held.pid), "deny");
        rustix::process::pidfd_send_signal(&held.pidfd, Signal::KILL)?;
        process::wait(held.pid, true)?;
        mapped
    });
    match tried {
        Ok(()) => finding(subject, Health::Good, "can be created", None),
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
            finding("seccomp", Health::Missing, "no system call table for this architecture", None)
        }
    }
}

fn landlock() -> Finding {
    match landlock::abi() {
        Ok(abi) if abi >= 6 => finding("landlock", Health::Good, &format!("abi {abi}"), None),
        Ok(abi) => {
            let remedy = "Linux 6.12 adds scopes for signals and abstract sockets".to_owned();
            finding("landlock", Health::Weak, &format!("abi {abi}"), Some(remedy))
        }
        Err(error) => {
            let remedy = match error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error())
            {
                true => "install Linux 5.13 or later, built with Landlock",
                false => "boot with `lsm=landlock,…`",
            };
            let remedy = format!("{remedy}, or run without this layer: `--weaken landlock`");
            finding("landlock", Health::Missing, &error.to_string(), Some(remedy))
        }
    }
}

fn cgroup() -> Finding {
    match Cgroup::find(RunId::new(0, 0)) {
        Some(place) => finding("cgroup", Health::Good, place.describe(), None),
        None => {
            let remedy = "with systemd: `systemd-run --user --scope -p Delegate=yes belljar run …`";
            let detail = "cannot be created; rlimits and a watcher enforce the limits instead";
            finding("cgroup", Health::Weak, detail, Some(remedy.to_owned()))
        }
    }
}

fn disk_limit() -> Finding {
    let subject = "disk limit";
    let measured = "a watcher measures the files of a box";
    if Privilege::of_this_process() == Privilege::Rootless {
        let remedy = "only boxes of root can have a disk limit of the kernel".to_owned();
        return finding(subject, Health::Weak, measured, Some(remedy));
    }
    match image::check_support() {
        Ok(()) => {
            let detail = "the kernel enforces `--disk` of a run, unless it is the default";
            finding(subject, Health::Good, detail, None)
        }
        Err(error) => finding(subject, Health::Weak, measured, Some(error.to_string())),
    }
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    rate_kernel(&uname.release().to_string_lossy())
}

/// Rates a release of Linux, for example `6.1.0-18-amd64`.
fn rate_kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 6) {
        return finding("kernel", Health::Good, release, None);
    }
    if version < (5, 13) {
        let remedy = "boxes need Linux 5.13 or later: install a newer kernel".to_owned();
        return finding("kernel", Health::Missing, release, Some(remedy));
    }
    let remedy = "a box is only as safe as the kernel: use a kernel that still gets security fixes"
        .to_owned();
    finding("kernel", Health::Weak, release, Some(remedy))
}

/// Returns a finding about processor vulnerabilities that the kernel lists as not mitigated.
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
            "the kernel reports no unmitigated vulnerability",
            None,
        );
    }
    let remedy =
        "side channels are possible: do not keep secrets on machines that run hostile code"
            .to_owned();
    finding("processor", Health::Weak, &open.join(", "), Some(remedy))
}

fn finding(subject: &'static str, health: Health, detail: &str, remedy: Option<String>) -> Finding {
    Finding { subject, health, detail: detail.to_owned(), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernel_is_missing_or_weak_and_the_remedy_says_what_to_install() {
        for (release, health, remedy) in [
            ("6.18.44", Health::Good, ""),
            ("6.6.0-rc1", Health::Good, ""),
            ("6.1.0-18-amd64", Health::Weak, "use a kernel that still gets security fixes"),
            ("5.13", Health::Weak, "use a kernel that still gets security fixes"),
            ("5.10.0-8", Health::Missing, "boxes need Linux 5.13 or later"),
            ("4.19", Health::Missing, "boxes need Linux 5.13 or later"),
            ("unknown", Health::Missing, "boxes need Linux 5.13 or later"),
        ] {
            let found = rate_kernel(release);
            assert_eq!(found.health, health, "{release}");
            assert!(found.remedy.unwrap_or_default().contains(remedy), "{release}");
        }
    }
}
