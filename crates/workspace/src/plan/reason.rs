//! Why something is not taken over, in plain words.

use serde::Serialize;

use crate::change::{Change, Unsupported};
use crate::path::RelPath;

/// Why an entry that was chosen is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// A rule of the user's keeps it as it is.
    Denied,
    /// It would run on the host, or lead out: it must be named.
    Marked {
        why: Vec<String>,
    },
    Unsupported(Unsupported),
    /// The directory it belongs into is left out.
    NeedsDirectory {
        directory: RelPath,
    },
    /// A directory in which something stays.
    NotEmpty,
    /// A directory that is to become something else, in which something stays.
    DirectoryStays,
    /// A directory in which nothing would be.
    NothingInside,
    /// The old place of a moved file whose new place is left out.
    MoveLeftOut {
        to: RelPath,
    },
}

/// In what way both sides changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// The host changed it after the run was sealed.
    HostChanged,
    /// The host changed it after the box had started, so what the box started from is not known.
    HostChangedDuringRun,
    HostDeleted,
    /// Both made it, with different content.
    AddedOnBoth,
    /// The host has another kind of thing there.
    HostTypeChanged,
    /// The host removed the directory it belongs into.
    DirectoryGone,
    /// The host put a file where the directory was.
    BlockedByFile,
    /// The host put a symbolic link where the directory was; we never go through one.
    BlockedBySymlink,
    /// Another file system is mounted on the way.
    BlockedByMount,
    /// The host put something into a directory that was to be replaced.
    DirectoryInUse,
    /// The host changed it while we were at work. Its file is where it was.
    ChangedMeanwhile,
    /// As before, and the host had put another file there already: the earlier one is in the trash.
    KeptInTrash {
        number: u64,
    },
}

impl LeftOut {
    pub(crate) fn marked(change: &Change) -> Self {
        Self::Marked { why: change.cautions().map(|caution| caution.words().to_owned()).collect() }
    }

    /// In plain words; every byte of them is safe to show.
    pub fn words(&self) -> String {
        let show = |path: &RelPath| belljar_model::display::safe(path.as_bytes());
        match self {
            Self::Marked { why } => {
                format!("{}: name it with --include-executable", why.join("; "))
            }
            Self::Denied => "a rule of [permissions] keeps it as it is".to_owned(),
            Self::Unsupported(why) => why.words().to_owned(),
            Self::NeedsDirectory { directory } => {
                format!("{} is left out, which it belongs into", show(directory))
            }
            Self::NotEmpty => "something in it stays".to_owned(),
            Self::DirectoryStays => "something in the directory it would replace stays".to_owned(),
            Self::NothingInside => "nothing in it is taken over".to_owned(),
            Self::MoveLeftOut { to } => {
                format!("it was moved to {}, which is left out", show(to))
            }
        }
    }
}

impl ConflictReason {
    /// In plain words.
    pub fn words(self) -> String {
        match self {
            Self::HostChanged => "you changed it since the box ended".into(),
            Self::HostChangedDuringRun => "you changed it since the box started".into(),
            Self::HostDeleted => "you deleted it since the box started".into(),
            Self::AddedOnBoth => "you and the box both made it, with different content".into(),
            Self::HostTypeChanged => "it is another kind of file on the host by now".into(),
            Self::DirectoryGone => "you removed the directory it belongs into".into(),
            Self::BlockedByFile => "the directory it belongs into is a file on the host".into(),
            Self::BlockedBySymlink => {
                "the directory it belongs into is a symbolic link on the host".into()
            }
            Self::BlockedByMount => "another file system is mounted on the way to it".into(),
            Self::DirectoryInUse => "you put something into the directory it would replace".into(),
            Self::ChangedMeanwhile => "it changed while it was being taken over".into(),
            Self::KeptInTrash { number } => format!(
                "it changed while it was being taken over; what was there is in trash/{number}"
            ),
        }
    }
}
