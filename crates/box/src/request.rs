//! What the caller asks for: one program, one template, one workspace.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use belljar_init::plan::MaskKind;
use belljar_model::{RunId, Template};

/// So much all files of [`Request::files`] may have together; they travel in one message.
pub const MAX_FILES: usize = 64 * 1024;

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
    /// Keeps the home beyond the run; none: it is in memory and ends with the box.
    pub home: Option<Kept>,
    /// Files of our own that nobody inside can change: absolute path inside, content; not more than
    /// [`MAX_FILES`] bytes. Also beneath `/etc` and the home. In a kept home an empty file, and
    /// the directories above it, stay behind; a link that was in the way is gone, and what else was
    /// has another name (`.aside-0`). A directory above can be closed from inside (chmod), not moved.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// What of the workspace is less than the rest.
    pub masks: Vec<Mask>,
    /// Whether programs can be started in it later.
    pub door: bool,
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

/// A directory of ours that is the home of a box, held open so that nobody can swap it.
///
/// What boxes write to it is on the host's disk: only [`crate::Supervision::disk`] limits it.
#[derive(Debug)]
pub struct Kept {
    pub place: OwnedFd,
    /// Where it really is, with every link resolved.
    pub path: PathBuf,
}

/// One place of the workspace with less rights than the rest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Relative to the workspace. What does not exist when the box starts is ignored. A link is
    /// followed: what it leads to is masked, while the link itself can be replaced.
    pub path: PathBuf,
    pub kind: MaskKind,
}
