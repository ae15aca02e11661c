//! The changes of a box, entry by entry, as stored in `changes.json`.
//!
//! **Invariants:** there is one entry per path. Entries are in path order, so the entries beneath a
//! directory follow it. If a directory was deleted, every file in it has its own entry.

use belljar_model::{Clock, risky};
use serde::{Deserialize, Serialize};

use crate::content::{Content, ContentHash};
use crate::lossless;
use crate::meta::{FileKind, Identity};
use crate::path::RelPath;

/// The version of the `changes.json` format.
const VERSION: u32 = 1;

/// All changes of one run in its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawChanges")]
pub struct Changes {
    version: u32,
    /// The start time of the box. The base of a file that the host changed later is unknown.
    start: Clock,
    entries: Vec<Change>,
    too_long: Vec<TooLong>,
    /// The files in the box's upper layer that are equal to the host's. They need no apply, but
    /// later changes on the host stay hidden from the box.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    same: Vec<StartState>,
    /// The opaque directories of the upper layer, which hide the host's directory completely.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    opaque: Vec<RelPath>,
}

/// The state of a path when the box started, for a path in the upper layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartState {
    pub path: RelPath,
    /// The host's version of the path; `None` if the path did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Identity>,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub path: RelPath,
    pub kind: ChangeKind,
    /// The host's version of the path when the run's changes were read; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Side>,
    /// The box's version of the path; `None` if the box deleted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Side>,
    /// How much is known about the original content; `None` for directories and added files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The identity of the user's file when the run's changes were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Identity>,
    /// The rule that the path matches if a program on the host would execute this file or read it
    /// as configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risky: Option<Risk>,
    /// Whether the file became executable in the box.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_executable: bool,
    /// Whether the entry is a symbolic link that can lead out of the workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads_out: bool,
    /// The setuid, setgid and sticky bits that the box set, which are not applied. An apply never
    /// sets them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stripped: u32,
    /// The reason why this change can be shown but not applied, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<Unsupported>,
    /// The path of the added file with the same content, if this deleted file was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<RelPath>,
    /// Whether the content of `new` is in `base` under its hash, and not in the upper layer.
    #[serde(skip)]
    pub(crate) is_stored: bool,
}

/// How a path changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    ModeChanged,
    TypeChanged,
    /// The path was added with the content of a deleted file.
    Renamed {
        from: RelPath,
    },
}

/// One version of a changed path: the host's or the box's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<LinkTarget>,
}

/// How much is known about the original content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// A copy of the original content is stored in `base` under its hash.
    Kept,
    /// Only the hash or the link target of the original is known.
    HashOnly,
    /// Only the identity (inode and times) of the original file is known.
    IdentityOnly,
    /// The original is unknown, because the host wrote to the file after the box had started.
    Unknown,
}

/// The target of a symbolic link, as bytes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LinkTarget(pub Vec<u8>);

/// The rule for risky paths that a changed path matches, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Risk {
    pub pattern: String,
    pub why: String,
}

/// The reason why a changed path cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsupported {
    Fifo,
    Socket,
    Device,
    TooLarge,
    Unreadable,
    Redirect,
    Metacopy,
    OtherFileSystem,
    OwnState,
}

/// The number of names in a directory whose full path exceeds the length limit of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TooLong {
    pub within: RelPath,
    pub names: u64,
}

/// The content of `changes.json` before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChanges {
    version: u32,
    start: Clock,
    entries: Vec<Change>,
    too_long: Vec<TooLong>,
    #[serde(default)]
    same: Vec<StartState>,
    #[serde(default)]
    opaque: Vec<RelPath>,
}

/// The reason why the content of `changes.json` is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error(
        "changes.json has the unsupported version {found}; this program reads version {VERSION}"
    )]
    Version { found: u32 },
    #[error("the entries of changes.json are not sorted by path")]
    Order,
}

impl Changes {
    /// Creates the list of changes and sorts the entries by path.
    pub(crate) fn new(start: Clock, mut entries: Vec<Change>, too_long: Vec<TooLong>) -> Self {
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Self { version: VERSION, start, entries, too_long, same: Vec::new(), opaque: Vec::new() }
    }

    /// Adds the paths that the box's upper layer contains without a change.
    pub(crate) fn covering(self, same: Vec<StartState>, opaque: Vec<RelPath>) -> Self {
        Self { same, opaque, ..self }
    }

    pub(crate) fn same(&self) -> &[StartState] {
        &self.same
    }

    pub(crate) fn opaque(&self) -> &[RelPath] {
        &self.opaque
    }

