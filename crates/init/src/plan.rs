//! The messages between the supervisor and init, and the plan of a box.
//!
//! This module contains only data types, which are compiled into both programs. Paths inside the box are
//! bytes, because file names need not be UTF-8.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A path or string as bytes, without a terminating NUL.
pub type Bytes = Vec<u8>;

/// A message from the supervisor to init over the control socket.
#[derive(Debug, Serialize, Deserialize)]
pub enum InitCommand {
    /// Tells init to build and restrict the box. Carries the descriptors of the plan. Answered by
    /// [`Event::Built`].
    Build(Box<Plan>),
    /// Start the payload. Answered by [`Event::Started`] or [`Event::ExecFailed`].
    Go,
    /// Tells init to send this signal to the payload.
    Signal(i32),
}

/// A message from init to the supervisor over the control socket.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Some of the listening sockets of the [`NetPlan`], with their descriptors in this order. Init
    /// sends all sockets before [`Event::Built`].
    Sockets(Vec<Socket>),
    /// The box is built. Carries the master side of the terminal if the plan has one.
    Built { landlock_abi: u32 },
    /// The box could not be built; the payload did not run.
    Failed { stage: Stage, what: String, errno: i32 },
    /// The program of the payload was executed.
    Started,
    /// The program of the payload could not be executed.
    ExecFailed { errno: i32 },
    /// The payload's first process ended; the box ends with it.
    Ended { exit: Option<i32>, signal: Option<i32>, spent: Option<Spent> },
}

/// The CPU time and memory that all processes of a box used. Measured after all others ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub user: Duration,
    pub system: Duration,
    /// The peak resident memory of the largest process, in bytes.
    pub max_rss_bytes: u64,
}

/// A message from the supervisor to init over the exec channel. Carries a socket for this command alone.
#[derive(Debug, Serialize, Deserialize)]
pub enum ExecCommand {
    /// Tells init to start another program. The file of the program follows the socket if the program
    /// has no path in the box, and then its three streams, unless it gets a terminal. On the socket, init sends [`ExecEvent`]s and the supervisor sends
    /// [`InitCommand::Signal`].
    Exec(Box<ExecSpec>),
    /// Tells init to stop all processes until the supervisor closes the socket. Answered by
    /// [`ExecEvent::Stopped`].
    Pause,
    /// Tells init to create a TCP socket, which stays in the network of the box and which the supervisor
    /// connects. Answered by [`ExecEvent::Socket`].
    Socket { is_v6: bool },
}

/// A program to start in a running box, with its arguments, variables and streams.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecSpec {
    pub argv: Vec<Bytes>,
    pub env: Vec<Bytes>,
    /// The working directory of the program, relative to the working directory of the payload.
    /// `None` is the latter.
    pub workdir: Option<Bytes>,
    pub stdio: Stdio,
    /// Whether a descriptor is the program, which then has no path in the box.
    pub has_program_fd: bool,
}

/// A message from init to the supervisor about one [`ExecCommand`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecEvent {
    /// The additional program was executed. Carries the master side of its terminal, if it has one.
    Started,
    /// The additional program could not be started.
    Failed { what: String, errno: i32 },
    /// The working directory of the program could not be entered.
    NoWorkdir { errno: i32 },
    /// The additional program could not be executed.
    ExecFailed { errno: i32 },
    /// The first process of the program ended; its child processes can still run.
    Ended { exit: Option<i32>, signal: Option<i32> },
    /// The signal `SIGSTOP` was sent to all processes of the box.
    Stopped,
    /// A TCP socket that is not connected, as a descriptor.
    Socket,
}

/// The part of building a box that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    Protocol,
    Namespaces,
    /// The setup of the box's routes and sockets failed.
    Net,
    /// The redirects of TCP connections to the sockets of the supervisor failed.
    Redirect,
    Cgroup,
    TimeNamespace,
    Root,
    Workspace,
    Proc,
    NestedUserns,
    Terminal,
    Landlock,
    Seccomp,
    Capabilities,
    NoNewPrivs,
    Rlimits,
    SelfTest,
}

/// The complete description of one box, which the supervisor makes and init carries out.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    pub hostname: Bytes,
    /// Network of the box. With `None` the box has only a loopback interface.
    pub net: Option<NetPlan>,
    /// The number of descriptors at the start of the list that are `tasks` files of cgroups (v1),
    /// which init joins. A thread that moves *itself* does not take the kernel's thread-group lock,
    /// which would cost an RCU grace period.
    pub cgroup_files: usize,
    pub root: RootKind,
    pub scratch: Scratch,
    /// The steps that fill the new root, in order.
    pub steps: Vec<Step>,
    /// Whether the last descriptor is the program of the payload, which then has no path in the box.
    pub has_program_fd: bool,
    /// Whether a descriptor after all others is the exec channel, which receives [`ExecCommand`]s.
    pub has_exec_channel: bool,
    /// The working directory of the payload, as a path inside the box.
    pub workdir: Bytes,
    pub argv: Vec<Bytes>,
    /// The complete environment of the payload, as `NAME=value`.
    pub env: Vec<Bytes>,
    pub limits: Vec<(Limit, u64)>,
    /// The number of CPUs that the payload is bound to, if no cgroup limits its CPU time.
    pub affinity: Option<u32>,
    /// Whether monotonic and boot clocks count from the start of the box instead of the host.
    pub own_clocks: bool,
    pub forbid_nested_userns: bool,
    pub landlock: Option<Landlock>,
    /// The compiled seccomp filter; each instruction is code, jump if true, jump if false, operand.
    pub seccomp: Option<Vec<(u16, u8, u8, u32)>>,
    pub stdio: Stdio,
    pub self_test: bool,
}

