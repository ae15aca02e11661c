//! What a box changed, entry by entry, as it is written to `changes.json`.
//!
//! **Invariants:** one entry per path, in path order, so that everything beneath a directory
//! follows it; and every file that would go when a directory goes has its own entry.

use belljar_model::Clock;
use serde::{Deserialize, Serialize};

use crate::content::{Content, ContentHash};
use crate::lossless;
use crate::meta::{FileKind, Identity};
use crate::path::RelPath;

/// The format of `changes.json`.
const VERSION: u32 = 1;

/// Everything that one run changed in its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Changes {
    version: u32,
    /// When the box started; files that the host touched later have an unknown base.
    start: Clock,
    entries: Vec<Change>,
    too_long: Vec<TooLong>,
    /// What the upper layer holds as the host has it: nothing to take over, but from then on the box
    /// sees its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    same: Vec<Known>,
    /// Directories of the upper layer through which nothing of the host's is seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    opaque: Vec<RelPath>,
}

/// What the box started from at a path that its upper layer covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    pub path: RelPath,
    /// None: there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Identity>,
}

/// One path that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub path: RelPath,
    pub kind: Kind,
    /// What the user's directory held when the run was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Side>,
    /// What the box left there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Side>,
    /// What is known of the content that the box started from; none for directories and additions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Which file the user's directory held when the run was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Identity>,
    /// Something on the host would execute this, or be steered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risky: Option<Risk>,
    /// A program that was not one before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_executable: bool,
    /// A symbolic link that leads out of the workspace, or might.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads_out: bool,
    /// Setuid, setgid and sticky bits that the box set and that are never taken over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stripped: u32,
    /// Why this can be shown but not taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<Unsupported>,
    /// For something deleted: where its content went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<RelPath>,
}

/// In what way a path is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Added,
    Modified,
    Deleted,
    ModeChanged,
    TypeChanged,
    /// Added, with the content of a file that was deleted.
    Renamed {
        from: RelPath,
    },
}

/// One side of a change.
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
    pub target: Option<Target>,
}

/// What is known of the content that the box started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// A copy is in `base` under its hash.
    Kept,
    /// Only its hash (or link target) is known.
    HashOnly,
    /// Not even its hash: only which file it was.
    IdentityOnly,
    /// The host wrote to the file after the box had started.
    Unknown,
}

/// What the target of a symbolic link says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Target(pub Vec<u8>);

/// The rule of the risky table that a path matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Risk {
    pub pattern: String,
    pub why: String,
}

/// Why an entry cannot be taken over.
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

/// Names in a directory whose full path no program on the host could use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TooLong {
    pub within: RelPath,
    pub names: u64,
}

/// Exactly the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: u32,
    start: Clock,
    entries: Vec<Change>,
    too_long: Vec<TooLong>,
    #[serde(default)]
    same: Vec<Known>,
    #[serde(default)]
    opaque: Vec<RelPath>,
}

/// Why a manifest makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("version {found} is not {VERSION}, the one this program writes")]
    Version { found: u32 },
    #[error("its entries are not in path order")]
    Order,
}

impl Changes {
    /// Puts entries in path order.
    pub(crate) fn new(start: Clock, mut entries: Vec<Change>, too_long: Vec<TooLong>) -> Self {
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Self { version: VERSION, start, entries, too_long, same: Vec::new(), opaque: Vec::new() }
    }

    /// Remembers what the upper layer covers without changing it.
    pub(crate) fn covering(self, same: Vec<Known>, opaque: Vec<RelPath>) -> Self {
        Self { same, opaque, ..self }
    }

    pub(crate) fn same(&self) -> &[Known] {
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

    /// What the box named so that it cannot exist on the host.
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

    /// The entries beneath the one at `index`, which follow it directly.
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

impl TryFrom<Raw> for Changes {
    type Error = ManifestError;

    fn try_from(raw: Raw) -> Result<Self, ManifestError> {
        let Raw { version, start, entries, too_long, same, opaque } = raw;
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
    /// What kind of thing this is now, or was.
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

    /// Whether a directory makes way for something else, together with all that is in it.
    pub(crate) fn replaces_directory(&self) -> bool {
        self.kind == Kind::TypeChanged && self.old_kind() == Some(FileKind::Directory)
    }

    /// Why this is left out of an `apply` that does not name it.
    pub fn cautions(&self) -> impl Iterator<Item = Caution<'_>> {
        let risky = self.risky.as_ref().map(Caution::Risky);
        let executable = self.new_executable.then_some(Caution::NewExecutable);
        let link = self.leads_out.then_some(Caution::LeadsOut);
        [risky, executable, link].into_iter().flatten()
    }
}

/// One reason to look twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caution<'a> {
    Risky(&'a Risk),
    NewExecutable,
    LeadsOut,
}

impl Caution<'_> {
    /// In plain words.
    pub fn words(&self) -> &str {
        match self {
            Self::Risky(risk) => &risk.why,
            Self::NewExecutable => "a program that was not one before",
            Self::LeadsOut => "a symbolic link that leads out of the workspace",
        }
    }
}

impl Unsupported {
    /// In plain words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Fifo => "a named pipe cannot be taken over",
            Self::Socket => "a socket cannot be taken over",
            Self::Device => "a device cannot be taken over",
            Self::TooLarge => "it is larger than a reviewed file may be",
            Self::Unreadable => "it cannot be read",
            Self::Redirect => {
                "its overlay entry points elsewhere (user.overlay.redirect), which no box can ask for"
            }
            Self::Metacopy => {
                "its overlay entry has no content (user.overlay.metacopy), which no box can ask for"
            }
            Self::OtherFileSystem => "another file system is mounted there",
            Self::OwnState => "it belongs to Belljar itself",
        }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&lossless::encode(&self.0), f)
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        lossless::encode(&target.0)
    }
}

impl TryFrom<String> for Target {
    type Error = lossless::BadEscape;

    fn try_from(text: String) -> Result<Self, lossless::BadEscape> {
        lossless::decode(&text).map(Self)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(bits: &u32) -> bool {
    *bits == 0
}
