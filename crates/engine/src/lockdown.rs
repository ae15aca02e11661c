//! Removes all rights of a host process before it reads any byte from a box: the broker or the screen.
//!
//! A broker holds secrets and parses data of hostile programs. An attacker who takes over the broker must
//! not reach any file, program, other process, capability or core dump. A process that cannot be locked
//! down does not serve its box.

pub mod trial;

use std::io;

use anyhow::{Context as _, ensure};
use belljar_sys::landlock::{self, Ruleset, fs, scope};
use belljar_sys::{capability, process, seccomp};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid};
use rustix::rand::GetRandomFlags;
use rustix::thread::CapabilitySet;

/// The first of the user ids for brokers that root starts. Boxes use other user ids.
const FIRST_BROKER_ID: u32 = 0x7100_0000;

/// The maximum number of open files of a broker: a few for each concurrent connection.
const MAX_FILES: u64 = 4096;

/// The memory limit of a broker, which is more than all connections together need.
const MAX_BROKER_MEMORY: u64 = 1 << 30; // bytes

/// The memory limit of a screen, which is more than its scrollback buffer can need.
const MAX_SCREEN_MEMORY: u64 = 512 << 20; // bytes

/// The role of a process that is locked down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockedRole {
    /// A broker: connects to upstreams and holds secrets.
    Broker,
    /// A screen: uses only the sockets it was given, and holds terminal output of a box.
    Screen,
}

/// Locks this process down permanently. Returns warnings for the operator.
///
/// The process must have a single thread, because the restrictions apply to the calling thread and its
/// descendants only.
pub fn enter(role: LockedRole) -> anyhow::Result<Vec<String>> {
    let threads = std::fs::read_dir("/proc/self/task")
        .context("cannot count the threads of the process")?
        .count();
    ensure!(threads == 1, "cannot lock down the process: it has {threads} threads instead of one");
    let filter = match role {
        LockedRole::Broker => belljar_box::broker_filter(),
        LockedRole::Screen => belljar_box::screen_filter(),
    };
    let filter = filter.with_context(|| {
        format!("no seccomp filter exists for the architecture {}", std::env::consts::ARCH)
    })?;
    let no_landlock = "the kernel does not support Landlock, which a broker requires: boot with `lsm=landlock,…`, or use `--net none`";
    let abi = landlock::abi().context(no_landlock)?;
    let rules = deny_all_files(abi).context(no_landlock)?;
    let remarks = match role {
        LockedRole::Broker => {
            lock_memory(&std::fs::read_to_string("/proc/swaps").unwrap_or_default())
        }
        LockedRole::Screen => Vec::new(),
    };
    raise_file_limit();
    drop_privileges().context("cannot drop the privileges of the process")?;
    forbid_core_dumps().context("cannot forbid core dumps")?;
    limit_memory(role).context("cannot limit the memory of the process")?;
    rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")?;
    rules.restrict_self().context(no_landlock)?;
    seccomp::install(&filter).context("cannot install the seccomp filter")?;
    self_test()?;
    Ok(remarks)
}

/// Returns a Landlock ruleset that denies every file access that the kernel can restrict.
fn deny_all_files(abi: u32) -> io::Result<Ruleset> {
    let scopes = if abi >= 6 { scope::ABSTRACT_UNIX_SOCKET | scope::SIGNAL } else { 0 };
    Ruleset::new(fs::all(abi), scopes)
}

/// Locks the memory of the process so that secrets are never written to swap. Returns warnings.
///
/// Only pages in use are locked, so the lock costs no extra memory.
fn lock_memory(swaps: &str) -> Vec<String> {
    let maximum = rustix::process::getrlimit(Resource::Memlock).maximum;
    // Root removes the limit now, because later mappings count as well, and the process is not root then.
    let unlimited = Rlimit { current: None, maximum: None };
    if rustix::process::setrlimit(Resource::Memlock, unlimited).is_err() {
        let raised = Rlimit { current: maximum, maximum };
        rustix::process::setrlimit(Resource::Memlock, raised).ok(); // on failure the old limit applies
    }
    // With a limit, a later allocation could exceed it and fail, so lock memory only without a limit.
    let limited = rustix::process::getrlimit(Resource::Memlock).current.is_some();
    let locked = !limited && process::lock_memory().is_ok();
    let has_swap = swaps.lines().count() > 1;
    if locked || !has_swap {
        return Vec::new();
    }
    vec![
        "cannot lock the memory of the broker, so secrets may be written to swap: set `ulimit -l unlimited`, or encrypt the swap"
            .to_owned(),
    ]
}

/// Raises the limit of open files, because a box could use up the usual 1024.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let target = limit.maximum.map_or(MAX_FILES, |maximum| maximum.min(MAX_FILES));
    if limit.current.is_some_and(|current| current < target) {
        let raised = Rlimit { current: Some(target), maximum: Some(target) };
        // On failure the broker serves fewer connections at once.
        rustix::process::setrlimit(Resource::Nofile, raised).ok();
    }
}

/// Clears all capabilities. A root process also changes to a random user id that no other process has.
fn drop_privileges() -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?.effective;
    if held.contains(CapabilitySet::SETPCAP) {
        capability::forbid_regaining()?;
    }
    if rustix::process::geteuid().is_root() {
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
        let id = FIRST_BROKER_ID | (u32::from_ne_bytes(random) & 0x00ff_ffff);
        // A change of the user id clears the parent death signal, so set the signal again afterwards.
        let death_signal = rustix::process::parent_process_death_signal()?;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        rustix::process::set_parent_process_death_signal(death_signal)?;
    }
    capability::clear()?;
    let left = rustix::thread::capabilities(None)?;
    if !(left.effective | left.permitted | left.inheritable).is_empty() {
        return Err(Errno::PERM.into());
    }
    Ok(())
}

/// Limits the memory of the process.
///
/// Normal use stays far below the limit. A broker that exceeds it is aborted: then its box loses the
/// network, but the host does not run out of memory.
fn limit_memory(role: LockedRole) -> io::Result<()> {
    let bytes = match role {
        LockedRole::Broker => MAX_BROKER_MEMORY,
        LockedRole::Screen => MAX_SCREEN_MEMORY,
    };
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    Ok(rustix::process::setrlimit(Resource::Data, limit)?)
}

/// Forbids core dumps, and access to the memory by other processes of the same user.
fn forbid_core_dumps() -> io::Result<()> {
    // The limit is 1, because with 0 the kernel still pipes core dumps to a program, see core(5).
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    rustix::process::setrlimit(Resource::Core, one)?;
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Checks that opening a file fails now, because a kernel may silently lack a restriction.
fn self_test() -> anyhow::Result<()> {
    let opened = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    ensure!(
        opened.err() == Some(Errno::PERM),
        "the lockdown is not effective: the process can still open a file"
    );
    Ok(())
}
