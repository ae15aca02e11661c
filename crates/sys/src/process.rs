//! Fork, wait, namespaces and memory of this process, where `rustix` has no safe function. See fork(2),
//! wait4(2), unshare(2).

use std::io;
use std::time::Duration;

use crate::check;

/// The result of [`fork`]: whether the caller is now the parent or the child.
#[derive(Debug)]
pub enum Fork {
    Parent { child: i32 },
    Child,
}

/// Forks this process. Fails if it has several threads, because the child could then inherit a lock
/// that no thread of the child ever releases.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: unshare takes integers only. CLONE_SIGHAND changes nothing for a process with one thread
    // and fails for a process with several, so the call checks the number of threads.
    check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_SIGHAND) })?;
    // SAFETY: there is one thread (above), so the child can use all memory and locks of the process.
    let pid = unsafe { libc::fork() };
    match check(pid.into())? {
        0 => Ok(Fork::Child),
        _ => Ok(Fork::Parent { child: pid }),
    }
}

/// Moves this process into a new cgroup namespace, whose root is the current cgroup of the process.
pub fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: unshare takes integers only, and a cgroup namespace shares no memory.
    check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWCGROUP) })?;
    Ok(())
}

/// Creates a time namespace for future children of this process. Its clock offsets can still be set.
pub fn unshare_time_namespace() -> io::Result<()> {
    const CLONE_NEWTIME: libc::c_int = 0x80;
    // SAFETY: unshare takes integers only, and a time namespace shares no memory.
    check(unsafe { libc::syscall(libc::SYS_unshare, CLONE_NEWTIME) })?;
    Ok(())
}

/// Returns freed heap memory to the kernel, so that an idle supervisor uses little memory.
pub fn trim_heap() {
    // SAFETY: malloc_trim takes an integer only and moves nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Locks the current and future pages of this process in memory, so that they are not swapped out.
pub fn lock_memory() -> io::Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: mlockall takes an integer only and changes no memory.
    check(unsafe { libc::mlockall(flags) }.into())?;
    Ok(())
}

/// How a process ended: its exit status, or the signal that killed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signaled(i32),
}

/// The CPU time and peak memory of a process and of the children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
    /// The peak resident memory of the largest of these processes, in bytes.
    pub max_rss_bytes: u64,
}

/// Waits for the child `pid`, or for any child if `pid` is -1. Returns `None` if no child has ended and
/// `block` is false.
pub fn wait(pid: i32, block: bool) -> io::Result<Option<(i32, Ended, Usage)>> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a valid value.
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

/// Returns the resources that this process and the children that it waited for have used so far.
pub fn usage() -> io::Result<Usage> {
    let [own, children] = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(|whose| {
        // SAFETY: rusage is plain integers, for which zero is a valid value.
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

/// Returns the CPU time of all threads of a process, whoever its owner is. See clock_getcpuclockid(3).
///
/// Fails if the process does not exist.
pub fn cpu_time(pid: i32) -> io::Result<Duration> {
    const SCHEDULED: i32 = 2; // the precise clock of the scheduler, `CPUCLOCK_SCHED`
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = (!pid << 3) | SCHEDULED;
    // SAFETY: clock_gettime writes one timespec, which is valid for writing across the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }.into())?;
    let (secs, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Ok(Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "this test starts a child to watch it end")]
    fn cpu_time_grows_while_a_process_runs_and_fails_without_a_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = cpu_time(own).unwrap();
        assert!((0..1_000_000).any(|_| cpu_time(own).unwrap() > before));
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        cpu_time(pid).expect("control: a child that is not reaped still has a clock");
        child.wait().unwrap();
        assert!(cpu_time(pid).is_err(), "the child is reaped");
    }
}
