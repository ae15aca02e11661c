//! Compiles a system call table into a BPF program: a binary search by call number, then argument checks.
//!
//! Adjacent numbers with the same verdict become one range. So the program has a few hundred
//! instructions, and the kernel fills its cache of unconditional results quickly. A chain of comparisons,
//! as other compilers generate it, takes a millisecond to install.

use belljar_sys::seccomp::Instruction;

use super::broker;
use super::rule::{
    AF_UNIX, CREATING, Call, DESCRIPTOR_FLAGS, EAFNOSUPPORT, EINVAL, ENOSYS, EPERM,
    FILTERS_ON_SOCKETS, HARMLESS_NODES, INTERNET, NAMESPACES, NEW_LISTENER, NODE_TYPE, PERSONAS,
    PROT_EXEC, PROTOCOLS, READINESS, RLIMIT_CORE, Rule, SET_ID_BITS, SMALL_SEGMENT, SMALL_SET,
    SOCKET_TYPE, SOL_SOCKET, SOL_TCP, STREAM_OR_DATAGRAM, TCP_UPPER_LAYER, TERMINAL_INJECTION,
};
use super::table::{CALLS, LAST_KNOWN};

/// A supported processor architecture, which determines the system call numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// Returns the processor architecture of this program, or `None` if it is not supported.
    pub(crate) fn current() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns the `AUDIT_ARCH_*` number that the kernel passes to the filter.
    fn audit_number(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    fn number_of(self, call: &Call) -> Option<u32> {
        match self {
            Self::X86_64 => call.x86_64,
            Self::Aarch64 => call.aarch64,
        }
    }
}

/// The mechanism that measures the resources of a box: cgroup or polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accounting {
    Cgroup,
    StandIn,
}

/// Returns the seccomp filter of a box.
pub(crate) fn filter(machine: Machine, accounting: Accounting) -> Vec<Instruction> {
    compile(machine, CALLS, accounting)
}

/// Returns the seccomp filter of a broker, or `None` on an unsupported architecture.
pub fn broker_filter() -> Option<Vec<Instruction>> {
    Some(compile(Machine::current()?, broker::CALLS, Accounting::Cgroup))
}

/// Returns the seccomp filter of a screen process: that of a broker, without calls that open
/// sockets.
pub fn screen_filter() -> Option<Vec<Instruction>> {
    let opens = ["socket", "connect", "bind", "accept4"];
    let calls: Vec<Call> =
        broker::CALLS.iter().filter(|call| !opens.contains(&call.name)).copied().collect();
    Some(compile(Machine::current()?, &calls, Accounting::Cgroup))
}

fn compile(machine: Machine, calls: &[Call], accounting: Accounting) -> Vec<Instruction> {
    let mut program = vec![load(ARCH), jump(EQUAL, machine.audit_number(), 1, 0), ret(KILL)];
    program.push(load(NUMBER));
    if machine == Machine::X86_64 {
        // x32 has the same architecture number; this bit marks its calls.
        program.extend([jump(GREATER_EQUAL, 0x4000_0000, 0, 1), ret(KILL)]);
    }
    program.extend(search(&ranges(machine, calls), accounting));
    program
}

/// A range of consecutive system call numbers with the same verdict, from `first` to the next
/// range.
#[derive(Debug)]
struct Range {
    first: u32,
    verdict: Verdict,
}

/// The decision of a seccomp filter about a system call number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Refused,
    Unknown,
    By(Rule),
}

fn ranges(machine: Machine, calls: &[Call]) -> Vec<Range> {
    let mut judged: Vec<(u32, Rule)> =
        calls.iter().filter_map(|call| Some((machine.number_of(call)?, call.rule))).collect();
    judged.sort_unstable_by_key(|(number, _)| *number);
    let mut judged = judged.into_iter().peekable();
    let mut ranges: Vec<Range> = Vec::new();
    for number in 0..=LAST_KNOWN + 1 {
        let verdict = match judged.next_if(|(first, _)| *first == number) {
            Some((_, rule)) => Verdict::By(rule),
            None if number > LAST_KNOWN => Verdict::Unknown,
            None => Verdict::Refused,
        };
        if ranges.last().is_none_or(|last| last.verdict != verdict) {
            ranges.push(Range { first: number, verdict });
        }
    }
    ranges
}

