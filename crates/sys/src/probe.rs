//! Hostile system calls, made where they can hurt nobody but the child that makes them.
//!
//! For `belljar-probe`: it asks the kernel for things that a box must refuse, with any number and
//! any argument, which no typed wrapper would let through. Every such call happens in a forked child
//! that makes nothing but system calls and leaves, so whatever a call does to memory, nobody sees it.
//! The few that are made in this very process, for the trial of a broker's jail, do nothing there.
//! No act is named here; the lists of calls are the probe's.

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
    /// The address of these bytes. What the kernel writes there, only the child sees.
    Bytes(&'a [u8]),
    /// The address of a structure of 64-bit fields, some of which are addresses themselves.
    Struct(&'a [Field<'a>]),
    /// What an earlier call of the same list returned, counted from zero.
    Result(usize),
}

/// One 64-bit field of an [`Arg::Struct`].
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Word(u64),
    Bytes(&'a [u8]),
}

/// By which door a call enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Native,
    /// `int 0x80`: the 32-bit table of an x86-64 kernel. Only the first three arguments are passed.
    Int80,
}

/// One system call by number.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub door: Door,
    pub number: i64,
    pub args: [Arg<'a>; 6],
}

/// How a list of calls ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All were granted; what the last one returned.
    Granted(i64),
    /// The call at this place of the list was refused; those after it were not made.
    Refused { place: usize, errno: i32 },
    /// A signal ended the child, as a seccomp filter does with `SIGSYS`.
    Killed(i32),
    /// A call replaced or ended the program of the child, which then left with this code.
    Left(i32),
}

impl Arg<'_> {
    /// A signed number, such as the descriptor -1 or `AT_FDCWD`.
    pub const fn int(value: i64) -> Self {
        Self::Word(value.cast_unsigned())
    }
}

impl<'a> Call<'a> {
    /// A native call with up to six arguments; the missing ones are zero.
    pub fn new(number: i64, given: &[Arg<'a>]) -> Self {
        Self::through(Door::Native, number, given)
    }

    /// The same by any door.
    pub fn through(door: Door, number: i64, given: &[Arg<'a>]) -> Self {
        let mut args = [Arg::Word(0); 6];
        for (slot, arg) in args.iter_mut().zip(given) {
            *slot = *arg;
        }
        Self { door, number, args }
    }
}

/// Makes the calls one after the other in a child, until one is refused.
pub fn in_child(calls: &[Call<'_>]) -> io::Result<Ending> {
    if cfg!(not(target_arch = "x86_64")) && calls.iter().any(|call| call.door == Door::Int80) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut memory = Memory::default();
    let ready: Vec<Ready> = calls.iter().map(|call| memory.prepare(call)).collect();
    let mut results = vec![0_i64; calls.len()];
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: fork(2) takes nothing. The child makes system calls on memory laid out above and leaves
    // with `_exit`: it takes no lock and allocates nothing, so other threads' state does not matter.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => report_and_leave(&ready, &mut results, writer.as_raw_fd()),
        child => {
            drop(writer);
            let mut report = Vec::new();
            let read = File::from(reader).take(24).read_to_end(&mut report);
            let status = wait_for(child)?;
            drop(memory);
            read?;
            Ok(ending(&report, status))
        }
    }
}

/// Forks a child that runs `work` and leaves with what it returns. Only for a single-threaded program:
/// the child could wait for ever on a lock that another thread held.
pub fn fork_to(work: impl FnOnce() -> u8) -> io::Result<i32> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("fork_to in a program with threads"));
    }
    // SAFETY: fork(2) takes nothing, and the check above showed that no other thread exists whose locks
    // or half-done writes the child could inherit.
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

/// Forks a child that leaves at once, and waits for it. Reads and changes nothing.
pub fn fork_in_vain() -> io::Result<()> {
    // SAFETY: fork(2) takes nothing; the child leaves at once and touches no memory.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => leave(0),
        child => wait_for(child).map(drop),
    }
}

/// Asks to trace a process that does not exist: `ESRCH`, where the question is allowed at all.
pub fn trace_nobody() -> io::Result<()> {
    let nobody = libc::c_long::from(i32::MAX);
    // SAFETY: attaching takes integers only, and there is no process of this number.
    check(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_ATTACH, nobody, 0, 0) })?;
    Ok(())
}

/// Maps a page that can be executed, and lets go of it.
pub fn map_executable() -> io::Result<()> {
    const PAGE: usize = 4096;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at a place of the kernel's choice touches no memory of ours.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: exactly the mapping that was made above, which nothing refers to.
    check(unsafe { libc::munmap(page, PAGE) }.into())?;
    Ok(())
}

