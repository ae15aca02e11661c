//! Notices: messages for the user about an operation that did not fail.

use std::fmt;
use std::path::PathBuf;

use belljar_model::{Layer, RunId};

/// Receives the notices of the engine. The command line prints them, a server logs them.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Handles one notice.
    fn notice(&self, notice: &Notice);
}

/// An observer that ignores every notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn notice(&self, _: &Notice) {}
}

/// A message for the user about an operation that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An isolation layer of the box is off because the operator disabled it.
    LayerWeakened(Layer),
    /// An incomplete entry at the end of the ledger was moved to the file `kept`.
    LedgerRepaired { bytes: u64, kept: PathBuf },
    /// The result of an operation could not be recorded in the ledger.
    NotRecorded(String),
    /// A message of the broker about its start.
    Broker(String),
    /// A network request of the box was denied, raised an alarm or could not be recorded.
    Network(String),
    /// The changes of a box are kept, but could not be read.
    ChangesUnreadable(String),
    /// Changed files wait for review after a session ended.
    ChangesWait { run: RunId, files: u64 },
    /// A change that direct mode did not apply, with the reason.
    HeldBack(String),
    /// A message about the files, settings or secrets that the box is given for an agent.
    Outfit(String),
    /// A record on disk cannot be read.
    Damaged(String),
    /// An old box was not removed because of its unapplied changes.
    Kept(String),
    /// A log line of another Belljar process, such as the broker.
    Logged(String),
    /// A step failed, and the operation continued.
    Failed(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LayerWeakened(layer) => {
                write!(
                    f,
                    "isolation layer `{layer}` is off because the operator disabled it: {}",
                    layer.doc()
                )
            }
            Self::LedgerRepaired { bytes, kept } => write!(
                f,
                "repaired the ledger: moved an incomplete entry of {bytes} bytes at its end to {}; no complete entry is lost",
                kept.display()
            ),
            Self::ChangesUnreadable(why) => {
                write!(f, "the changes of the box are kept, but cannot be read: {why}")
            }
            Self::ChangesWait { run, files } => write!(
                f,
                "changed files: {files}; show: belljar diff {run}, apply: belljar apply {run}, discard: belljar discard {run}"
            ),
            Self::HeldBack(line) => write!(f, "change held back: {line}"),
            Self::NotRecorded(text)
            | Self::Broker(text)
            | Self::Network(text)
            | Self::Outfit(text)
            | Self::Damaged(text)
            | Self::Kept(text)
            | Self::Logged(text)
            | Self::Failed(text) => f.write_str(text),
        }
    }
}
