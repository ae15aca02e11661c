//! What the filter checks of one call.
//!
//! Only the lower half of an argument is looked at: every argument checked here is 32 bits wide for
//! the kernel too, which ignores the upper half (so `TIOCSTI | 1 << 32` is still `TIOCSTI`).

/// One row of the table.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "names and reasons are for the reader and the tests")
)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) x86_64: Option<u32>,
    pub(crate) aarch64: Option<u32>,
    pub(crate) rule: Rule,
    /// Why a box has it, or why it has it only so.
    pub(crate) why: &'static str,
}

/// The judgement on one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Allow,
    /// Answers `ENOSYS`: programs probe for it and fall back.
    Absent,
    /// No input into terminals and no other line disciplines: `TIOCSTI`, `TIOCLINUX`, `TIOCSETD`.
    Ioctl,
    /// Opening a file must not create one with set-user-id or set-group-id.
    Create {
        flags: u8,
        mode: u8,
    },
    /// A mode must not have set-user-id or set-group-id: on the host it would be the operator's.
    Mode {
        arg: u8,
    },
    /// A new node is a file, a pipe or a socket, never a device.
    Node {
        arg: u8,
    },
    /// Flags without a namespace.
    NoNamespaces,
    /// A filter of the program's own, but no listener.
    NoListener,
    /// The current personality, or the default one.
    Persona,
    /// Local sockets, and TCP and UDP over IP.
    Socket,
    /// TCP and UDP over IP, and nothing local.
    InternetSocket,
    /// Memory that is mapped or protected so cannot be executed.
    NotExecutable {
        arg: u8,
    },
    /// Flags and copies of descriptors; no locks, no signals.
    Fcntl,
    /// Whether a descriptor waits, and how much there is to read.
    Readiness,
    /// Asks for a limit and sets none.
    AskLimit,
    /// Local pairs.
    LocalPair,
    /// No filter programs on sockets and no TLS in the kernel: doors of many exploits.
    SocketOption,
    /// Not the limit on core dumps: 1 is the only value that also stops a dump into a program.
    SetLimit,
    /// The same through prlimit64, which may still ask.
    SetLimitOf,
    /// Only where a cgroup counts; else the affinity is the limit on CPUs.
    Affinity,
    /// Of any size only where a cgroup counts; nobody else sees memory that no process maps.
    Segment,
}

pub(crate) const EPERM: u32 = 1;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSYS: u32 = 38;
pub(crate) const EAFNOSUPPORT: u32 = 97;

/// Set-user-id and set-group-id, as in stat(2).
pub(crate) const SET_ID_BITS: u32 = 0o6000;
/// `O_CREAT` and the bit that makes `O_TMPFILE`; the same on both architectures.
pub(crate) const CREATING: u32 = 0o100 | 0o20_000_000;
pub(crate) const NODE_TYPE: u32 = 0o170_000;
pub(crate) const HARMLESS_NODES: [u32; 4] = [0, 0o100_000, 0o010_000, 0o140_000];
/// Every `CLONE_NEW*`: time, mount, cgroup, uts, ipc, user, pid, net. Time is a flag of unshare
/// only; for clone the bit is part of the exit signal, and no signal has that number.
pub(crate) const NAMESPACES: u32 = 0x80 | 0x0002_0000 | 0x7e00_0000;
pub(crate) const TERMINAL_TRICKS: [u32; 3] = [0x5412, 0x541c, 0x5423];
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub(crate) const NEW_LISTENER: u32 = 8;
pub(crate) const PERSONAS: [u32; 2] = [0, u32::MAX];
pub(crate) const AF_UNIX: u32 = 1;
pub(crate) const INTERNET: [u32; 2] = [2, 10];
pub(crate) const SOCKET_TYPE: u32 = 0xf;
pub(crate) const STREAM_OR_DATAGRAM: [u32; 2] = [1, 2];
/// Default, TCP, UDP.
pub(crate) const PROTOCOLS: [u32; 3] = [0, 6, 17];
pub(crate) const RLIMIT_CORE: u32 = 4;
pub(crate) const PROT_EXEC: u32 = 4;
/// `F_DUPFD`, `F_GETFD`, `F_SETFD`, `F_GETFL`, `F_SETFL`, `F_DUPFD_CLOEXEC`.
pub(crate) const DESCRIPTOR_FLAGS: [u32; 6] = [0, 1, 2, 3, 4, 1030];
/// `FIONBIO`, `FIONREAD`.
pub(crate) const READINESS: [u32; 2] = [0x5421, 0x541b];
pub(crate) const SOL_SOCKET: u32 = 1;
/// `SO_ATTACH_FILTER`, `SO_ATTACH_BPF`, `SO_ATTACH_REUSEPORT_CBPF` and `_EBPF`.
pub(crate) const FILTERS_ON_SOCKETS: [u32; 4] = [26, 50, 51, 52];
pub(crate) const SOL_TCP: u32 = 6;
/// `TCP_ULP`.
pub(crate) const TCP_UPPER_LAYER: u32 = 31;
/// Enough for what databases lock with.
pub(crate) const SMALL_SEGMENT: u32 = 64 * 1024;