/// Ignores every signal that can be ignored, as a program does that does not want to be stopped.
pub fn ignore_every_signal() {
    for number in 1..=64 {
        // SAFETY: SIG_IGN installs no handler, so no code of ours runs at a signal; the kernel refuses
        // the numbers that cannot be ignored, which is what the caller expects.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// A call whose arguments are numbers and addresses already.
struct Ready {
    door: Door,
    number: i64,
    args: [Slot; 6],
}

#[derive(Clone, Copy)]
enum Slot {
    Word(u64),
    Result(usize),
}

/// Writable copies of everything the calls point to: the caller's bytes may be constants, and the kernel
/// would refuse to write into those. The child finds them at the same addresses.
#[derive(Default)]
struct Memory {
    bytes: Vec<Vec<u8>>,
    layouts: Vec<Vec<u64>>,
}

impl Memory {
    fn prepare(&mut self, call: &Call<'_>) -> Ready {
        let args = call.args.map(|arg| match arg {
            Arg::Word(word) => Slot::Word(word),
            Arg::Bytes(bytes) => Slot::Word(self.copy(bytes)),
            Arg::Struct(fields) => Slot::Word(self.lay_out(fields)),
            Arg::Result(place) => Slot::Result(place),
        });
        Ready { door: call.door, number: call.number, args }
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

/// The whole life of the child: call, tell, leave. Allocates nothing.
fn report_and_leave(calls: &[Ready], results: &mut [i64], tell: i32) -> ! {
    let me = std::process::id();
    let mut report = [0_i64; 3];
    for (place, call) in calls.iter().enumerate() {
        let args = call.args.map(|slot| match slot {
            Slot::Word(word) => word,
            Slot::Result(place) => results.get(place).copied().unwrap_or(-1).cast_unsigned(),
        });
        let (value, errno) = match call.door {
            Door::Native => native(call.number, args),
            Door::Int80 => int80(call.number, args),
        };
        if std::process::id() != me {
            leave(0); // The call was a fork, and this is its child.
        }
        report = [value, i64::from(errno), i64::try_from(place).unwrap_or(-1)];
        if errno != 0 {
            break;
        }
        if let Some(result) = results.get_mut(place) {
            *result = value;
        }
    }
    // SAFETY: `report` is 24 bytes that live until the call returns; the kernel only reads them.
    unsafe { libc::write(tell, report.as_ptr().cast(), 24) };
    leave(0)
}

fn leave(code: i32) -> ! {
    // SAFETY: `_exit` takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// The value and the error number of one call; one of them is zero or meaningless.
fn native(number: i64, [a, b, c, d, e, f]: [u64; 6]) -> (i64, i32) {
    // SAFETY: runs in the child of `in_child` only. A hostile call may write to any memory of this
    // process, which is a copy that makes system calls and then leaves: it reads none of it again but
    // the list of calls, and a child broken that way ends as `Killed` or `Left`.
    let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let errno =
        if value == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
    (value, errno)
}

#[cfg(target_arch = "x86_64")]
#[expect(clippy::cast_possible_truncation, reason = "the 32-bit door takes 32-bit arguments")]
fn int80(number: i64, args: [u64; 6]) -> (i64, i32) {
    let value: i32;
    // SAFETY: as in `native`. rbx is LLVM's own, so it is swapped in and back; the registers that the
    // 32-bit entry does not keep are declared lost.
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

fn wait_for(child: i32) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live int that waitpid(2) fills in; `child` is ours and not yet reaped.
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

fn ending(report: &[u8], status: i32) -> Ending {
    if libc::WIFSIGNALED(status) {
        return Ending::Killed(libc::WTERMSIG(status));
    }
    let words: Vec<i64> = report
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok())
        .map(i64::from_ne_bytes)
        .collect();
    match words[..] {
        [value, 0, _] => Ending::Granted(value),
        [_, errno, place] => Ending::Refused {
            place: usize::try_from(place).unwrap_or(usize::MAX),
            errno: i32::try_from(errno).unwrap_or(libc::EIO),
        },
        _ => Ending::Left(libc::WEXITSTATUS(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granted_call_tells_its_value() {
        let path = b"/\0";
        let open = Call::new(
            libc::SYS_openat,
            &[Arg::int(libc::AT_FDCWD.into()), Arg::Bytes(path), Arg::Word(0)],
        );
        let close = Call::new(libc::SYS_close, &[Arg::Result(0)]);
        assert_eq!(in_child(&[open, close]).unwrap(), Ending::Granted(0));
    }

    #[test]
    fn a_refused_call_tells_its_place_and_number() {
        let fine = Call::new(libc::SYS_getpid, &[]);
        let bad = Call::new(libc::SYS_close, &[Arg::Word(9999)]);
        assert_eq!(
            in_child(&[fine, bad, fine]).unwrap(),
            Ending::Refused { place: 1, errno: libc::EBADF }
        );
    }

    #[test]
    fn a_structure_carries_addresses() {
        let text = b"hello";
        let vector = [Field::Bytes(text), Field::Word(5)];
        let name = b"x\0";
        let make = Call::new(libc::SYS_memfd_create, &[Arg::Bytes(name), Arg::Word(0)]);
        let write =
            Call::new(libc::SYS_writev, &[Arg::Result(0), Arg::Struct(&vector), Arg::Word(1)]);
        assert_eq!(in_child(&[make, write]).unwrap(), Ending::Granted(5));
    }

    #[test]
    fn a_killed_child_is_told_apart_from_one_that_left() {
        let pid = Call::new(libc::SYS_getpid, &[]);
        let kill = Call::new(libc::SYS_kill, &[Arg::Result(0), Arg::Word(libc::SIGKILL as u64)]);
        assert_eq!(in_child(&[pid, kill]).unwrap(), Ending::Killed(libc::SIGKILL));
        let exit = Call::new(libc::SYS_exit_group, &[Arg::Word(7)]);
        assert_eq!(in_child(&[exit]).unwrap(), Ending::Left(7));
    }

    #[test]
    fn the_child_of_a_forking_call_goes_away() {
        let fork = Call::new(libc::SYS_clone, &[Arg::Word(libc::SIGCHLD as u64)]);
        assert!(matches!(in_child(&[fork]).unwrap(), Ending::Granted(pid) if pid > 0));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_32_bit_door_has_its_own_numbers() {
        // 20 is getpid for i386 and writev for x86-64. A kernel without 32-bit support kills the child.
        let call = Call::through(Door::Int80, 20, &[]);
        let ending = in_child(&[call]).unwrap();
        assert!(
            matches!(ending, Ending::Granted(pid) if pid > 0)
                || matches!(ending, Ending::Killed(_))
        );
    }

    #[test]
    fn forking_a_program_with_threads_is_refused() {
        // The test harness runs each test on a thread of its own.
        assert!(fork_to(|| 0).is_err());
    }
}
