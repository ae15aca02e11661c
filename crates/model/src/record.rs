//! The stored record of a run, which exists as long as the directory of the run does.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::choice::Mode;
use crate::id::{RunId, RunName};
use crate::outcome::RunResult;

/// The content of `run.json`: identity, workspace, command, state and result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    pub id: RunId,
    pub name: Option<RunName>,
    /// The creation time in milliseconds since the Unix epoch.
    pub created: u64,
    /// The workspace of the run; `None` for a box without a workspace.
    pub workspace: Option<WorkspaceAt>,
    pub mode: Mode,
    /// The command line, for display only; bytes that are not UTF-8 are replaced.
    pub argv: Vec<String>,
    pub template: String,
    pub state: RunState,
    pub review: Review,
    pub result: Option<RunResult>,
}

/// The workspace directory of a run and the time when the run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceAt {
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// The device and inode of the directory, to detect that another directory now has the same
    /// path.
    pub dev: u64,
    pub ino: u64,
    pub clock: Clock,
}

/// A time of the coarse real-time clock, which also sets the modification times of files.
///
/// A file of the host that changed after the start of a box has a later time than the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    pub secs: i64,
    pub nanos: u32,
}

/// The state of a run: running, finished or interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    Finished,
    /// The supervisor disappeared before the program ended.
    Interrupted,
}

/// The review state of the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Review {
    /// The run has no changes to review.
    None,
    Pending,
    Applied,
    PartlyApplied,
    Discarded,
}

impl RunState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Review {
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pending => "pending",
            Self::Applied => "applied",
            Self::PartlyApplied => "partly_applied",
            Self::Discarded => "discarded",
        }
    }

    /// Returns whether some changes of the run still wait for a review.
    pub const fn is_pending(self) -> bool {
        match self {
            Self::Pending | Self::PartlyApplied => true,
            Self::None | Self::Applied | Self::Discarded => false,
        }
    }
}

/// Serde functions for a path: a string if the path is UTF-8, otherwise a list of bytes.
pub(crate) mod path_bytes {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::text::OsText;

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        OsText(path.as_os_str()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        OsText::deserialize(deserializer).map(|OsText(text)| PathBuf::from(text))
    }

    /// Serde functions for an optional path.
    pub(crate) mod option {
        use std::ffi::OsString;
        use std::path::PathBuf;

        use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

        use crate::text::OsText;

        #[expect(clippy::ref_option, reason = "the signature that serde's `with` calls")]
        pub(crate) fn serialize<S: Serializer>(
            path: &Option<PathBuf>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            path.as_ref().map(|path| OsText(path.as_os_str())).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<PathBuf>, D::Error> {
            let path = Option::<OsText<OsString>>::deserialize(deserializer)?;
            Ok(path.map(|OsText(text)| PathBuf::from(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::outcome::Reason;
    use crate::outcome::tests::ended;

    fn record(path: &[u8]) -> RunRecord {
        RunRecord {
            id: RunId::new(1, 2),
            name: None,
            created: 1,
            workspace: Some(WorkspaceAt {
                path: OsStr::from_bytes(path).into(),
                dev: 3,
                ino: u64::MAX,
                clock: Clock { secs: -1, nanos: 999_999_999 },
            }),
            mode: Mode::Overlay,
            argv: vec!["make".into(), "-j".into()],
            template: "default".into(),
            state: RunState::Finished,
            review: Review::Pending,
            result: Some(ended(Reason::Exited, Some(0), None)),
        }
    }

    #[test]
    fn run_record_survives_a_round_trip_even_with_a_path_that_is_not_utf8() {
        for path in [&b"/home/u/project"[..], b"/odd/\xff\xfe", "/é".as_bytes()] {
            let record = record(path);
            let json = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RunRecord>(&json).unwrap(), record);
        }
        assert!(serde_json::to_string(&record(b"/p")).unwrap().contains(r#""path":"/p""#));
    }

    #[test]
    fn every_run_state_has_the_same_name_in_text_and_in_json() {
        for state in [RunState::Running, RunState::Finished, RunState::Interrupted] {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
        }
        let all = [
            Review::None,
            Review::Pending,
            Review::Applied,
            Review::PartlyApplied,
            Review::Discarded,
        ];
        for review in all {
            assert_eq!(serde_json::to_string(&review).unwrap(), format!("\"{}\"", review.name()));
        }
        assert_eq!(all.map(Review::is_pending), [false, true, false, true, false]);
    }
}