/// Returns filter code that finds the range of the call number and applies its verdict.
fn search(ranges: &[Range], accounting: Accounting) -> Vec<Instruction> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    match (left, right) {
        ([], []) => vec![ret(KILL)],
        ([], [only]) | ([only], []) => judge(only.verdict, accounting),
        (_, [first, ..]) => {
            let (below, above) = (search(left, accounting), search(right, accounting));
            // Conditional jumps reach at most 255 instructions, so the far branch needs a plain jump.
            let over = u32::try_from(below.len()).unwrap_or(u32::MAX);
            let mut code = vec![jump(GREATER_EQUAL, first.first, 0, 1), jump_over(over)];
            code.extend(below);
            code.extend(above);
            code
        }
        (_, []) => search(left, accounting),
    }
}

fn judge(verdict: Verdict, accounting: Accounting) -> Vec<Instruction> {
    let rule = match verdict {
        Verdict::Refused => return vec![errno(EPERM)],
        Verdict::Unknown => return vec![errno(ENOSYS)],
        Verdict::By(rule) => rule,
    };
    match rule {
        Rule::Allow => vec![ret(ALLOW)],
        Rule::Absent => vec![errno(ENOSYS)],
        Rule::Ignored => vec![errno(0)],
        Rule::Ioctl => {
            let mut code = vec![load(argument(1))];
            code.extend(one_of(&TERMINAL_INJECTION, &[errno(EPERM)], &[ret(ALLOW)]));
            code
        }
        Rule::Create { flags, mode } => {
            let mut code = vec![load(argument(flags)), jump(ANY_BIT, CREATING, 1, 0), ret(ALLOW)];
            code.extend(no_bits(mode, SET_ID_BITS));
            code
        }
        Rule::Mode { arg } => no_bits(arg, SET_ID_BITS),
        Rule::Node { arg } => {
            let mut code = vec![load(argument(arg)), and(NODE_TYPE)];
            code.extend(one_of(&HARMLESS_NODES, &no_bits(arg, SET_ID_BITS), &[errno(EPERM)]));
            code
        }
        Rule::NoNamespaces => no_bits(0, NAMESPACES),
        Rule::NoListener => no_bits(1, NEW_LISTENER),
        Rule::Persona => {
            let mut code = vec![load(argument(0))];
            code.extend(one_of(&PERSONAS, &[ret(ALLOW)], &[errno(EPERM)]));
            code
        }
        Rule::Socket => socket(),
        Rule::InternetSocket => internet_socket(),
        Rule::NotExecutable { arg } => no_bits(arg, PROT_EXEC),
        Rule::Fcntl => {
            let mut code = vec![load(argument(1))];
            code.extend(one_of(&DESCRIPTOR_FLAGS, &[ret(ALLOW)], &[errno(EPERM)]));
            code
        }
        Rule::Readiness => {
            let mut code = vec![load(argument(1))];
            code.extend(one_of(&READINESS, &[ret(ALLOW)], &[errno(EPERM)]));
            code
        }
        Rule::ReadLimit => vec![
            load(argument(2)),
            jump(EQUAL, 0, 0, 2),
            load(argument(2) + 4),
            jump(EQUAL, 0, 1, 0),
            errno(EPERM),
            ret(ALLOW),
        ],
        Rule::LocalPair => {
            vec![load(argument(0)), jump(EQUAL, AF_UNIX, 0, 1), ret(ALLOW), errno(EAFNOSUPPORT)]
        }
        Rule::SocketOption => socket_option(),
        Rule::SetLimit => {
            vec![load(argument(0)), jump(EQUAL, RLIMIT_CORE, 0, 1), errno(EINVAL), ret(ALLOW)]
        }
        Rule::SetLimitOf => vec![
            load(argument(1)),
            jump(EQUAL, RLIMIT_CORE, 1, 0),
            ret(ALLOW),
            // A call that only reads the limit passes a null pointer: both halves are zero.
            load(argument(2)),
            jump(EQUAL, 0, 0, 2),
            load(argument(2) + 4),
            jump(EQUAL, 0, 1, 0),
            errno(EINVAL),
            ret(ALLOW),
        ],
        Rule::Affinity | Rule::Segment | Rule::Semaphores | Rule::Accounted
            if accounting == Accounting::Cgroup =>
        {
            vec![ret(ALLOW)]
        }
        Rule::Affinity => vec![errno(EPERM)],
        Rule::Accounted => vec![errno(ENOSYS)],
        Rule::Semaphores => vec![
            load(argument(1)),
            jump(GREATER_EQUAL, SMALL_SET + 1, 0, 1),
            errno(EPERM),
            ret(ALLOW),
        ],
        Rule::Segment => vec![
            load(argument(1) + 4),
            jump(EQUAL, 0, 0, 2),
            load(argument(1)),
            jump(GREATER_EQUAL, SMALL_SEGMENT + 1, 0, 1),
            errno(EPERM),
            ret(ALLOW),
        ],
    }
}

