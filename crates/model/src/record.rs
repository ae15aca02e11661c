//! What is kept about a run while its directory exists.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::choice::Mode;
use crate::id::{RunId, RunName};
use crate::outcome::RunResult;

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    pub id: RunId,
    pub name: Option<RunName>,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
    /// `None` for a box without one.
    pub workspace: Option<WorkspaceAt>,
    pub mode: Mode,
    /// What was run, for people; bytes that are not UTF-8 are replaced.
    pub argv: Vec<String>,
    pub template: String,
    pub state: RunState,
    pub review: Review,
    pub result: Option<RunResult>,
}

/// Which directory a box worked on, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceAt {
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// Device and inode, so that another directory of the same name is not taken for it.
    pub dev: u64,
    pub ino: u64,
    pub clock: Clock,
}

/// The coarse real-time clock, the one file times come from, when a box started: a file of the host
/// that changed later carries a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    pub secs: i64,
    pub nanos: u32,
}

/// Where a run is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    Finished,
    /// The supervisor went away before the program ended.
    Interrupted,
}

/// What became of the changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Review {
    /// There is nothing to look at.
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

    /// Whether something of the box is still held back.
    pub const fn waits(self) -> bool {
        match self {
            Self::Pending | Self::PartlyApplied => true,
            Self::None | Self::Applied | Self::Discarded => false,
        }
    }
}

/// Serde of a path that need not be UTF-8: text where it can be, else a list of bytes.
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

    /// The same for a path that may be missing.
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
    fn a_record_survives_a_round_trip_also_with_a_path_that_is_not_text() {
        for path in [&b"/home/u/project"[..], b"/odd/\xff\xfe", "/é".as_bytes()] {
            let record = record(path);
            let json = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RunRecord>(&json).unwrap(), record);
        }
        assert!(serde_json::to_string(&record(b"/p")).unwrap().contains(r#""path":"/p""#));
    }

    #[test]
    fn states_have_one_name() {
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
        assert_eq!(all.map(Review::waits), [false, true, false, true, false]);
    }
}
