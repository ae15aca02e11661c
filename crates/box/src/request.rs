//! What the caller asks for: one program, one template, one workspace.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use belljar_model::{RunId, Template};

/// One run, completely described. Paths and variables are resolved; nothing is looked up later.
#[derive(Debug)]
pub struct Request {
    pub id: RunId,
    /// Tells the boxes of root apart; any random number.
    pub random: u32,
    pub template: Template,
    pub argv: Vec<OsString>,
    /// The program itself, when it is nowhere in the box; `argv` then only says how it is called.
    pub program: Option<OwnedFd>,
    /// Everything that reaches the payload, beside what every box has.
    pub env: Vec<(OsString, OsString)>,
    pub workspace: Option<Workspace>,
    /// What must not be reachable from inside, whatever is mounted: the state directory.
    pub hidden: Vec<PathBuf>,
    /// `None`: no network at all.
    pub net: Option<NetRequest>,
    /// Rows and columns, when the payload gets a terminal.
    pub terminal: Option<(u16, u16)>,
    /// Seconds since the epoch, shown to the box as its time of boot.
    pub now: u64,
}

/// A network whose every address is the box's own, and whose sockets go to the caller.
#[derive(Clone, Debug)]
pub struct NetRequest {
    /// TCP ports that get a socket of their own, beside the one of name servers.
    pub ports: Vec<u16>,
    /// Whether one more socket gets the connections to every other port.
    pub any_port: bool,
    pub trust: Trust,
}

/// Whom the programs of a box believe.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The certificate of the box's own authority, in PEM. It replaces those of the system.
    pub ca_pem: Vec<u8>,
    /// Whether those of the host stay beside it: for connections that are passed on as they are.
    pub and_the_hosts: bool,
    /// The same as a key store of Java; its password is `changeit`, which is Java's default.
    pub jks: Vec<u8>,
}

/// The user's directory, held open so that nobody can swap it.
#[derive(Debug)]
pub struct Workspace {
    pub place: OwnedFd,
    /// Where it really is, with every link resolved.
    pub path: PathBuf,
    /// For an overlay: the directory with `upper` and `work`.
    pub layers: Option<PathBuf>,
    /// Nobody's work but that of earlier boxes: shown as it is, to be written to. Several boxes may have
    /// it at once.
    pub scratch: bool,
}
