//! Takes away, from init and so from the payload, everything that the box does not need.
//!
//! Order matters: nested user namespaces while we may still write the sysctl, then Landlock, limits
//! and capabilities, and seccomp last because it forbids the calls that the others are made with.

use std::io;

use belljar_sys::capability;
use belljar_sys::landlock::{self, Ruleset, fs, scope};
use belljar_sys::seccomp::{self, Instruction};
use rustix::fs::{CWD, Mode, OFlags};

use crate::plan::{Landlock, Plan, Stage};
use crate::{During, Failure, limits, selftest, show};

/// Forbids user namespaces inside this one; needs the host's `/proc`, so before `pivot_root`.
pub(crate) fn forbid_nested_userns() -> Result<(), Failure> {
    std::fs::write("/proc/sys/user/max_user_namespaces", "0")
        .during(Stage::NestedUserns, || "forbid nested user namespaces".to_owned())
}

/// Keeps the box from using up what the kernel counts per user, which outside is the operator.
pub(crate) fn limit_user_counters() -> Result<(), Failure> {
    let counters = [
        ("max_inotify_instances", "64"),
        ("max_inotify_watches", "65536"),
        ("max_fanotify_groups", "0"),
    ];
    for (counter, value) in counters {
        match std::fs::write(format!("/proc/sys/user/{counter}"), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // not in this kernel
            done => done.during(Stage::Rlimits, || format!("limit {counter}"))?,
        }
    }
    Ok(())
}

/// All the rest. Returns the Landlock ABI in force, 0 when it was weakened.
pub(crate) fn lock(plan: &Plan) -> Result<u32, Failure> {
    rustix::thread::set_no_new_privs(true)
        .during(Stage::NoNewPrivs, || "set no_new_privs".to_owned())?;
    let abi = plan.landlock.as_ref().map_or(Ok(0), restrict)?;
    if abi > 0 && plan.self_test {
        selftest::landlock_holds()?;
    }
    limits::apply(plan)?;
    drop_capabilities().during(Stage::Capabilities, || "drop all capabilities".to_owned())?;
    if let Some(filter) = &plan.seccomp {
        let program: Vec<Instruction> = filter
            .iter()
            .map(|(code, jump_true, jump_false, k)| Instruction {
                code: *code,
                jump_true: *jump_true,
                jump_false: *jump_false,
                k: *k,
            })
            .collect();
        seccomp::install(&program).during(Stage::Seccomp, || "install the filter".to_owned())?;
    }
    Ok(abi)
}

fn restrict(rules: &Landlock) -> Result<u32, Failure> {
    let abi =
        landlock::abi().during(Stage::Landlock, || "find Landlock in the kernel".to_owned())?;
    let known = fs::all(abi);
    let read = fs::READ_FILE | fs::READ_DIR | fs::EXECUTE;
    let devices = fs::READ_FILE | fs::WRITE_FILE | fs::READ_DIR | fs::IOCTL_DEV;
    let write = known & !(fs::MAKE_CHAR | fs::MAKE_BLOCK | fs::IOCTL_DEV);
    let scopes = if abi >= 6 { scope::ABSTRACT_UNIX_SOCKET | scope::SIGNAL } else { 0 };
    let ruleset =
        Ruleset::new(known, scopes).during(Stage::Landlock, || "create a ruleset".to_owned())?;
    let allow = |path: &[u8], rights: u64| {
        let allowed = || -> io::Result<()> {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let place = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&place)?;
            // On a file only rights that files have are accepted.
            let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
            let of_files =
                fs::READ_FILE | fs::WRITE_FILE | fs::EXECUTE | fs::TRUNCATE | fs::IOCTL_DEV;
            let rights = if is_dir { rights } else { rights & of_files };
            ruleset.allow(std::os::fd::AsFd::as_fd(&place), rights & known)
        };
        allowed().during(Stage::Landlock, || format!("allow {}", show(path)))
    };
    allow(b"/", read)?;
    rules.devices.iter().try_for_each(|path| allow(path, devices))?;
    rules.writable.iter().try_for_each(|path| allow(path, write))?;
    ruleset.restrict_self().during(Stage::Landlock, || "restrict".to_owned())?;
    Ok(abi)
}

fn drop_capabilities() -> io::Result<()> {
    capability::forbid_regaining()?;
    capability::clear()
}
