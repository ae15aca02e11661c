//! Reasons why a change is not applied, with texts for people.

use serde::Serialize;

use crate::change::{Change, Unsupported};
use crate::path::RelPath;

/// The reason why a selected change is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// A permission rule of the user protects the path.
    Denied,
    /// The change is marked as risky and must be named by the user.
    Marked {
        why: Vec<String>,
    },
    /// Only inert files are applied, and the file is not known to be one.
    NotInert,
    Unsupported(Unsupported),
    /// The directory that contains the file is left out.
    NeedsDirectory {
        directory: RelPath,
    },
    /// The directory that the box deleted still has entries on the host.
    NotEmpty,
    /// The directory cannot be replaced because entries in it stay.
    DirectoryStays,
    /// The content of the new directory is left out.
    NothingInside,
    /// The file was moved, and its new name is left out, so its old name stays.
    MoveLeftOut {
        to: RelPath,
    },
}

/// The reason why a change conflicts with the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// The host changed the file after the run's changes were read.
    HostChanged,
    /// The host changed the file after the box had started, so the original is unknown.
    HostChangedDuringRun,
    HostDeleted,
    /// Host and box created the path with different content.
    AddedOnBoth,
    /// The host has another file type at the path.
    HostTypeChanged,
    /// The host removed the parent directory.
    DirectoryGone,
    /// The host has a file in place of the parent directory.
    BlockedByFile,
    /// The host has a symbolic link in place of the parent directory, and apply never follows
    /// links.
    BlockedBySymlink,
    /// Another file system is mounted at a parent directory.
    BlockedByMount,
    /// The host added entries to a directory that should be replaced.
    DirectoryInUse,
    /// The host changed the file during the apply. The host's file is unchanged.
    ChangedMeanwhile,
    /// The host changed the file during the apply and created another one: the earlier file is in
    /// the trash.
    KeptInTrash {
        number: u64,
    },
}

impl LeftOut {
    pub(crate) fn marked(change: &Change) -> Self {
        Self::Marked {
            why: change.cautions().map(|caution| caution.message().to_owned()).collect(),
        }
    }

    /// Returns the reason why a change is left out, as text for people.
    pub fn message(&self) -> String {
        let show = |path: &RelPath| belljar_model::display::safe(path.as_bytes());
        match self {
            Self::Marked { why } => {
                format!("{}: name it with --include-executable", why.join("; "))
            }
            Self::Denied => "a rule in [permissions] protects this path".to_owned(),
            Self::NotInert => {
                "direct mode applies only sources and documents: apply it with `belljar apply`"
                    .to_owned()
            }
            Self::Unsupported(why) => why.message().to_owned(),
            Self::NeedsDirectory { directory } => {
                format!("its directory {} is left out", show(directory))
            }
            Self::NotEmpty => "the directory is not empty on the host".to_owned(),
            Self::DirectoryStays => {
                "files in the directory that it would replace are left out".to_owned()
            }
            Self::NothingInside => "all files in the directory are left out".to_owned(),
            Self::MoveLeftOut { to } => {
                format!("the file was moved to {}, which is left out", show(to))
            }
        }
    }
}

impl ConflictReason {
    /// Returns the reason of the conflict as text for people.
    pub fn message(self) -> String {
        match self {
            Self::HostChanged => "you changed the file since the box ended".into(),
            Self::HostChangedDuringRun => "you changed the file since the box started".into(),
            Self::HostDeleted => "you deleted the file since the box started".into(),
            Self::AddedOnBoth => {
                "you and the box both created the file, with different content".into()
            }
            Self::HostTypeChanged => "the host has another type of file at this path".into(),
            Self::DirectoryGone => "you removed its directory".into(),
            Self::BlockedByFile => "its directory is a file on the host".into(),
            Self::BlockedBySymlink => "its directory is a symbolic link on the host".into(),
            Self::BlockedByMount => {
                "another file system is mounted at one of its directories".into()
            }
            Self::DirectoryInUse => "you added files to the directory that it would replace".into(),
            Self::ChangedMeanwhile => "the file changed during the apply".into(),
            Self::KeptInTrash { number } => format!(
                "the file changed during the apply; the earlier version is in trash/{number}"
            ),
        }
    }
}
