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
    /// Everything that reaches the payload, beside what every box has.
    pub env: Vec<(OsString, OsString)>,
    pub workspace: Option<Workspace>,
    /// What must not be reachable from inside, whatever is mounted: the state directory.
    pub hidden: Vec<PathBuf>,
    /// Rows and columns, when the payload gets a terminal.
    pub terminal: Option<(u16, u16)>,
    /// Seconds since the epoch, shown to the box as its time of boot.
    pub now: u64,
}

/// The user's directory, held open so that nobody can swap it.
#[derive(Debug)]
pub struct Workspace {
    pub place: OwnedFd,
    /// Where it really is, with every link resolved.
    pub path: PathBuf,
    /// For an overlay: the directory with `upper` and `work`.
    pub layers: Option<PathBuf>,
}
