//! What the supervisor asks of init, and what init answers.
//!
//! Data only: the same types are compiled into both sides. Paths inside the box are bytes, because
//! file names are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A path or string as the kernel sees it.
pub type Bytes = Vec<u8>;

/// From the supervisor to init.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Build the box and lock it; the descriptors come with it. Answered by [`Event::Built`].
    Build(Box<Plan>),
    /// Start the payload. Answered by [`Event::Started`] or [`Event::ExecFailed`].
    Go,
    /// Deliver this signal to the payload.
    Signal(i32),
}

/// From init to the supervisor.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Some of the sockets that [`NetPlan`] asks for, as descriptors in this order. All come before
    /// [`Event::Built`].
    Sockets(Vec<Socket>),
    /// The box stands. With the terminal's master and the box's `/proc` as descriptors, where asked.
    Built { landlock_abi: u32 },
    /// The box could not be built; nothing of the payload ran.
    Failed { stage: Stage, what: String, errno: i32 },
    /// The payload runs.
    Started,
    /// The program could not be executed.
    ExecFailed { errno: i32 },
    /// The payload's first process ended; the box ends with it.
    Ended { exit: Option<i32>, signal: Option<i32>, spent: Option<Spent> },
}

/// What everything in a box took. Said when nothing is left in it but init, which is about to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub user: Duration,
    pub system: Duration,
    /// Resident memory of the largest process.
    pub max_rss_bytes: u64,
}

/// From the supervisor to init over the line, with a socket that is for this wish alone.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// Start one more program; its three streams come behind the socket, unless it gets a terminal.
    /// Over the socket go [`Word`]s to the supervisor and [`Order::Signal`] to init.
    Exec(Box<Guest>),
    /// Stop every process until the other end of the socket is gone. Answered by [`Word::Stopped`].
    Pause,
}

/// A program that joins the box.
#[derive(Debug, Serialize, Deserialize)]
pub struct Guest {
    pub argv: Vec<Bytes>,
    pub env: Vec<Bytes>,
    /// Where it starts, if not where the first program did; relative to there.
    pub workdir: Option<Bytes>,
    pub stdio: Stdio,
}

/// What became of one [`Call`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The guest runs. With the terminal's master, if it has one.
    Started,
    /// It could not be started.
    Failed { what: String, errno: i32 },
    /// There is no such directory for it.
    NoWorkdir { errno: i32 },
    /// The program could not be executed.
    ExecFailed { errno: i32 },
    /// Its first process ended; others that it started may live on.
    Ended { exit: Option<i32>, signal: Option<i32> },
    /// Every process was told to stop.
    Stopped,
}

/// Which part of the box could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    Protocol,
    Namespaces,
    /// Routes and sockets of the box's network.
    Net,
    /// What gives connections to any port to one socket.
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

/// Everything init needs to know to build one box.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    pub hostname: Bytes,
    /// `None`: the box has a loopback and nothing else.
    pub net: Option<NetPlan>,
    /// So many of the first descriptors are `tasks` files of cgroups (v1) to join. A thread that moves
    /// *itself* does not take the kernel's thread-group lock, which would cost an RCU grace period.
    pub doors: usize,
    pub root: RootKind,
    pub scratch: Scratch,
    /// Furnishes the new root, in order.
    pub steps: Vec<Step>,
    /// Whether the last descriptor is the program, which is then nowhere in the box.
    pub carried: bool,
    /// Whether the descriptor behind all others is the line over which [`Call`]s come.
    pub line: bool,
    /// Working directory inside the box.
    pub workdir: Bytes,
    pub argv: Vec<Bytes>,
    /// `NAME=value`, and nothing else reaches the payload.
    pub env: Vec<Bytes>,
    pub limits: Vec<(Limit, u64)>,
    /// CPUs that the payload may use when no cgroup can hold it.
    pub affinity: Option<u32>,
    /// Clocks that count from the start of the box instead of the host's.
    pub own_clocks: bool,
    pub forbid_nested_userns: bool,
    pub landlock: Option<Landlock>,
    /// A compiled filter: code, jump if true, jump if false, operand.
    pub seccomp: Option<Vec<(u16, u8, u8, u32)>>,
    pub stdio: Stdio,
    pub self_test: bool,
}

