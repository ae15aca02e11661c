//! Forking, waiting and groups, where `rustix` has no safe form. See fork(2), wait4(2).

use std::io;
use std::time::Duration;

use crate::check;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Fork {
    Parent { child: i32 },
    Child,
}

/// Forks a process that has one thread; with more it refuses, because the child of a process with
/// threads may find any lock held for ever.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: unshare takes integers only. CLONE_SIGHAND changes nothing for a process with one
    // thread and is refused for one with more, which is the question we ask.
    check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_SIGHAND) })?;
    // SAFETY: there is one thread (above), so the child may go on using all of the process.
    let pid = unsafe { libc::fork() };
    match check(pid.into())? {
        0 => Ok(Fork::Child),
        _ => Ok(Fork::Parent { child: pid }),
    }
}

/// Makes the cgroup that this process is in the root of what it sees of cgroups.
pub fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: unshare takes integers only, and a cgroup namespace shares no memory.
    check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWCGROUP) })?;
    Ok(())
}

/// Gives the children of this process a time namespace of their own, whose clocks can still be set.
pub fn unshare_time_namespace() -> io::Result<()> {
    const CLONE_NEWTIME: libc::c_int = 0x80;
    // SAFETY: unshare takes integers only, and a time namespace shares no memory.
    check(unsafe { libc::syscall(libc::SYS_unshare, CLONE_NEWTIME) })?;
    Ok(())
}

/// Gives memory that was freed back to the kernel. A supervisor waits for long and needs little.
pub fn trim_heap() {
    // SAFETY: malloc_trim takes an integer only and moves nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Keeps all pages of this process that are ever used in memory, off the swap.
pub fn lock_memory() -> io::Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: mlockall takes an integer only and changes no memory.
    check(unsafe { libc::mlockall(flags) }.into())?;
    Ok(())
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signaled(i32),
}

/// What a process and the children it waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
    /// Resident memory of the largest of them.
    pub max_rss_bytes: u64,
}

/// Waits for the child `pid`, or for any child when it is -1. `None`: no child has ended.
pub fn wait(pid: i32, block: bool) -> io::Result<Option<(i32, Ended, Usage)>> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let options = if block { 0 } else { libc::WNOHANG };
    // SAFETY: both out-pointers are valid for writing across the call.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
    let reaped = i32::try_from(check(reaped.into())?).map_err(io::Error::other)?;
    if reaped == 0 {
        return Ok(None);
    }
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signaled(libc::WTERMSIG(status))
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    };
    Ok(Some((reaped, ended, usage.into())))
}

/// What this process and the children it waited for have used so far.
pub fn usage() -> io::Result<Usage> {
    let [own, children] = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(|whose| {
        // SAFETY: rusage is plain integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the out-pointer is valid for writing across the call.
        check(unsafe { libc::getrusage(whose, &raw mut usage) }.into())?;
        Ok::<Usage, io::Error>(usage.into())
    });
    let (own, children) = (own?, children?);
    Ok(Usage {
        user: own.user + children.user,
        system: own.system + children.system,
        max_rss_bytes: own.max_rss_bytes.max(children.max_rss_bytes),
    })
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Self {
        Self {
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
}