fn socket_option() -> Vec<Instruction> {
    let mut filters = vec![load(argument(2))];
    filters.extend(one_of(&FILTERS_ON_SOCKETS, &[errno(EPERM)], &[ret(ALLOW)]));
    let tcp = vec![
        jump(EQUAL, SOL_TCP, 1, 0),
        ret(ALLOW),
        load(argument(2)),
        jump(EQUAL, TCP_UPPER_LAYER, 0, 1),
        errno(EPERM),
        ret(ALLOW),
    ];
    let mut code = vec![load(argument(1))];
    code.extend(one_of(&[SOL_SOCKET], &filters, &tcp));
    code
}

fn socket() -> Vec<Instruction> {
    let mut code = vec![load(argument(0)), jump(EQUAL, AF_UNIX, 0, 1), ret(ALLOW)];
    code.extend(internet_socket());
    code
}

fn internet_socket() -> Vec<Instruction> {
    let refuse = [errno(EAFNOSUPPORT)];
    let mut protocol = vec![load(argument(2))];
    protocol.extend(one_of(&PROTOCOLS, &[ret(ALLOW)], &refuse));
    let mut kind = vec![load(argument(1)), and(SOCKET_TYPE)];
    kind.extend(one_of(&STREAM_OR_DATAGRAM, &protocol, &refuse));
    let mut code = vec![load(argument(0))];
    code.extend(one_of(&INTERNET, &kind, &refuse));
    code
}

/// Returns filter code that allows the call if none of `bits` is set in the argument.
fn no_bits(arg: u8, bits: u32) -> Vec<Instruction> {
    vec![load(argument(arg)), jump(ANY_BIT, bits, 0, 1), errno(EPERM), ret(ALLOW)]
}

/// Returns filter code that runs `yes` if the accumulator is one of `values`, else `no`. Both must
/// return.
fn one_of(values: &[u32], yes: &[Instruction], no: &[Instruction]) -> Vec<Instruction> {
    let mut code = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let to_yes = values.len() - 1 - index + no.len();
        code.push(jump(EQUAL, *value, u8::try_from(to_yes).unwrap_or(u8::MAX), 0));
    }
    code.extend(no);
    code.extend(yes);
    code
}

// Classic BPF, as in linux/bpf_common.h and linux/seccomp.h.
const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const GREATER_EQUAL: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const KILL: u32 = 0x8000_0000; // the whole process
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

// Offsets into struct seccomp_data; arguments start at 16, lower half first on these machines.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

fn argument(index: u8) -> u32 {
    16 + 8 * u32::from(index)
}

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD_WORD, jump_true: 0, jump_false: 0, k: offset }
}

fn and(mask: u32) -> Instruction {
    Instruction { code: AND, jump_true: 0, jump_false: 0, k: mask }
}

fn jump(code: u16, k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, k }
}

