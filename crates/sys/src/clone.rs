//! Starts a program from a descriptor in new namespaces. See clone3(2), user_namespaces(7).
//!
//! **Invariant:** between `clone3` and `execveat` the child of [`spawn`] only makes raw system calls on
//! memory that the parent prepared. It does not allocate, lock or call glibc wrappers that signal other
//! threads, because the parent can have other threads and the child has only one.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::check;
use crate::exec::exit_now;

/// The flags of clone3(2) for the namespaces that a box gets.
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

/// The descriptor number of the control socket in a program that [`spawn`] starts.
pub const CONTROL_FD: RawFd = 3;

/// The program for [`spawn`], with its namespaces, user ids and descriptors.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// The namespaces that the child gets, as bits of [`namespaces`].
    pub namespaces: u64,
    /// The directory of the cgroup (v2) in which the kernel creates the child.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The pipe on which the child waits for the parent before it continues.
    pub gate: Option<Gate<'a>>,
    /// The user id and group id of the program, as numbered inside the new user namespace.
    pub ids: Option<(u32, u32)>,
    /// The capabilities that the program keeps after `execveat`, as a bit set.
    pub ambient: u64,
    /// The executable file, usually a sealed memfd.
    pub program: BorrowedFd<'a>,
    /// The argument `argv[0]` of the program, its only one: the role that the program takes.
    pub role: &'a CStr,
    /// The whole environment of the program, as `NAME=value`. The program inherits no other
    /// variables.
    pub environment: &'a [&'a CStr],
    /// The socket that becomes descriptor [`CONTROL_FD`] of the program.
    pub control: BorrowedFd<'a>,
    /// The file that becomes descriptors 0, 1 and 2 of the program. The program inherits no further
    /// descriptors.
    pub null: BorrowedFd<'a>,
    /// Whether the kernel kills the program when the calling thread ends.
    pub dies_with_parent: bool,
}

impl<'a> Spawn<'a> {
    /// Describes a program that runs in the caller's namespaces and is killed when the calling thread ends.
    pub const fn without_namespaces(
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

/// A pipe that holds back a new child until the parent writes one byte to it.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    /// The end of the pipe that the child reads one byte from. The child exits if it reads the end
    /// of file instead.
    pub read: BorrowedFd<'a>,
    /// The end of the pipe that the parent writes to. The child closes its copy, so that it sees
    /// the end of file.
    pub write: BorrowedFd<'a>,
}

/// A started child process. Dropping this value does not kill the process or wait for it.
#[derive(Debug)]
pub struct Spawned {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// The step at which a child process failed before exec. The child sends `[step, errno]` over the
/// control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SpawnStep {
    Ids = 1,
    Capabilities = 2,
    Descriptors = 3,
    Exec = 4,
}

impl SpawnStep {
    /// Parses the report of a failed child: the failed step and the error.
    pub fn from_report(bytes: &[u8]) -> Option<(Self, io::Error)> {
        let (&step, errno) = bytes.split_first()?;
        let errno = i32::from_ne_bytes(errno.try_into().ok()?);
        let step = [Self::Ids, Self::Capabilities, Self::Descriptors, Self::Exec]
            .into_iter()
            .find(|known| *known as u8 == step)?;
        Some((step, io::Error::from_raw_os_error(errno)))
    }
}

/// Starts `spawn.program` in a child process and returns without waiting for exec; [`SpawnStep`]
/// reports failures.
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

/// Starts a process that keeps a new user namespace open until the process is killed or its parent dies.
pub fn hold_user_namespace() -> io::Result<Spawned> {
    let parent = std::process::id();
    match clone3(namespaces::USER, None)? {
        Some(child) => Ok(child),
        None => loop {
            die_with_parent();
            // SAFETY: getppid takes nothing and touches no memory.
            let now = unsafe { libc::syscall(libc::SYS_getppid) };
            if u32::try_from(now) != Ok(parent) {
                exit_now(0); // the parent died before PR_SET_PDEATHSIG took effect
            }
            // SAFETY: ppoll with no descriptors and no timeout sleeps until a signal.
            unsafe { libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0, 0) };
        },
    }
}

