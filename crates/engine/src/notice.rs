//! What a person should know although nothing failed: notices, and the observer who receives them.

use std::fmt;
use std::path::PathBuf;

use belljar_model::{Layer, RunId};

/// Receives notices. The command line prints them, a server logs them.
pub trait Observer: fmt::Debug + Send + Sync {
    fn notice(&self, notice: &Notice);
}

/// Drops every notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn notice(&self, _: &Notice) {}
}

/// One thing that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An isolation layer is off because the template says so.
    LayerWeakened(Layer),
    /// An incomplete append at the end of the ledger was moved to a file.
    LedgerRepaired { bytes: u64, kept: PathBuf },
    /// Something was done, and its end is not in the ledger.
    NotRecorded(String),
    /// A remark of the broker while it starts.
    Broker(String),
    /// A request of the box that raised an alarm, was denied or could not be recorded.
    Network(String),
    /// The changes of a box are kept and could not be read.
    ChangesUnreadable(String),
    /// Changed files wait for review after a session.
    ChangesWait { run: RunId, files: u64 },
    /// A change that direct mode did not apply, and why.
    HeldBack(String),
    /// A remark about the agent's files in the box.
    Outfit(String),
    /// A record on disk that cannot be read.
    Damaged(String),
    /// Something that stays although it is old.
    Kept(String),
    /// A line that another process of ours logged.
    Logged(String),
    /// A step that failed without ending the operation.
    Failed(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LayerWeakened(layer) => {
                write!(f, "layer `{layer}` is off, as asked: {}", layer.doc())
            }
            Self::LedgerRepaired { bytes, kept } => write!(
                f,
                "the ledger ended in an append that was cut short; {bytes} bytes that nobody was told of are now in {}",
                kept.display()
            ),
            Self::ChangesUnreadable(why) => {
                write!(f, "what the box changed is kept, but could not be read yet: {why}")
            }
            Self::ChangesWait { run, files } => write!(
                f,
                "{files} changed; look: belljar diff {run}, take: belljar apply {run}, drop: belljar discard {run}"
            ),
            Self::HeldBack(line) => write!(f, "held back: {line}"),
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