/// The network of a box: every address is its own, and who listens there is the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetPlan {
    /// TCP ports beside 53 that get a socket of their own. At most [`MAX_PORTS`].
    pub ports: Vec<u16>,
    /// Whether one more socket gets the connections to every other port.
    pub any_port: bool,
}

/// Most ports that a box listens on one by one.
pub const MAX_PORTS: usize = 200;

/// The port of name servers.
pub const DNS: u16 = 53;

/// One socket that listens inside the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Socket {
    DnsUdp,
    DnsTcp,
    Tcp(u16),
    /// Connections to every port that no other socket has.
    Any,
}

/// How the new root begins.
#[derive(Debug, Serialize, Deserialize)]
pub enum RootKind {
    /// An empty tmpfs that is read-only once it is furnished.
    Empty,
    /// The user's own directory, writable through a layer in the scratch space.
    Directory(Source),
}

/// The box's own space in memory: one tmpfs, of which each named directory shows at its target.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scratch {
    pub bytes: u64,
    pub inodes: u64,
    /// Name, target and mode.
    pub at: Vec<(Bytes, Bytes, u32)>,
}

/// Where something on the host comes from.
#[derive(Debug, Serialize, Deserialize)]
pub enum Source {
    /// A path on the host, opened by init. `identity` is the device and inode it must have.
    Path { path: Bytes, identity: Option<(u64, u64)> },
    /// The n-th descriptor that came with the plan: a mount that the supervisor has detached.
    Descriptor(u32),
}

/// One act of furnishing the new root. Targets are absolute paths inside the box.
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
    /// A file with the content of one of the host's behind its own.
    Joined {
        path: Bytes,
        content: Bytes,
        behind: Bytes,
    },
    /// A link in the place of whatever is there, also of links on the way.
    Replace {
        path: Bytes,
        target: Bytes,
    },
    Bind {
        source: Source,
        target: Bytes,
        access: Access,
        optional: bool,
    },
    /// `/proc`; entries that are not about processes are covered unless `keep` names them.
    Proc {
        mask: Option<ProcMask>,
    },
    Devices,
    /// An empty, read-only thing over this one, if it is there.
    Hide {
        path: Bytes,
    },
    /// Takes rights from `path`, which is relative to `beneath`, if it is there. Links are followed, and
    /// neither what they lead to nor a directory above it can be renamed afterwards.
    Mask {
        beneath: Bytes,
        path: Bytes,
        kind: MaskKind,
    },
    /// A file of ours that nobody can change, remove or replace, whatever was there.
    Own {
        path: Bytes,
        content: Bytes,
    },
    /// A directory that can only be read, through an overlay: a socket that somebody serves in it
    /// cannot be connected to, which a read-only bind would allow.
    Show {
        source: Source,
        target: Bytes,
    },
    /// `lower` as it is, changes into `layers/upper`; `layers/work` is overlayfs's own.
    Overlay {
        lower: Source,
        layers: Source,
        target: Bytes,
    },
}

/// What a mask leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaskKind {
    /// Nothing: something empty is in its place.
    Hidden,
    /// It can be read and executed.
    ReadOnly,
}

/// What remains visible of `/proc` beside the processes.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcMask {
    /// Entries shown as they are.
    pub keep: Vec<Bytes>,
    /// Entries shown with a content of our own: a path beneath `/proc` and the content.
    pub replace: Vec<(Bytes, Bytes)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and execute; no set-user-id, no devices.
    ReadOnly,
    ReadWrite,
    /// A device node: readable, writable, and a device.
    Device,
}

/// Resource limits of the payload, as in setrlimit(2).
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

/// Paths beneath which the payload may write; reading and executing is allowed everywhere it sees.
#[derive(Debug, Serialize, Deserialize)]
pub struct Landlock {
    pub writable: Vec<Bytes>,
    /// Devices: readable, writable, ioctl.
    pub devices: Vec<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// The last three descriptors of the plan are 0, 1 and 2.
    Pipes,
    /// A terminal of the box's own, with this size.
    Terminal { rows: u16, columns: u16 },
}
