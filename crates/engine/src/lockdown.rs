//! Locks a process beside the box in before it meets a single byte of it: the broker, or the one that
//! keeps the screen.
//!
//! A broker holds secrets and reads what hostile programs say, so whoever takes it over must find nothing:
//! no file, no program, no other process, no capability, no memory image. A process that cannot be
//! locked in does not serve.

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

/// First of the user ids that root gives to its brokers: beside those of its boxes.
const BROKER_IDS: u32 = 0x7100_0000;

/// More than a broker can use: a few for each connection that it takes at once.
const MAX_FILES: u64 = 4096;

/// More than a broker needs: what is held, and what is under way on all connections at once.
const MAX_MEMORY: u64 = 1 << 30; // bytes

/// More than a screen needs with all lines that scrolled away, however wide.
const MAX_SCREEN: u64 = 512 << 20; // bytes

/// Who is locked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockedRole {
    /// Speaks to the world, and holds secrets.
    Broker,
    /// Speaks over the sockets that it is handed, and holds what a box wrote.
    Screen,
}

/// Locks this process in, for good. Returns what the operator should know about the result.
///
/// The process must have one thread: what follows holds for a thread and those it starts.
pub fn enter(whom: LockedRole) -> anyhow::Result<Vec<String>> {
    let threads = std::fs::read_dir("/proc/self/task").context("count the threads")?.count();
    ensure!(threads == 1, "there are {threads} threads, and only one would be locked in");
    let filter = match whom {
        LockedRole::Broker => belljar_box::broker_filter(),
        LockedRole::Screen => belljar_box::screen_filter(),
    };
    let filter = filter
        .with_context(|| format!("there is no seccomp table for {}", std::env::consts::ARCH))?;
    let no_landlock = "Landlock, without which a broker does not serve: boot with `lsm=landlock,…`, or use `--net none`";
    let abi = landlock::abi().context(no_landlock)?;
    let rules = no_files(abi).context(no_landlock)?;
    let remarks = match whom {
        LockedRole::Broker => {
            lock_memory(&std::fs::read_to_string("/proc/swaps").unwrap_or_default())
        }
        LockedRole::Screen => Vec::new(),
    };
    allow_descriptors();
    become_nobody().context("give up every right")?;
    leave_no_image().context("forbid images of the memory")?;
    bound_memory(whom).context("bound the memory")?;
    rustix::thread::set_no_new_privs(true).context("set no_new_privs")?;
    rules.restrict_self().context(no_landlock)?;
    seccomp::install(&filter).context("install the seccomp filter")?;
    self_test()?;
    Ok(remarks)
}

/// A ruleset that handles all there is and allows none of it.
fn no_files(abi: u32) -> io::Result<Ruleset> {
    let scopes = if abi >= 6 { scope::ABSTRACT_UNIX_SOCKET | scope::SIGNAL } else { 0 };
    Ruleset::new(fs::all(abi), scopes)
}

/// Keeps secrets off the swap. Only pages that are used are locked, so this costs nothing.
fn lock_memory(swaps: &str) -> Vec<String> {
    let most = rustix::process::getrlimit(Resource::Memlock).maximum;
    // Root may raise it, and must: what the process maps later counts too, and it is not root then.
    let unlimited = Rlimit { current: None, maximum: None };
    if rustix::process::setrlimit(Resource::Memlock, unlimited).is_err() {
        let raised = Rlimit { current: most, maximum: most };
        rustix::process::setrlimit(Resource::Memlock, raised).ok(); // then what is allowed now
    }
    // A limit that holds today's memory may not hold tomorrow's, and then the broker would fall over.
    let limited = rustix::process::getrlimit(Resource::Memlock).current.is_some();
    let locked = !limited && process::lock_memory().is_ok();
    let has_swap = swaps.lines().count() > 1;
    if locked || !has_swap {
        return Vec::new();
    }
    vec![
        "the broker's memory could not be locked, so secrets may reach the swap: raise `ulimit -l` to unlimited, or encrypt the swap"
            .to_owned(),
    ]
}

/// As many descriptors as there may be: a box could use up the usual thousand.
fn allow_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(MAX_FILES, |most| most.min(MAX_FILES));
    if limit.current.is_some_and(|current| current < most) {
        let raised = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(Resource::Nofile, raised).ok(); // then fewer are served at once
    }
}

/// Root becomes a user whom nobody else is; everybody loses capabilities.
fn become_nobody() -> io::Result<()> {
    let held = rustix::thread::capabilities(None)?.effective;
    if held.contains(CapabilitySet::SETPCAP) {
        capability::forbid_regaining()?;
    }
    if rustix::process::geteuid().is_root() {
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
        let id = BROKER_IDS | (u32::from_ne_bytes(random) & 0x00ff_ffff);
        // Changing the user id makes the kernel forget what is to happen when the supervisor dies.
        let death = rustix::process::parent_process_death_signal()?;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        rustix::process::set_parent_process_death_signal(death)?;
    }
    capability::clear()?;
    let left = rustix::thread::capabilities(None)?;
    if !(left.effective | left.permitted | left.inheritable).is_empty() {
        return Err(Errno::PERM.into());
    }
    Ok(())
}

/// Bounds the memory. Windows and buffers are bounded far below it; a broker that a box drives beyond
/// falls over, and then that box is in the dark, not the machine out of memory.
fn bound_memory(whom: LockedRole) -> io::Result<()> {
    let most = match whom {
        LockedRole::Broker => MAX_MEMORY,
        LockedRole::Screen => MAX_SCREEN,
    };
    let most = Rlimit { current: Some(most), maximum: Some(most) };
    Ok(rustix::process::setrlimit(Resource::Data, most)?)
}

/// No core file, and no look into this memory by others of the same user.
fn leave_no_image() -> io::Result<()> {
    // Not 0: the kernel still dumps into a program then, see core(5).
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    rustix::process::setrlimit(Resource::Core, one)?;
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Tries what must not work. A kernel may leave a layer silently absent.
fn self_test() -> anyhow::Result<()> {
    let opened = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    ensure!(opened.err() == Some(Errno::PERM), "the lock does not hold: a file can be opened");
    Ok(())
}
