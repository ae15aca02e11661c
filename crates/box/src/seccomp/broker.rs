//! The system calls that a serving broker may make, with reasons. All other calls are refused.
//!
//! A broker communicates with the box, the internet and its supervisor over sockets. It opens no files,
//! starts no threads or processes, and sends no signals.

use super::rule::{Call, Rule};

#[rustfmt::skip] // a table with one call per line
pub(super) const CALLS: &[Call] = &[
    // Input and output on open descriptors
    Call { name: "read", x86_64: Some(0), aarch64: Some(63), rule: Rule::Allow, why: "connections, and the event that wakes the loop" },
    Call { name: "write", x86_64: Some(1), aarch64: Some(64), rule: Rule::Allow, why: "connections, and the event that wakes the loop" },
    Call { name: "readv", x86_64: Some(19), aarch64: Some(65), rule: Rule::Allow, why: "scattered read" },
    Call { name: "writev", x86_64: Some(20), aarch64: Some(66), rule: Rule::Allow, why: "gathered write, used by hyper" },
    Call { name: "close", x86_64: Some(3), aarch64: Some(57), rule: Rule::Allow, why: "close connections" },
    Call { name: "fcntl", x86_64: Some(72), aarch64: Some(25), rule: Rule::Fcntl, why: "duplicate descriptors and set their flags" },
    Call { name: "ioctl", x86_64: Some(16), aarch64: Some(29), rule: Rule::Readiness, why: "non-blocking mode, set by the standard library" },
    // Sockets: received ones to the box, own ones to the internet
    Call { name: "socket", x86_64: Some(41), aarch64: Some(198), rule: Rule::InternetSocket, why: "TCP to upstreams, UDP and TCP to name servers" },
    Call { name: "connect", x86_64: Some(42), aarch64: Some(203), rule: Rule::Allow, why: "upstreams and name servers" },
    Call { name: "bind", x86_64: Some(49), aarch64: Some(200), rule: Rule::Allow, why: "source port of name queries" },
    Call { name: "accept4", x86_64: Some(288), aarch64: Some(242), rule: Rule::Allow, why: "connections of the box" },
    Call { name: "getsockname", x86_64: Some(51), aarch64: Some(204), rule: Rule::Allow, why: "address and state of a connection" },
    Call { name: "getpeername", x86_64: Some(52), aarch64: Some(205), rule: Rule::Allow, why: "address and state of a connection" },
    Call { name: "getsockopt", x86_64: Some(55), aarch64: Some(209), rule: Rule::Allow, why: "address and state of a connection" },
    Call { name: "setsockopt", x86_64: Some(54), aarch64: Some(208), rule: Rule::SocketOption, why: "delays and buffers, without filters and kernel TLS" },
    Call { name: "sendto", x86_64: Some(44), aarch64: Some(206), rule: Rule::Allow, why: "connections and name servers" },
    Call { name: "recvfrom", x86_64: Some(45), aarch64: Some(207), rule: Rule::Allow, why: "connections and name servers" },
    Call { name: "sendmsg", x86_64: Some(46), aarch64: Some(211), rule: Rule::Allow, why: "messages of the supervisor, with descriptors" },
    Call { name: "recvmsg", x86_64: Some(47), aarch64: Some(212), rule: Rule::Allow, why: "messages of the supervisor, with descriptors" },
    Call { name: "shutdown", x86_64: Some(48), aarch64: Some(210), rule: Rule::Allow, why: "close one direction of a connection" },
    // Waiting
    Call { name: "poll", x86_64: Some(7), aarch64: None, rule: Rule::Allow, why: "wait for the supervisor" },
    Call { name: "ppoll", x86_64: Some(271), aarch64: Some(73), rule: Rule::Allow, why: "wait for the supervisor" },
    Call { name: "epoll_create1", x86_64: Some(291), aarch64: Some(20), rule: Rule::Allow, why: "the event loop" },
    Call { name: "epoll_ctl", x86_64: Some(233), aarch64: Some(21), rule: Rule::Allow, why: "the event loop" },
    Call { name: "epoll_wait", x86_64: Some(232), aarch64: None, rule: Rule::Allow, why: "the event loop" },
    Call { name: "epoll_pwait", x86_64: Some(281), aarch64: Some(22), rule: Rule::Allow, why: "the event loop" },
    Call { name: "epoll_pwait2", x86_64: Some(441), aarch64: Some(441), rule: Rule::Allow, why: "the event loop" },
    Call { name: "eventfd2", x86_64: Some(290), aarch64: Some(19), rule: Rule::Allow, why: "wakes the event loop" },
    Call { name: "futex", x86_64: Some(202), aarch64: Some(98), rule: Rule::Allow, why: "locks of the standard library" },
    Call { name: "sched_yield", x86_64: Some(24), aarch64: Some(124), rule: Rule::Allow, why: "spin locks" },
    Call { name: "nanosleep", x86_64: Some(35), aarch64: Some(101), rule: Rule::Allow, why: "short sleeps" },
    Call { name: "clock_nanosleep", x86_64: Some(230), aarch64: Some(115), rule: Rule::Allow, why: "short sleeps" },
    Call { name: "restart_syscall", x86_64: Some(219), aarch64: Some(128), rule: Rule::Allow, why: "continue an interrupted wait" },
    // Time and randomness
    Call { name: "clock_gettime", x86_64: Some(228), aarch64: Some(113), rule: Rule::Allow, why: "deadlines and certificates, if the vDSO has no clock" },
    Call { name: "gettimeofday", x86_64: Some(96), aarch64: Some(169), rule: Rule::Allow, why: "deadlines and certificates, if the vDSO has no clock" },
    Call { name: "clock_getres", x86_64: Some(229), aarch64: Some(114), rule: Rule::Allow, why: "deadlines and certificates, if the vDSO has no clock" },
    Call { name: "getrandom", x86_64: Some(318), aarch64: Some(278), rule: Rule::Allow, why: "keys, placeholders and TLS" },
    // Memory, never executable
    Call { name: "mmap", x86_64: Some(9), aarch64: Some(222), rule: Rule::NotExecutable { arg: 2 }, why: "the allocator" },
    Call { name: "mprotect", x86_64: Some(10), aarch64: Some(226), rule: Rule::NotExecutable { arg: 2 }, why: "the allocator" },
    Call { name: "munmap", x86_64: Some(11), aarch64: Some(215), rule: Rule::Allow, why: "the allocator" },
    Call { name: "mremap", x86_64: Some(25), aarch64: Some(216), rule: Rule::Allow, why: "the allocator" },
    Call { name: "madvise", x86_64: Some(28), aarch64: Some(233), rule: Rule::Allow, why: "the allocator" },
    Call { name: "brk", x86_64: Some(12), aarch64: Some(214), rule: Rule::Allow, why: "the allocator" },
    // Its own process
    Call { name: "getpid", x86_64: Some(39), aarch64: Some(172), rule: Rule::Allow, why: "thread id in a panic; fork detection of a random generator" },
    Call { name: "gettid", x86_64: Some(186), aarch64: Some(178), rule: Rule::Allow, why: "thread id in a panic; fork detection of a random generator" },
    Call { name: "rt_sigreturn", x86_64: Some(15), aarch64: Some(139), rule: Rule::Allow, why: "signal handlers of the standard library, for a stack overflow" },
    Call { name: "rt_sigprocmask", x86_64: Some(14), aarch64: Some(135), rule: Rule::Allow, why: "signal handlers of the standard library, for a stack overflow" },
    Call { name: "rt_sigaction", x86_64: Some(13), aarch64: Some(134), rule: Rule::Allow, why: "signal handlers of the standard library, for a stack overflow" },
    Call { name: "sigaltstack", x86_64: Some(131), aarch64: Some(132), rule: Rule::Allow, why: "signal handlers of the standard library, for a stack overflow" },
    Call { name: "sched_getaffinity", x86_64: Some(204), aarch64: Some(123), rule: Rule::Allow, why: "the allocator counts processors" },
    Call { name: "prlimit64", x86_64: Some(302), aarch64: Some(261), rule: Rule::ReadLimit, why: "read the descriptor limit" },
    Call { name: "exit", x86_64: Some(60), aarch64: Some(93), rule: Rule::Allow, why: "exit" },
    Call { name: "exit_group", x86_64: Some(231), aarch64: Some(94), rule: Rule::Allow, why: "exit" },
    // Absent: the broker works without these
    Call { name: "clone3", x86_64: Some(435), aarch64: Some(435), rule: Rule::Absent, why: "threads and processes; clone is refused" },
    Call { name: "io_uring_setup", x86_64: Some(425), aarch64: Some(425), rule: Rule::Absent, why: "connections that the filter cannot see" },
];