/// The network of a box: every address is local, and the supervisor owns the listening sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetPlan {
    /// The TCP ports, in addition to 53, that get a separate socket. At most [`MAX_PORTS`].
    pub ports: Vec<u16>,
    /// Whether an additional socket gets the connections to all other ports.
    pub any_port: bool,
}

/// The maximum number of TCP ports of a box that get a separate socket.
pub const MAX_PORTS: usize = 200;

/// Port of DNS servers.
pub const DNS: u16 = 53;

/// The purpose of one socket that listens inside the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Socket {
    DnsUdp,
    DnsTcp,
    Tcp(u16),
    /// The socket gets TCP connections to all ports that have no separate socket.
    Any,
}

/// The initial content of the new root.
#[derive(Debug, Serialize, Deserialize)]
pub enum RootKind {
    /// The root is an empty tmpfs, which becomes read-only after the steps of the plan.
    Empty,
    /// The root is a directory that the user chose, with an overlay in the scratch space for
    /// changes.
    Directory(Source),
}

/// The temporary storage of a box: one tmpfs, whose directories are mounted at several paths.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scratch {
    pub bytes: u64,
    pub inodes: u64,
    /// The directories of the tmpfs: name, path inside the box, and mode.
    pub at: Vec<(Bytes, Bytes, u32)>,
}

/// The source of a mount: a host path, or a mount that the supervisor opened.
#[derive(Debug, Serialize, Deserialize)]
pub enum Source {
    /// The mount source is a host path that init opens. `identity` is the required device and
    /// inode.
    Path { path: Bytes, identity: Option<(u64, u64)> },
    /// The mount source is a detached mount of the supervisor: the index of a descriptor of the
    /// plan.
    Descriptor(u32),
}

/// One step of filling the new root. Paths and targets are absolute paths inside the box.
#[derive(Debug, Serialize, Deserialize)]
pub enum Step {
    Dir {
        path: Bytes,
        mode: u32,
    },
    Symlink {
        path: Bytes,
        target: Bytes,
    },
    File {
        path: Bytes,
        content: Bytes,
    },
    /// Creates a file with `content` followed by the content of the host file `appended`.
    FileWithAppended {
        path: Bytes,
        content: Bytes,
        appended: Bytes,
    },
    /// Creates a symbolic link that replaces an existing file, and replaces symbolic links in its
    /// parent path.
    ReplaceWithSymlink {
        path: Bytes,
        target: Bytes,
    },
    /// A bind mount. An `optional` one is skipped if its source does not exist.
    Bind {
        source: Source,
        target: Bytes,
        access: Access,
        optional: bool,
    },
    /// `/proc`. A mask hides all entries that do not belong to a process, except those it names.
    Proc {
        mask: Option<ProcMask>,
    },
    /// Creates `/dev` with the standard devices and a new `devpts`.
    Devices,
    /// Covers an existing file or directory with an empty, read-only one.
    Hide {
        path: Bytes,
    },
    /// Hides the file `path`, which is relative to `beneath`, or makes it read-only, if it exists.
    /// Symbolic links are followed. The box cannot rename the target of the links or a directory
    /// above it afterwards.
    Mask {
        beneath: Bytes,
        path: Bytes,
        kind: MaskKind,
    },
    /// Creates a file that the box cannot change, remove or replace. It covers an existing file.
    FixedFile {
        path: Bytes,
        content: Bytes,
    },
    /// Mounts a read-only overlay of a directory. Unlike through a read-only bind mount, the box
    /// cannot connect to a Unix socket of the host in it.
    ReadOnlyOverlay {
        source: Source,
        target: Bytes,
    },
    /// Mounts an overlay of `lower` that stores changes in `layers/upper`, with `layers/work` for
    /// overlayfs.
    Overlay {
        lower: Source,
        layers: Source,
        target: Bytes,
        sync: LayerSync,
    },
}

/// Whether an overlay writes its upper layer to disk when a program, or the end of the mount, asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerSync {
    /// fsync(2) works as on the host. The end of the mount syncs the whole file system of the layers, which
    /// can take long and slows other programs on that file system.
    Real,
    /// fsync(2) and the end of the mount write nothing to disk (overlay option `volatile`). The caller must
    /// sync the files that it keeps.
    Skipped,
}

/// The access that a mask leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaskKind {
    /// The mask leaves no access: an empty file or directory covers the original.
    Hidden,
    /// The mask leaves read and execute access.
    ReadOnly,
}

/// The entries of `/proc` that stay visible in addition to the processes.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcMask {
    /// The names of entries of `/proc` that stay unchanged.
    pub keep: Vec<Bytes>,
    /// The files of `/proc` with replaced content: the path beneath `/proc` and the content.
    pub replace: Vec<(Bytes, Bytes)>,
}

/// The access that a bind mount grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The mount grants read and execute access; set-user-id bits and device nodes have no effect.
    ReadOnly,
    ReadWrite,
    /// The mount grants read, write and ioctl access to a device node.
    Device,
}

/// A resource limit of the payload. See setrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    Files,
    Processes,
    FileSize,
    Core,
    Data,
    MessageQueues,
    PendingSignals,
    LockedMemory,
}

/// The Landlock rules of the payload. Reading and executing is allowed on all paths.
#[derive(Debug, Serialize, Deserialize)]
pub struct Landlock {
    /// The paths beneath which the payload can write.
    pub writable: Vec<Bytes>,
    /// The device nodes that the payload can read, write and control with ioctl.
    pub devices: Vec<Bytes>,
}

/// The kind of a program's standard streams: a terminal or pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// Three descriptors of the message become standard input, output and error of the program.
    Pipes,
    /// The program gets a new terminal of the box, with this size.
    Terminal { rows: u16, columns: u16 },
}
