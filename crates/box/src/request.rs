//! The request for a box: program, template, workspace, network and files.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

pub use belljar_init::plan::{LayerSync, MaskKind};
use belljar_model::{RunId, Template};
use serde::{Deserialize, Serialize};

/// The maximum total size of [`Request::files`] in bytes; all files are sent in one message.
pub const MAX_FILES: usize = 64 * 1024;

/// The complete description of one box and its program. All paths and variables are already
/// resolved.
#[derive(Debug)]
pub struct Request {
    pub id: RunId,
    /// A random number, from which boxes of root derive their user id.
    pub random: u32,
    pub template: Template,
    pub argv: Vec<OsString>,
    /// The executable file to run if the program is not a file in the box. `argv[0]` is then only
    /// its name.
    pub program: Option<OwnedFd>,
    /// The environment variables of the payload, in addition to those of every box.
    pub env: Vec<(OsString, OsString)>,
    pub workspace: Option<Workspace>,
    /// The directory on the host that becomes the home directory of the box. `None`: a home in
    /// memory that ends with the box.
    pub home: Option<HomeMount>,
    /// The files that Belljar puts into the box and the box cannot change: absolute path inside,
    /// and content. At most [`MAX_FILES`] bytes in total. Paths below `/etc` and the home are
    /// allowed.
    ///
    /// In a persistent home, an empty file and its parent directories remain after the run. A symbolic
    /// link at such a path is removed; any other existing entry is renamed (`.aside-0`). The box can
    /// change the mode of a parent directory, but cannot move it.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// A directory of Belljar that the box can read. It covers every other mount at its path.
    pub data: Option<DataMount>,
    /// The paths of the workspace that are hidden or read-only.
    pub masks: Vec<Mask>,
    /// Whether more programs can be started in the box later, through an [`crate::ExecChannel`].
    pub exec_channel: bool,
    /// The host paths that no mount can expose: the state directory.
    pub hidden: Vec<PathBuf>,
    /// The network of the box; `None` means that the box has no network.
    pub net: Option<NetRequest>,
    /// The rows and columns of the payload's terminal, if it gets one. `None`: the payload gets
    /// pipes.
    pub terminal: Option<(u16, u16)>,
    /// The current time in seconds since the epoch; the box sees it as its boot time.
    pub now: u64,
}

/// The network of a box: every address is local, and the caller gets the listening sockets.
#[derive(Clone, Debug)]
pub struct NetRequest {
    /// The TCP ports that get their own listening socket, in addition to port 53.
    pub ports: Vec<u16>,
    /// Whether an additional socket receives the connections to all other TCP ports.
    pub any_port: bool,
    pub trust: Trust,
}

/// The certificate authorities that programs in a box trust.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The certificate of the box's own certificate authority, in PEM. It replaces the authorities
    /// of the system.
    pub ca_pem: Vec<u8>,
    /// Whether the certificate authorities of the host are trusted too, for connections that the
    /// broker does not intercept.
    pub trust_host_cas: bool,
    /// The certificate of the box's own authority as a Java key store with the default password
    /// `changeit`.
    pub jks: Vec<u8>,
}

/// The user's directory that a box works on. An open descriptor protects it from being swapped.
#[derive(Debug)]
pub struct Workspace {
    /// The directory as an `O_PATH` descriptor.
    pub place: OwnedFd,
    /// Path of the directory with all symbolic links resolved.
    pub path: PathBuf,
    /// The layers of the overlay, if the workspace is an overlay.
    pub layers: Option<OverlayLayers>,
    /// Whether the directory contains only files of earlier boxes and is mounted writable, without an
    /// overlay. Several boxes can share such a directory.
    pub scratch: bool,
}

/// The layers of an overlay on the host.
#[derive(Clone, Debug)]
pub struct OverlayLayers {
    /// Directory with `upper` and `work`, unless they are in an image.
    pub dir: PathBuf,
    pub sync: LayerSync,
    /// The mount of an image with `upper` and `work`, see [`crate::LayerImage::for_box`]. The kernel limits
    /// its size. Only for root.
    pub image: Option<Arc<OwnedFd>>,
}

/// A host directory that is mounted as the home of a box, and keeps its files after the run.
///
/// An open descriptor protects the directory from being swapped. Only [`crate::Supervision::disk`] limits
/// the space that a box uses in it.
#[derive(Debug)]
pub struct HomeMount {
    /// The directory as an `O_PATH` descriptor.
    pub place: OwnedFd,
    /// Path of the directory with all symbolic links resolved.
    pub path: PathBuf,
}

/// A directory of Belljar, such as the inputs of a task, that a box sees read-only.
///
/// Unlike a mount of the user, the directory can be part of Belljar's own state. An open descriptor
/// protects it from being swapped.
#[derive(Debug)]
pub struct DataMount {
    /// The directory as an `O_PATH` descriptor.
    pub place: OwnedFd,
    /// Path of the directory with all symbolic links resolved.
    pub path: PathBuf,
    /// The absolute path in the box.
    pub target: PathBuf,
}

/// A path of the workspace that is hidden or read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// The path of the mask, relative to the workspace. A path that is missing when the box starts
    /// is ignored. The mask applies to the target of a symbolic link; the link itself can be
    /// replaced.
    pub path: PathBuf,
    pub kind: MaskKind,
}
