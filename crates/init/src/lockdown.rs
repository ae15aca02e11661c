//! Drops all privileges of init that the box does not need. The payload inherits these restrictions.
//!
//! Order matters: nested user namespaces first, while the sysctl is still writable, then Landlock, limits
//! and capabilities, and seccomp last, because it forbids the system calls that the others need.

use std::io;

use belljar_sys::capability;
use belljar_sys::landlock::{self, Ruleset, fs, scope};
use belljar_sys::seccomp::{self, Instruction};
use rustix::fs::{CWD, Mode, OFlags};

use crate::plan::{Landlock, Plan, Stage};
use crate::{Context, Failure, display, limits, selftest};

/// Forbids user namespaces inside the box. Needs the host's `/proc`, so it runs before `pivot_root`.
pub(crate) fn forbid_nested_userns() -> Result<(), Failure> {
    std::fs::write("/proc/sys/user/max_user_namespaces", "0")
        .context(Stage::NestedUserns, || "cannot forbid nested user namespaces".to_owned())
}

/// Limits kernel resources that count per user, because the box shares the user id of the operator.
pub(crate) fn limit_user_counters() -> Result<(), Failure> {
    let counters = [
        ("max_inotify_instances", "64"),
        ("max_inotify_watches", "65536"),
        ("max_fanotify_groups", "0"),
    ];
    for (counter, value) in counters {
        match std::fs::write(format!("/proc/sys/user/{counter}"), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // not in this kernel
            done => done.context(Stage::Rlimits, || format!("cannot limit {counter}"))?,
        }
    }
    Ok(())
}

/// Restricts this process with Landlock, limits, capabilities and seccomp. Returns the Landlock
/// ABI, or 0 without Landlock.
pub(crate) fn lock(plan: &Plan) -> Result<u32, Failure> {
    rustix::thread::set_no_new_privs(true)
        .context(Stage::NoNewPrivs, || "cannot set no_new_privs".to_owned())?;
    let abi = plan.landlock.as_ref().map_or(Ok(0), restrict)?;
    if abi > 0 && plan.self_test {
        selftest::landlock_holds()?;
    }
    limits::apply(plan)?;
    drop_capabilities()
        .context(Stage::Capabilities, || "cannot drop all capabilities".to_owned())?;
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
        seccomp::install(&program)
            .context(Stage::Seccomp, || "cannot install the seccomp filter".to_owned())?;
    }
    Ok(abi)
}

/// Enforces the Landlock rules on this process and returns the Landlock version. Returns the
/// Landlock ABI of the kernel.
fn restrict(rules: &Landlock) -> Result<u32, Failure> {
    let abi = landlock::abi()
        .context(Stage::Landlock, || "cannot read the Landlock version of the kernel".to_owned())?;
    let known = fs::all(abi);
    let read = fs::READ_FILE | fs::READ_DIR | fs::EXECUTE;
    let devices = fs::READ_FILE | fs::WRITE_FILE | fs::READ_DIR | fs::IOCTL_DEV;
    let write = known & !(fs::MAKE_CHAR | fs::MAKE_BLOCK | fs::IOCTL_DEV);
    let scopes = if abi >= 6 { scope::ABSTRACT_UNIX_SOCKET | scope::SIGNAL } else { 0 };
    let ruleset = Ruleset::new(known, scopes)
        .context(Stage::Landlock, || "cannot create a Landlock ruleset".to_owned())?;
    let allow = |path: &[u8], rights: u64| {
        let allowed = || -> io::Result<()> {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&opened)?;
            // The kernel refuses rights of directories in a rule for a file.
            let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
            let of_files =
                fs::READ_FILE | fs::WRITE_FILE | fs::EXECUTE | fs::TRUNCATE | fs::IOCTL_DEV;
            let rights = if is_dir { rights } else { rights & of_files };
            ruleset.allow(std::os::fd::AsFd::as_fd(&opened), rights & known)
        };
        allowed().context(Stage::Landlock, || {
            format!("cannot add a Landlock rule for {}", display(path))
        })
    };
    allow(b"/", read)?;
    rules.devices.iter().try_for_each(|path| allow(path, devices))?;
    rules.writable.iter().try_for_each(|path| allow(path, write))?;
    ruleset.restrict_self().context(Stage::Landlock, || "cannot enforce Landlock".to_owned())?;
    Ok(abi)
}

fn drop_capabilities() -> io::Result<()> {
    capability::forbid_regaining()?;
    capability::clear()
}
