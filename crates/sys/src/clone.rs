//! Starts a program from a descriptor in new namespaces. See clone3(2), user_namespaces(7).
//!
//! The child of [`spawn`] is a copy of a process that may have had threads, so between `clone3` and
//! `execveat` it makes raw system calls on memory prepared beforehand and nothing else: no
//! allocation, no locks, no glibc wrappers that signal other threads.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::check;
use crate::exec::exit_now;

/// The namespaces that a box gets, as clone3 flags.
pub mod namespaces {
    pub const USER: u64 = libc::CLONE_NEWUSER as u64;
    pub const MOUNT: u64 = libc::CLONE_NEWNS as u64;
    pub const PID: u64 = libc::CLONE_NEWPID as u64;
    pub const NET: u64 = libc::CLONE_NEWNET as u64;
    pub const IPC: u64 = libc::CLONE_NEWIPC as u64;
    pub const UTS: u64 = libc::CLONE_NEWUTS as u64;
}

const CLONE_PIDFD: u64 = libc::CLONE_PIDFD as u64;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Where the child puts the control socket before it executes the program.
pub const CONTROL_FD: RawFd = 3;

/// What [`spawn`] is to start and how.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// Bits of [`namespaces`].
    pub namespaces: u64,
    /// cgroup v2: the directory in which the child is born.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The child waits here before it goes on.
    pub gate: Option<Gate<'a>>,
    /// Ids to become, as seen inside the new user namespace.
    pub ids: Option<(u32, u32)>,
    /// Capabilities that must survive the `execveat`, as a bit set.
    pub ambient: u64,
    /// The program, usually a sealed memfd.
    pub program: BorrowedFd<'a>,
    /// Its only argument: what it is to be.
    pub role: &'a CStr,
    /// Its environment: `NAME=value` each. Nothing of ours is inherited.
    pub environment: &'a [&'a CStr],
    /// Becomes descriptor [`CONTROL_FD`] of the program.
    pub control: BorrowedFd<'a>,
    /// Becomes its descriptors 0, 1 and 2; beside these four it has none.
    pub null: BorrowedFd<'a>,
    /// Whether the end of the calling thread is also the end of the program.
    pub dies_with_parent: bool,
}

impl<'a> Spawn<'a> {
    /// A program beside us: no namespaces, no other ids, and it ends with the thread that starts it.
    pub const fn beside(
        program: BorrowedFd<'a>,
        role: &'a CStr,
        control: BorrowedFd<'a>,
        null: BorrowedFd<'a>,
    ) -> Self {
        Self {
            namespaces: 0,
            cgroup: None,
            gate: None,
            ids: None,
            ambient: 0,
            program,
            role,
            environment: &[],
            control,
            null,
            dies_with_parent: true,
        }
    }
}

/// A pipe through which the parent lets its child go on, or by its own end lets it end.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    /// The child reads one byte here.
    pub read: BorrowedFd<'a>,
    /// The parent writes it here. The child closes its copy, or it would never see the end.
    pub write: BorrowedFd<'a>,
}

/// A child that was started. Dropping this neither kills nor waits.
#[derive(Debug)]
pub struct Spawned {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// Where the child was when it failed; it sends `[step, errno]` over the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    Ids = 1,
    Capabilities = 2,
    Descriptors = 3,
    Exec = 4,
}

impl Step {
    /// Reads what a failed child left behind: its step and the error number.
    pub fn from_report(bytes: &[u8]) -> Option<(Self, io::Error)> {
        let (&step, errno) = bytes.split_first()?;
        let errno = i32::from_ne_bytes(errno.try_into().ok()?);
        let step = [Self::Ids, Self::Capabilities, Self::Descriptors, Self::Exec]
            .into_iter()
            .find(|known| *known as u8 == step)?;
        Some((step, io::Error::from_raw_os_error(errno)))
    }
}

/// Starts `spawn.program` and returns at once; see [`Step`] for how failure shows.
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<Spawned> {
    let argv = [spawn.role.as_ptr(), std::ptr::null()];
    let variables = spawn.environment.iter().map(|variable| variable.as_ptr());
    let environment: Vec<*const libc::c_char> =
        variables.chain(std::iter::once(std::ptr::null())).collect();
    match clone3(spawn.namespaces, spawn.cgroup)? {
        Some(child) => Ok(child),
        None => {
            let (step, errno) = become_program(spawn, &argv, &environment);
            report_and_exit(spawn.control, step, errno)
        }
    }
}

/// A process that only holds a new user namespace until it is killed or its parent dies.
pub fn hold_user_namespace() -> io::Result<Spawned> {
    let parent = std::process::id();
    match clone3(namespaces::USER, None)? {
        Some(child) => Ok(child),
        None => loop {
            die_with_parent();
            // SAFETY: getppid takes nothing and touches no memory.
            let now = unsafe { libc::syscall(libc::SYS_getppid) };
            if u32::try_from(now) != Ok(parent) {
                exit_now(0); // it was gone before we could ask to go with it
            }
            // SAFETY: ppoll with no descriptors and no timeout sleeps until a signal.
            unsafe { libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0, 0) };
        },
    }
}

