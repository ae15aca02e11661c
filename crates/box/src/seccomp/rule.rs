//! The rules that the filter applies to one system call.
//!
//! The filter checks only the lower half of an argument: every checked argument is 32 bits wide in the
//! kernel, which ignores the upper half (so `TIOCSTI | 1 << 32` is still `TIOCSTI`).

/// A row of a system call table: name, numbers, rule and reason.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "only people and tests read names and reasons"))]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) x86_64: Option<u32>,
    pub(crate) aarch64: Option<u32>,
    pub(crate) rule: Rule,
    /// The reason for allowing or restricting the system call.
    pub(crate) why: &'static str,
}

/// The condition under which the seccomp filter allows a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Allow,
    /// Refuses the call with `ENOSYS`, because programs probe for the call and fall back.
    Absent,
    /// Returns success without an effect.
    Ignored,
    /// Refuses input into terminals and other line disciplines: `TIOCSTI`, `TIOCLINUX`, `TIOCSETD`.
    Ioctl,
    /// Refuses to create a file with set-user-id or set-group-id.
    Create {
        flags: u8,
        mode: u8,
    },
    /// Refuses a file mode with set-user-id or set-group-id: on the host the file would have the
    /// operator's rights.
    Mode {
        arg: u8,
    },
    /// Allows mknod(2) of a file, pipe or socket, and refuses a device.
    Node {
        arg: u8,
    },
    /// Refuses the call with flags that create a namespace.
    NoNamespaces,
    /// Allows to install a seccomp filter, and refuses a filter with a listener.
    NoListener,
    /// Allows to read the personality or to set the default one.
    Persona,
    /// Allows to create local sockets, and TCP and UDP sockets over IP.
    Socket,
    /// Allows to create TCP and UDP sockets over IP, and refuses local sockets.
    InternetSocket,
    /// Refuses a memory mapping that is executable.
    NotExecutable {
        arg: u8,
    },
    /// Allows flags and copies of descriptors, and refuses locks and signals.
    Fcntl,
    /// Allows ioctl(2) only for non-blocking mode and the number of readable bytes.
    Readiness,
    /// Allows to read a limit, and refuses to set one.
    ReadLimit,
    /// Allows socketpair(2) for local sockets only.
    LocalPair,
    /// Refuses socket filters and kernel TLS, which many exploits use.
    SocketOption,
    /// Refuses to change the core dump limit: only the value 1 also prevents dumps into a program.
    SetLimit,
    /// Refuses to change the core dump limit through prlimit64, and allows to read it.
    SetLimitOf,
    /// Allows the call only with a cgroup; without one, the CPU affinity is the CPU limit.
    Affinity,
    /// Limits the size of a shared memory segment without a cgroup, because polling cannot see
    /// unmapped memory.
    Segment,
    /// Limits the size of a semaphore set without a cgroup: 32,000 large sets are gigabytes.
    Semaphores,
    /// Returns `ENOSYS` without a cgroup, because nothing else limits the memory of the kernel behind it.
    Accounted,
}

pub(crate) const EPERM: u32 = 1;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSYS: u32 = 38;
pub(crate) const EAFNOSUPPORT: u32 = 97;

/// The mode bits for set-user-id and set-group-id, as in inode(7).
pub(crate) const SET_ID_BITS: u32 = 0o6000;
/// The flags of open(2) that create a file, on both architectures: `O_CREAT` and the bit of
/// `O_TMPFILE`.
pub(crate) const CREATING: u32 = 0o100 | 0o20_000_000;
pub(crate) const NODE_TYPE: u32 = 0o170_000;
pub(crate) const HARMLESS_NODES: [u32; 4] = [0, 0o100_000, 0o010_000, 0o140_000];
/// All `CLONE_NEW*` flags: time, mount, cgroup, uts, ipc, user, pid, net. Time is a flag of unshare
/// only; for clone the bit is part of the exit signal, and no signal has that number.
pub(crate) const NAMESPACES: u32 = 0x80 | 0x0002_0000 | 0x7e00_0000;
pub(crate) const TERMINAL_INJECTION: [u32; 3] = [0x5412, 0x541c, 0x5423];
/// The flag that creates a seccomp listener: `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub(crate) const NEW_LISTENER: u32 = 8;
pub(crate) const PERSONAS: [u32; 2] = [0, u32::MAX];
pub(crate) const AF_UNIX: u32 = 1;
pub(crate) const INTERNET: [u32; 2] = [2, 10];
pub(crate) const SOCKET_TYPE: u32 = 0xf;
pub(crate) const STREAM_OR_DATAGRAM: [u32; 2] = [1, 2];
/// The allowed socket protocol numbers: default, TCP, UDP.
pub(crate) const PROTOCOLS: [u32; 3] = [0, 6, 17];
pub(crate) const RLIMIT_CORE: u32 = 4;
pub(crate) const PROT_EXEC: u32 = 4;
/// The allowed fcntl(2) commands: `F_DUPFD`, `F_GETFD`, `F_SETFD`, `F_GETFL`, `F_SETFL`,
/// `F_DUPFD_CLOEXEC`.
pub(crate) const DESCRIPTOR_FLAGS: [u32; 6] = [0, 1, 2, 3, 4, 1030];
/// The allowed ioctl(2) requests of a broker: `FIONBIO`, `FIONREAD`.
pub(crate) const READINESS: [u32; 2] = [0x5421, 0x541b];
pub(crate) const SOL_SOCKET: u32 = 1;
/// The socket options that attach filters: `SO_ATTACH_FILTER`, `SO_ATTACH_BPF`,
/// `SO_ATTACH_REUSEPORT_CBPF` and `_EBPF`.
pub(crate) const FILTERS_ON_SOCKETS: [u32; 4] = [26, 50, 51, 52];
pub(crate) const SOL_TCP: u32 = 6;
/// The socket option that enables kernel TLS: `TCP_ULP`.
pub(crate) const TCP_UPPER_LAYER: u32 = 31;
/// The maximum size of a shared memory segment without a cgroup, enough for the locks of databases.
pub(crate) const SMALL_SEGMENT: u32 = 64 * 1024;
/// Size of a semaphore set that is enough for databases. 32,000 sets of this size, the maximum of the
/// kernel, need 70 MiB.
pub(crate) const SMALL_SET: u32 = 32;
