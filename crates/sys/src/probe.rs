//! Makes arbitrary system calls in a forked child, so that they can only damage this child.
//!
//! `belljar-probe` uses it to request operations that a box must refuse, with any call number and any
//! argument; typed wrappers cannot express such calls. The child makes the calls and exits, so a
//! call that overwrites memory has no effect on the parent. The functions that run in the calling
//! process, which test the lockdown of a broker, change nothing there. The lists of calls are in
//! `crates/probe`, not here.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::check;

/// One argument of a [`Call`].
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    Word(u64),
    /// The argument is the address of a copy of these bytes. Only the child sees what the kernel
    /// writes there.
    Bytes(&'a [u8]),
    /// The argument is the address of a structure of 64-bit fields, which can contain addresses.
    Struct(&'a [Field<'a>]),
    /// The argument is the return value of the call with this index in the same list.
    Result(usize),
}

/// One 64-bit field of an [`Arg::Struct`].
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Word(u64),
    Bytes(&'a [u8]),
}

/// The system call interface through which a call enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// The call uses the 64-bit system call table of this machine.
    Native,
    /// The call enters through `int 0x80`: the 32-bit system call table of an x86-64 kernel. Passes
    /// only the first three arguments.
    Int80,
}

/// One system call, by number, with its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub abi: Abi,
    pub number: i64,
    pub args: [Arg<'a>; 6],
}

/// The result of a list of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All system calls succeeded; the value is the return value of the last one.
    Granted(i64),
    /// The system call with this index failed; the calls after it were not made.
    Refused { index: usize, errno: i32 },
    /// A signal killed the child process; a seccomp filter can do so with `SIGSYS`.
    Killed(i32),
    /// A system call ended the child or replaced its program, which exited with this status.
    Exited(i32),
}

impl Arg<'_> {
    /// Returns a signed argument of a system call, such as the descriptor -1 or `AT_FDCWD`.
    pub const fn int(value: i64) -> Self {
        Self::Word(value.cast_unsigned())
    }
}

impl<'a> Call<'a> {
    /// Returns a native system call with up to six arguments; missing arguments are zero.
    pub fn new(number: i64, given: &[Arg<'a>]) -> Self {
        Self::with_abi(Abi::Native, number, given)
    }

    /// Returns a system call through `abi` with up to six arguments; missing arguments are zero.
    pub fn with_abi(abi: Abi, number: i64, given: &[Arg<'a>]) -> Self {
        let mut args = [Arg::Word(0); 6];
        for (slot, arg) in args.iter_mut().zip(given) {
            *slot = *arg;
        }
        Self { abi, number, args }
    }
}

/// Makes system calls in a child process, in order, until one fails.
pub fn in_child(calls: &[Call<'_>]) -> io::Result<Outcome> {
    if cfg!(not(target_arch = "x86_64")) && calls.iter().any(|call| call.abi == Abi::Int80) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut memory = Memory::default();
    let prepared: Vec<PreparedCall> = calls.iter().map(|call| memory.prepare(call)).collect();
    let mut results = vec![0_i64; calls.len()];
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: fork(2) has no arguments. The child makes system calls on memory prepared above and ends
    // with `_exit`. It takes no lock and does not allocate, so the state of other threads is irrelevant.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => report_and_exit(&prepared, &mut results, writer.as_raw_fd()),
        child => {
            drop(writer);
            let mut report = Vec::new();
            let read = File::from(reader).take(24).read_to_end(&mut report);
            let status = wait_for(child)?;
            drop(memory);
            read?;
            Ok(outcome(&report, status))
        }
    }
}

/// Forks a child process that runs `work`, and returns its wait status. Fails in a process with
/// several threads, because the child could inherit a lock that is never released.
pub fn fork_and_run(work: impl FnOnce() -> u8) -> io::Result<i32> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("cannot fork a process with several threads"));
    }
    // SAFETY: fork(2) has no arguments. The check above showed that there is no other thread, whose locks
    // or partial writes the child could inherit.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(101);
            // SAFETY: `_exit` takes an integer and does not return.
            unsafe { libc::_exit(i32::from(code)) }
        }
        child => Ok(child),
    }
}

/// Forks a child process that exits at once, and waits for it. Tests whether fork is allowed.
pub fn fork_and_exit() -> io::Result<()> {
    // SAFETY: fork(2) has no arguments; the child exits at once and accesses no memory.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => exit(0),
        child => wait_for(child).map(drop),
    }
}