fn jump_over(count: u32) -> Instruction {
    Instruction { code: JUMP, jump_true: 0, jump_false: 0, k: count }
}

fn ret(k: u32) -> Instruction {
    Instruction { code: RETURN, jump_true: 0, jump_false: 0, k }
}

fn errno(number: u32) -> Instruction {
    ret(ERRNO | number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets a seccomp filter for one system call, like the kernel, and returns the action.
    fn run(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCH => arch,
            _ => {
                let arg = args[((offset - 16) / 8) as usize];
                let half = if offset.is_multiple_of(8) { arg } else { arg >> 32 };
                u32::try_from(half & u64::from(u32::MAX)).unwrap()
            }
        };
        let (mut at, mut accumulator) = (0_usize, 0_u32);
        loop {
            let Instruction { code, jump_true, jump_false, k } = program[at];
            at += 1;
            let branch = |taken: bool| usize::from(if taken { jump_true } else { jump_false });
            match code {
                LOAD_WORD => accumulator = word(k),
                AND => accumulator &= k,
                JUMP => at += k as usize,
                EQUAL => at += branch(accumulator == k),
                GREATER_EQUAL => at += branch(accumulator >= k),
                ANY_BIT => at += branch(accumulator & k != 0),
                RETURN => return k,
                _ => panic!("unexpected instruction {code:#x}"),
            }
        }
    }

    fn check(machine: Machine, name: &str, args: [u64; 6], expect: u32) {
        let call = CALLS.iter().find(|call| call.name == name).unwrap();
        let number = machine.number_of(call).unwrap();
        let program = filter(machine, Accounting::Cgroup);
        let action = run(&program, machine.audit_number(), number, args);
        assert_eq!(action, expect, "{name}({args:#x?}) on {machine:?}");
    }

    const BOTH: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];
    const REFUSED: u32 = ERRNO | EPERM;

    #[test]
    fn seccomp_filter_follows_the_table_for_every_call_number() {
        for machine in BOTH {
            let program = filter(machine, Accounting::Cgroup);
            assert!(program.len() < 1024, "{} instructions", program.len());
            for number in 0..2048 {
                let call = CALLS.iter().find(|call| machine.number_of(call) == Some(number));
                let action = run(&program, machine.audit_number(), number, [0; 6]);
                let expect = match call.map(|call| call.rule) {
                    Some(Rule::Absent) => ERRNO | ENOSYS,
                    Some(Rule::Ignored) => ERRNO,
                    Some(Rule::Socket | Rule::LocalPair) => ERRNO | EAFNOSUPPORT,
                    Some(_) => ALLOW,
                    None if number > LAST_KNOWN => ERRNO | ENOSYS,
                    None => REFUSED,
                };
                assert_eq!(action, expect, "{machine:?} {number} {call:?}");
            }
        }
    }

    #[test]
    fn seccomp_filter_kills_a_process_that_makes_a_call_of_another_architecture() {
        for machine in BOTH {
            let program = filter(machine, Accounting::Cgroup);
            for arch in [0, 0x4000_0003, 0x4000_0028, 0xc000_00b6, u32::MAX] {
                assert_eq!(run(&program, arch, 0, [0; 6]), KILL);
            }
        }
        let x86 = filter(Machine::X86_64, Accounting::StandIn);
        assert_eq!(run(&x86, Machine::X86_64.audit_number(), 0x4000_0000, [0; 6]), KILL);
    }

    #[test]
    fn seccomp_filter_checks_the_arguments_of_restricted_calls() {
        for machine in BOTH {
            check(machine, "clone", [0x0001_0f00, 0, 0, 0, 0, 0], ALLOW);
            check(machine, "clone", [0x1000_0000, 0, 0, 0, 0, 0], REFUSED);
            check(machine, "unshare", [0x80, 0, 0, 0, 0, 0], REFUSED);
            check(machine, "ioctl", [0, 0x5413, 0, 0, 0, 0], ALLOW);
            check(machine, "ioctl", [0, 0x5412, 0, 0, 0, 0], REFUSED);
            check(machine, "ioctl", [0, 0x5412 | 1 << 32, 0, 0, 0, 0], REFUSED);
            check(machine, "ioctl", [0, 0x5423, 0, 0, 0, 0], REFUSED);
            check(machine, "openat", [0, 0, 0o100, 0o4755, 0, 0], REFUSED);
            check(machine, "openat", [0, 0, 0o100, 0o755, 0, 0], ALLOW);
            check(machine, "openat", [0, 0, 0, 0o4755, 0, 0], ALLOW);
            check(machine, "fchmodat", [0, 0, 0o2755, 0, 0, 0], REFUSED);
            check(machine, "mknodat", [0, 0, 0o020_666, 0, 0, 0], REFUSED);
            check(machine, "mknodat", [0, 0, 0o010_644, 0, 0, 0], ALLOW);
            check(machine, "mknodat", [0, 0, 0o104_755, 0, 0, 0], REFUSED);
            check(machine, "seccomp", [1, 8, 0, 0, 0, 0], REFUSED);
            check(machine, "personality", [0x0004_0000, 0, 0, 0, 0, 0], REFUSED);
            check(machine, "personality", [0xffff_ffff, 0, 0, 0, 0, 0], ALLOW);
            check(machine, "socket", [1, 1, 0, 0, 0, 0], ALLOW);
            check(machine, "socket", [2, 0x80802, 17, 0, 0, 0], ALLOW);
            check(machine, "socket", [10, 1, 6, 0, 0, 0], ALLOW);
            check(machine, "socket", [2, 3, 0, 0, 0, 0], ERRNO | EAFNOSUPPORT);
            check(machine, "socket", [2, 1, 132, 0, 0, 0], ERRNO | EAFNOSUPPORT);
            check(machine, "socket", [16, 3, 0, 0, 0, 0], ERRNO | EAFNOSUPPORT);
            check(machine, "socketpair", [1, 1, 0, 0, 0, 0], ALLOW);
            check(machine, "setsockopt", [3, 1, 2, 0, 0, 0], ALLOW);
            check(machine, "setsockopt", [3, 1, 50, 0, 0, 0], REFUSED);
            check(machine, "setsockopt", [3, 6, 1, 0, 0, 0], ALLOW);
            check(machine, "setsockopt", [3, 6, 31, 0, 0, 0], REFUSED);
            check(machine, "setsockopt", [3, 41, 26, 0, 0, 0], ALLOW);
            check(machine, "prlimit64", [0, 4, 0, 1, 0, 0], ALLOW);
            check(machine, "prlimit64", [0, 4, 8, 0, 0, 0], ERRNO | EINVAL);
            check(machine, "prlimit64", [0, 4, 1 << 40, 0, 0, 0], ERRNO | EINVAL);
            check(machine, "prlimit64", [0, 7, 8, 0, 0, 0], ALLOW);
            check(machine, "setrlimit", [4, 8, 0, 0, 0, 0], ERRNO | EINVAL);
            check(machine, "setrlimit", [7, 8, 0, 0, 0, 0], ALLOW);
        }
    }

    #[test]
    fn seccomp_filter_is_stricter_in_a_box_without_a_cgroup() {
        let machine = Machine::X86_64;
        let action = |name: &str, args: [u64; 6]| {
            let call = CALLS.iter().find(|call| call.name == name).unwrap();
            let program = filter(machine, Accounting::StandIn);
            run(&program, machine.audit_number(), machine.number_of(call).unwrap(), args)
        };
        assert_eq!(action("sched_setaffinity", [0; 6]), REFUSED);
        assert_eq!(action("shmget", [0, 65536, 0, 0, 0, 0]), ALLOW);
        assert_eq!(action("shmget", [0, 65537, 0, 0, 0, 0]), REFUSED);
        assert_eq!(action("shmget", [0, 1 << 32, 0, 0, 0, 0]), REFUSED);
        assert_eq!(action("semget", [0, 32, 0, 0, 0, 0]), ALLOW);
        assert_eq!(action("semget", [0, 33, 0, 0, 0, 0]), REFUSED);
        assert_eq!(action("msgget", [0; 6]), ERRNO | ENOSYS);
    }

    fn broker(name: &str, machine: Machine, args: [u64; 6]) -> u32 {
        let known = CALLS.iter().chain(broker::CALLS).find(|call| call.name == name).unwrap();
        let program = compile(machine, broker::CALLS, Accounting::Cgroup);
        run(&program, machine.audit_number(), machine.number_of(known).unwrap(), args)
    }

    #[test]
    fn a33_seccomp_filter_of_a_broker_allows_socket_io_and_refuses_other_calls() {
        for machine in BOTH {
            let action = |name: &str, args: [u64; 6]| broker(name, machine, args);
            for name in ["read", "write", "accept4", "connect", "epoll_ctl", "futex", "close"] {
                assert_eq!(action(name, [0; 6]), ALLOW, "{name}");
            }
            let refused = "openat execve execveat clone socketpair kill tgkill memfd_create unlinkat \
                 prctl setrlimit seccomp pipe2 listen statx readlinkat getdents64";
            for name in refused.split_whitespace() {
                assert_eq!(action(name, [0; 6]), REFUSED, "{name}");
            }
            assert_eq!(action("clone3", [0; 6]), ERRNO | ENOSYS);
            assert_eq!(action("socket", [2, 0x80801, 0, 0, 0, 0]), ALLOW);
            assert_eq!(action("socket", [10, 0x80802, 17, 0, 0, 0]), ALLOW);
            for family in [0, 1, 16, 17, 38, 40] {
                let socket = action("socket", [family, 1, 0, 0, 0, 0]);
                assert_eq!(socket, ERRNO | EAFNOSUPPORT, "{family}");
            }
            assert_eq!(action("socket", [2, 3, 6, 0, 0, 0]), ERRNO | EAFNOSUPPORT);
            for name in ["mmap", "mprotect"] {
                assert_eq!(action(name, [0, 4096, 3, 0, 0, 0]), ALLOW, "{name}");
                assert_eq!(action(name, [0, 4096, 5, 0, 0, 0]), REFUSED, "{name}");
            }
            assert_eq!(action("fcntl", [3, 1030, 0, 0, 0, 0]), ALLOW);
            assert_eq!(action("fcntl", [3, 8, 1, 0, 0, 0]), REFUSED, "F_SETOWN");
            assert_eq!(action("ioctl", [3, 0x5421, 0, 0, 0, 0]), ALLOW);
            assert_eq!(action("ioctl", [3, 0x5412, 0, 0, 0, 0]), REFUSED);
            assert_eq!(action("prlimit64", [0, 7, 0, 99, 0, 0]), ALLOW);
            assert_eq!(action("prlimit64", [0, 7, 1 << 40, 0, 0, 0]), REFUSED);
        }
    }

    #[test]
    fn seccomp_table_of_a_broker_has_unique_numbers_and_a_reason_per_row() {
        for machine in BOTH {
            let mut numbers: Vec<u32> =
                broker::CALLS.iter().filter_map(|call| machine.number_of(call)).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count);
        }
        for call in broker::CALLS {
            assert!(call.why.len() > 3, "{} needs a reason", call.name);
            // The same call has the same number in both tables.
            let same = CALLS.iter().find(|known| known.name == call.name);
            let numbers = |call: &Call| (call.x86_64, call.aarch64);
            assert!(same.is_none_or(|same| numbers(same) == numbers(call)), "{}", call.name);
        }
    }

    #[test]
    fn seccomp_table_of_a_box_has_unique_numbers_and_a_reason_per_row() {
        for machine in BOTH {
            let mut numbers: Vec<u32> = CALLS.iter().filter_map(|c| machine.number_of(c)).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count);
        }
        for call in CALLS {
            assert!(call.x86_64.is_some() || call.aarch64.is_some(), "{}", call.name);
            assert!(call.why.len() > 3, "{} needs a reason", call.name);
        }
    }
}