/// Calls clone3(2). Returns the child in the parent, and `None` in the child.
fn clone3(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Spawned>> {
    let mut pidfd: RawFd = -1;
    let mut flags = namespaces | CLONE_PIDFD;
    let mut cgroup_fd = 0;
    if let Some(fd) = cgroup {
        flags |= CLONE_INTO_CGROUP;
        cgroup_fd = u64::from(fd.as_raw_fd().unsigned_abs());
    }
    // SAFETY: clone_args is plain integers, for which zero is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.pidfd = (&raw mut pidfd).addr() as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    args.cgroup = cgroup_fd;
    // SAFETY: args and the pidfd slot it points to live across the call. Without CLONE_VM the child
    // has its own copy of memory, and both callers make only raw system calls in the child (module docs).
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut args, std::mem::size_of::<libc::clone_args>())
    })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel just stored a new descriptor there, so it has no other owner.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    Ok(Some(Spawned { pid, pidfd }))
}

/// Turns the cloned child process into the program of `spawn`. Returns only on failure, with the
/// failed step and errno.
fn become_program(
    spawn: &Spawn<'_>,
    argv: &[*const libc::c_char; 2],
    environment: &[*const libc::c_char],
) -> (SpawnStep, i32) {
    if spawn.dies_with_parent {
        die_with_parent(); // first, so that a box cannot outlive its supervisor
    }
    if let Some(gate) = spawn.gate
        && !wait_for_gate(gate)
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
            return (SpawnStep::Ids, errno());
        }
        if spawn.dies_with_parent {
            die_with_parent(); // setresuid clears the setting, see PR_SET_PDEATHSIG(2const)
        }
    }
    if spawn.ambient != 0 && !raise_ambient(spawn.ambient) {
        return (SpawnStep::Capabilities, errno());
    }
    // The program can have the number of the control socket or of a stream, which dup3 below replaces.
    // SAFETY: F_DUPFD_CLOEXEC takes integers only.
    let program = unsafe {
        libc::syscall(libc::SYS_fcntl, spawn.program.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 64)
    };
    // SAFETY: dup3 takes integers only; it fails for two equal numbers, which is handled below.
    let placed = unsafe { libc::syscall(libc::SYS_dup3, spawn.control.as_raw_fd(), CONTROL_FD, 0) };
    if placed < 0 {
        // The socket already has this number: only the close-on-exec flag must be cleared.
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
        return (SpawnStep::Descriptors, errno());
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
    (SpawnStep::Exec, errno())
}

/// Asks the kernel to kill this process when the thread that started it ends.
fn die_with_parent() {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes integers only.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Waits in the child until the parent has written the id maps. Returns false if the parent has
/// exited.
fn wait_for_gate(gate: Gate<'_>) -> bool {
    // SAFETY: close takes an integer only. The descriptor is this process's copy of one that the parent
    // owns; the child does not use the copy again before exec.
    unsafe { libc::syscall(libc::SYS_close, gate.write.as_raw_fd()) };
    let mut byte = 0_u8;
    // SAFETY: the buffer is one byte that lives across the call.
    let read = unsafe { libc::syscall(libc::SYS_read, gate.read.as_raw_fd(), &raw mut byte, 1) };
    read == 1
}

/// Makes the capabilities `wanted` ambient, so that a program with a user id other than 0 keeps them
/// after exec. A new user namespace need not have a user id 0.
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
    // SAFETY: version 3 reads one header and two data structs, which both live across the call.
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

/// Sends the failed step and errno over the control socket, then exits with status 125.
fn report_and_exit(control: BorrowedFd<'_>, step: SpawnStep, errno: i32) -> ! {
    let mut report = [step as u8, 0, 0, 0, 0];
    for (slot, byte) in report.iter_mut().skip(1).zip(errno.to_ne_bytes()) {
        *slot = byte;
    }
    // SAFETY: the buffer lives across the call. If the write fails, the parent sees the end of file.
    unsafe { libc::syscall(libc::SYS_write, control.as_raw_fd(), report.as_ptr(), report.len()) };
    exit_now(125)
}