/// Tries to trace a process id that does not exist. Fails with `ESRCH` where ptrace is allowed.
pub fn trace_missing_process() -> io::Result<()> {
    let missing = libc::c_long::from(i32::MAX);
    // SAFETY: PTRACE_ATTACH takes integers only, and no process has this id.
    check(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_ATTACH, missing, 0, 0) })?;
    Ok(())
}

/// Maps an executable page and unmaps it. Tests whether executable memory is allowed.
pub fn map_executable() -> io::Result<()> {
    const PAGE: usize = 4096;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses changes no existing memory.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this is exactly the mapping that was made above, and no reference to it exists.
    check(unsafe { libc::munmap(page, PAGE) }.into())?;
    Ok(())
}

/// Ignores every signal that can be ignored, as a program that resists termination does.
pub fn ignore_every_signal() {
    for number in 1..=64 {
        // SAFETY: SIG_IGN installs no handler. The call fails for signals that cannot be ignored, as the
        // caller expects.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// A system call whose pointer arguments have been converted to addresses.
struct PreparedCall {
    abi: Abi,
    number: i64,
    args: [Slot; 6],
}

/// One argument of a [`PreparedCall`]: a number, or the return value of an earlier call.
#[derive(Clone, Copy)]
enum Slot {
    Word(u64),
    Result(usize),
}

/// Writable copies of the memory that the calls point to. The caller's bytes can be constants, which the
/// kernel cannot write to. The copies have the same addresses in the child.
#[derive(Default)]
struct Memory {
    bytes: Vec<Vec<u8>>,
    layouts: Vec<Vec<u64>>,
}

impl Memory {
    fn prepare(&mut self, call: &Call<'_>) -> PreparedCall {
        let args = call.args.map(|arg| match arg {
            Arg::Word(word) => Slot::Word(word),
            Arg::Bytes(bytes) => Slot::Word(self.copy(bytes)),
            Arg::Struct(fields) => Slot::Word(self.lay_out(fields)),
            Arg::Result(index) => Slot::Result(index),
        });
        PreparedCall { abi: call.abi, number: call.number, args }
    }

    fn copy(&mut self, bytes: &[u8]) -> u64 {
        let copy = bytes.to_vec();
        let at = address(copy.as_ptr());
        self.bytes.push(copy);
        at
    }

    fn lay_out(&mut self, fields: &[Field<'_>]) -> u64 {
        let words: Vec<u64> = fields
            .iter()
            .map(|field| match field {
                Field::Word(word) => *word,
                Field::Bytes(bytes) => self.copy(bytes),
            })
            .collect();
        let at = address(words.as_ptr());
        self.layouts.push(words);
        at
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Makes the prepared system calls, writes the results to the pipe and exits. Runs in the child and
/// does not allocate.
fn report_and_exit(calls: &[PreparedCall], results: &mut [i64], pipe: i32) -> ! {
    let me = std::process::id();
    let mut report = [0_i64; 3];
    for (index, call) in calls.iter().enumerate() {
        let args = call.args.map(|slot| match slot {
            Slot::Word(word) => word,
            Slot::Result(index) => results.get(index).copied().unwrap_or(-1).cast_unsigned(),
        });
        let (value, errno) = match call.abi {
            Abi::Native => native(call.number, args),
            Abi::Int80 => int80(call.number, args),
        };
        if std::process::id() != me {
            exit(0); // The call was a fork, and this process is the new child.
        }
        report = [value, i64::from(errno), i64::try_from(index).unwrap_or(-1)];
        if errno != 0 {
            break;
        }
        if let Some(result) = results.get_mut(index) {
            *result = value;
        }
    }
    // SAFETY: `report` is 24 bytes that live until the call returns; the kernel only reads them.
    unsafe { libc::write(pipe, report.as_ptr().cast(), 24) };
    exit(0)
}

fn exit(code: i32) -> ! {
    // SAFETY: `_exit` takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Makes one system call through the native interface. Returns its value and errno, which is 0 on
/// success.
fn native(number: i64, [a, b, c, d, e, f]: [u64; 6]) -> (i64, i32) {
    // SAFETY: this runs only in the child of `in_child`. A hostile call can write to any memory of that
    // process, which is a copy of the parent. The child then reads only the list of calls, and a child
    // that a call has corrupted is reported as `Killed` or `Exited`.
    let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let errno =
        if value == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
    (value, errno)
}

/// Makes one system call through `int 0x80`. Returns its value and errno, which is 0 on success.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::cast_possible_truncation, reason = "the 32-bit ABI has 32-bit arguments")]
fn int80(number: i64, args: [u64; 6]) -> (i64, i32) {
    let value: i32;
    // SAFETY: as in `native`. LLVM reserves rbx, so the code swaps rbx in and back. The registers that
    // the 32-bit entry does not preserve are declared as outputs.
    unsafe {
        asm!(
            "xchg rbx, {first}",
            "int 0x80",
            "xchg rbx, {first}",
            first = inout(reg) u64::from(args[0] as u32) => _,
            inlateout("eax") number as i32 => value,
            in("ecx") args[1] as u32,
            in("edx") args[2] as u32,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if (-4095..0).contains(&value) { (-1, -value) } else { (i64::from(value), 0) }
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: i64, _: [u64; 6]) -> (i64, i32) {
    (-1, libc::ENOSYS)
}

/// Waits until the child process ends and returns its wait status. Returns its status as waitpid(2)
/// encodes it.
fn wait_for(child: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is an integer that waitpid(2) fills in; `child` is our child and not yet reaped.
        let done = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if done == child {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Decodes the report of the child process, or its wait status if there is no report.
fn outcome(report: &[u8], status: i32) -> Outcome {
    if libc::WIFSIGNALED(status) {
        return Outcome::Killed(libc::WTERMSIG(status));
    }
    let words: Vec<i64> = report
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok())
        .map(i64::from_ne_bytes)
        .collect();
    match words[..] {
        [value, 0, _] => Outcome::Granted(value),
        [_, errno, index] => Outcome::Refused {
            index: usize::try_from(index).unwrap_or(usize::MAX),
            errno: i32::try_from(errno).unwrap_or(libc::EIO),
        },
        _ => Outcome::Exited(libc::WEXITSTATUS(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_child_returns_the_value_of_the_last_call() {
        let path = b"/\0";
        let open = Call::new(
            libc::SYS_openat,
            &[Arg::int(libc::AT_FDCWD.into()), Arg::Bytes(path), Arg::Word(0)],
        );
        let close = Call::new(libc::SYS_close, &[Arg::Result(0)]);
        assert_eq!(in_child(&[open, close]).unwrap(), Outcome::Granted(0));
    }

    #[test]
    fn in_child_returns_the_index_and_errno_of_the_first_failed_call() {
        let fine = Call::new(libc::SYS_getpid, &[]);
        let bad = Call::new(libc::SYS_close, &[Arg::Word(9999)]);
        assert_eq!(
            in_child(&[fine, bad, fine]).unwrap(),
            Outcome::Refused { index: 1, errno: libc::EBADF }
        );
    }

    #[test]
    fn struct_argument_of_a_system_call_can_contain_addresses() {
        let text = b"hello";
        let vector = [Field::Bytes(text), Field::Word(5)];
        let name = b"x\0";
        let make = Call::new(libc::SYS_memfd_create, &[Arg::Bytes(name), Arg::Word(0)]);
        let write =
            Call::new(libc::SYS_writev, &[Arg::Result(0), Arg::Struct(&vector), Arg::Word(1)]);
        assert_eq!(in_child(&[make, write]).unwrap(), Outcome::Granted(5));
    }

    #[test]
    fn in_child_distinguishes_a_killed_child_from_one_that_exits() {
        let pid = Call::new(libc::SYS_getpid, &[]);
        let kill = Call::new(libc::SYS_kill, &[Arg::Result(0), Arg::Word(libc::SIGKILL as u64)]);
        assert_eq!(in_child(&[pid, kill]).unwrap(), Outcome::Killed(libc::SIGKILL));
        let exit = Call::new(libc::SYS_exit_group, &[Arg::Word(7)]);
        assert_eq!(in_child(&[exit]).unwrap(), Outcome::Exited(7));
    }

    #[test]
    fn process_forked_by_a_probed_call_exits_at_once() {
        let fork = Call::new(libc::SYS_clone, &[Arg::Word(libc::SIGCHLD as u64)]);
        assert!(matches!(in_child(&[fork]).unwrap(), Outcome::Granted(pid) if pid > 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn int80_uses_the_32_bit_system_call_numbers() {
        // 20 is getpid for i386 and writev for x86-64. A kernel without 32-bit support kills the child.
        let call = Call::with_abi(Abi::Int80, 20, &[]);
        let outcome = in_child(&[call]).unwrap();
        assert!(
            matches!(outcome, Outcome::Granted(pid) if pid > 0)
                || matches!(outcome, Outcome::Killed(_))
        );
    }

    #[test]
    fn fork_and_run_refuses_a_process_with_several_threads() {
        // The test harness runs each test on a separate thread.
        assert!(fork_and_run(|| 0).is_err());
    }
}
