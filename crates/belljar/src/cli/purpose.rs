//! `--purpose`: which runs a list shows.

use belljar_engine::record::runs::Purposes;
use belljar_model::Purpose;
use clap::ValueEnum;

/// What a box was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PurposeChoice {
    /// `belljar run`
    Run,
    /// One program of a model
    Call,
    /// A named box
    Box,
    /// A server of tools
    ToolServer,
    /// Reading the work of a box in its clone
    CloneReader,
    /// All of these
    All,
}

impl PurposeChoice {
    /// The purposes that were typed; `None` if none was.
    pub(crate) fn chosen(typed: &[Self]) -> Option<Purposes> {
        let purpose = |choice: &Self| match choice {
            Self::Run => vec![Purpose::Run],
            Self::Call => vec![Purpose::Call],
            Self::Box => vec![Purpose::Box],
            Self::ToolServer => vec![Purpose::ToolServer],
            Self::CloneReader => vec![Purpose::CloneReader],
            Self::All => Purpose::ALL.to_vec(),
        };
        (!typed.is_empty()).then(|| Purposes::of(typed.iter().flat_map(purpose)))
    }
}