/// Both sides of the clone: the child in the parent, `None` in the child.
fn clone3(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Spawned>> {
    let mut pidfd: RawFd = -1;
    let mut flags = namespaces | CLONE_PIDFD;
    let mut cgroup_fd = 0;
    if let Some(fd) = cgroup {
        flags |= CLONE_INTO_CGROUP;
        cgroup_fd = u64::from(fd.as_raw_fd().unsigned_abs());
    }
    // SAFETY: clone_args is plain integers, for which zero is a value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.pidfd = (&raw mut pidfd).addr() as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    args.cgroup = cgroup_fd;
    // SAFETY: args and the pidfd slot it points to live across the call. Without CLONE_VM the child
    // has its own copy of memory, and both callers keep it to raw system calls (module docs).
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut args, std::mem::size_of::<libc::clone_args>())
    })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel just stored a new descriptor there, so nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    Ok(Some(Spawned { pid, pidfd }))
}

/// Everything between clone and exec, in the child. Returns only what went wrong.
fn become_program(
    spawn: &Spawn<'_>,
    argv: &[*const libc::c_char; 2],
    environment: &[*const libc::c_char],
) -> (Step, i32) {
    if spawn.dies_with_parent {
        die_with_parent(); // supervisor gone means box gone, from the first moment on
    }
    if let Some(gate) = spawn.gate
        && !gate_opens(gate)
    {
        exit_now(0);
    }
    if let Some((uid, gid)) = spawn.ids {
        // SAFETY: setgroups with size 0 reads no memory.
        unsafe { libc::syscall(libc::SYS_setgroups, 0, 0) };
        // SAFETY: setresgid takes integers only.
        let gids = unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) };
        // SAFETY: setresuid takes integers only.
        let uids = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
        if gids != 0 || uids != 0 {
            return (Step::Ids, errno());
        }
        if spawn.dies_with_parent {
            die_with_parent(); // a change of ids has cleared it
        }
    }
    if spawn.ambient != 0 && !raise_ambient(spawn.ambient) {
        return (Step::Capabilities, errno());
    }
    // The program must not sit in the way of the descriptor that we are about to place.
    // SAFETY: F_DUPFD_CLOEXEC takes integers only.
    let program = unsafe {
        libc::syscall(libc::SYS_fcntl, spawn.program.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 64)
    };
    // SAFETY: dup3 takes integers only; equal descriptors are refused and handled below.
    let placed = unsafe { libc::syscall(libc::SYS_dup3, spawn.control.as_raw_fd(), CONTROL_FD, 0) };
    if placed < 0 {
        // Already in its place: only the close-on-exec flag has to go.
        // SAFETY: F_SETFD takes integers only.
        unsafe { libc::syscall(libc::SYS_fcntl, CONTROL_FD, libc::F_SETFD, 0) };
    }
    for stream in 0..CONTROL_FD {
        // SAFETY: dup3 takes integers only.
        unsafe { libc::syscall(libc::SYS_dup3, spawn.null.as_raw_fd(), stream, 0) };
    }
    // SAFETY: close_range takes integers only; CLOEXEC keeps the descriptors valid until exec.
    let closed = unsafe {
        libc::syscall(libc::SYS_close_range, CONTROL_FD + 1, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if program < 0 || closed != 0 {
        return (Step::Descriptors, errno());
    }
    // SAFETY: the path is an empty C string, argv and the environment are null-terminated arrays of
    // C strings that outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program,
            c"".as_ptr(),
            argv.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    (Step::Exec, errno())
}

fn die_with_parent() {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes integers only.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Waits until the parent has written the id maps. False when the parent is gone.
fn gate_opens(gate: Gate<'_>) -> bool {
    // SAFETY: close takes an integer only. It is this process's copy of a descriptor that the parent
    // owns; nothing here uses it again before the program starts.
    unsafe { libc::syscall(libc::SYS_close, gate.write.as_raw_fd()) };
    let mut byte = 0_u8;
    // SAFETY: the buffer is one byte that lives across the call.
    let read = unsafe { libc::syscall(libc::SYS_read, gate.read.as_raw_fd(), &raw mut byte, 1) };
    read == 1
}

/// Makes `wanted` inheritable and ambient: exec takes capabilities from everyone but uid 0, and
/// inside the new user namespace there may be no uid 0.
fn raise_ambient(wanted: u64) -> bool {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522; // _LINUX_CAPABILITY_VERSION_3: two 32-bit halves
    let half = |shift: u32| {
        let bits = u32::try_from((wanted >> shift) & u64::from(u32::MAX)).unwrap_or(0);
        Data { effective: bits, permitted: bits, inheritable: bits }
    };
    let header = Header { version: VERSION_3, pid: 0 };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads one header and two data structs, which is what is there.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    let raised = (0..64).filter(|bit| wanted & (1 << bit) != 0).all(|bit: u32| {
        // SAFETY: PR_CAP_AMBIENT_RAISE takes integers only.
        let raised = unsafe {
            libc::syscall(
                libc::SYS_prctl,
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                bit,
                0,
                0,
            )
        };
        raised == 0
    });
    set == 0 && raised
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn report_and_exit(control: BorrowedFd<'_>, step: Step, errno: i32) -> ! {
    let mut report = [step as u8, 0, 0, 0, 0];
    for (slot, byte) in report.iter_mut().skip(1).zip(errno.to_ne_bytes()) {
        *slot = byte;
    }
    // SAFETY: the buffer lives across the call; when the write fails the end of file tells.
    unsafe { libc::syscall(libc::SYS_write, control.as_raw_fd(), report.as_ptr(), report.len()) };
    exit_now(125)
}