    pub fn entries(&self) -> &[Change] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.too_long.is_empty()
    }

    /// Returns the directories with names that are too long to exist on the host.
    pub fn too_long(&self) -> &[TooLong] {
        &self.too_long
    }

    pub const fn start(&self) -> Clock {
        self.start
    }

    pub fn get(&self, path: &RelPath) -> Option<&Change> {
        self.entries.get(self.position(path)?)
    }

    pub(crate) fn position(&self, path: &RelPath) -> Option<usize> {
        self.entries.binary_search_by(|change| change.path.cmp(path)).ok()
    }

    /// Returns the range of the changes beneath the path of the change at `index`.
    pub(crate) fn beneath(&self, index: usize) -> std::ops::Range<usize> {
        let from = index + 1;
        let Some((top, rest)) = self.entries.get(index..).and_then(<[Change]>::split_first) else {
            return from..from;
        };
        from..from + rest.partition_point(|change| change.path.is_beneath(&top.path))
    }

    pub(crate) fn entries_mut(&mut self) -> &mut [Change] {
        &mut self.entries
    }
}

impl TryFrom<RawChanges> for Changes {
    type Error = ManifestError;

    fn try_from(raw: RawChanges) -> Result<Self, ManifestError> {
        let RawChanges { version, start, entries, too_long, same, opaque } = raw;
        if version != VERSION {
            return Err(ManifestError::Version { found: version });
        }
        if !entries.is_sorted_by(|one, other| one.path < other.path) {
            return Err(ManifestError::Order);
        }
        Ok(Self { version, start, entries, too_long, same, opaque })
    }
}

impl Change {
    /// Returns the file type in the box, or on the host for a deleted file.
    pub fn file_kind(&self) -> FileKind {
        let side = self.new.as_ref().or(self.old.as_ref());
        side.map_or(FileKind::File, |side| side.kind)
    }

    pub(crate) fn old_kind(&self) -> Option<FileKind> {
        self.old.as_ref().map(|side| side.kind)
    }

    pub(crate) fn new_kind(&self) -> Option<FileKind> {
        self.new.as_ref().map(|side| side.kind)
    }

    /// Returns whether the change replaces a directory, with everything in it, by a file or link.
    pub(crate) fn replaces_directory(&self) -> bool {
        self.kind == ChangeKind::TypeChanged && self.old_kind() == Some(FileKind::Directory)
    }

    /// Returns the reasons why `apply` skips this change unless the user names it.
    pub fn cautions(&self) -> impl Iterator<Item = Caution<'_>> {
        let risky = self.risky.as_ref().map(Caution::Risky);
        let executable = self.new_executable.then_some(Caution::NewExecutable);
        let link = self.leads_out.then_some(Caution::LeadsOut);
        [risky, executable, link].into_iter().flatten()
    }

    /// Returns whether the change is known to make no program of the host do anything.
    ///
    /// That holds for directories, and for sources and documents that are not executable.
    pub fn is_inert(&self) -> bool {
        let is_directory = |side: &Side| side.kind == FileKind::Directory;
        if self.old.iter().chain(&self.new).all(is_directory) {
            return true;
        }
        let is_executable = |side: &Side| side.kind == FileKind::File && side.mode & 0o111 != 0;
        !self.new.as_ref().is_some_and(is_executable) && risky::is_inert(self.path.as_bytes())
    }
}

/// A reason why the user must confirm a change by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caution<'a> {
    Risky(&'a Risk),
    NewExecutable,
    LeadsOut,
}

impl Caution<'_> {
    /// Returns the reason why the user must confirm the change, as text for people.
    pub fn message(&self) -> &str {
        match self {
            Self::Risky(risk) => &risk.why,
            Self::NewExecutable => "a new executable file",
            Self::LeadsOut => "a symbolic link that leads out of the workspace",
        }
    }
}

impl Unsupported {
    /// Returns the reason why the entry cannot be applied, as text for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Fifo => "apply does not support named pipes",
            Self::Socket => "apply does not support sockets",
            Self::Device => "apply does not support device files",
            Self::TooLarge => "the file is larger than the limit for a reviewed file",
            Self::Unreadable => "the file cannot be read",
            Self::Redirect => {
                "its overlay entry has the attribute user.overlay.redirect, which a box cannot set"
            }
            Self::Metacopy => {
                "its overlay entry has the attribute user.overlay.metacopy, which a box cannot set"
            }
            Self::OtherFileSystem => "another file system is mounted at this path",
            Self::OwnState => "the path is in Belljar's own state directory",
        }
    }
}

impl std::fmt::Debug for LinkTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&lossless::encode(&self.0), f)
    }
}

impl From<LinkTarget> for String {
    fn from(target: LinkTarget) -> Self {
        lossless::encode(&target.0)
    }
}

impl TryFrom<String> for LinkTarget {
    type Error = lossless::BadEscape;

    fn try_from(text: String) -> Result<Self, lossless::BadEscape> {
        lossless::decode(&text).map(Self)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(bits: &u32) -> bool {
    *bits == 0
}
