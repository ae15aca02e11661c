//! The option `--purpose`, which filters lists of runs.

use belljar_engine::record::runs::Purposes;
use belljar_model::Purpose;
use clap::ValueEnum;

/// A value of `--purpose`: why a box was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PurposeChoice {
    /// `belljar run`
    Run,
    /// A program of a model: `belljar code`, `belljar mcp`
    Call,
    /// A named box
    Box,
    /// A tool server
    ToolServer,
    /// A process that reads the commits of a box from its clone
    CloneReader,
    /// A task of a plan
    Task,
    /// The run of a plan
    Plan,
    /// All purposes
    All,
}

impl PurposeChoice {
    /// Returns the purposes for the engine, or `None` if the user gave none.
    pub(crate) fn chosen(choices: &[Self]) -> Option<Purposes> {
        let purpose = |choice: &Self| match choice {
            Self::Run => vec![Purpose::Run],
            Self::Call => vec![Purpose::Call],
            Self::Box => vec![Purpose::Box],
            Self::ToolServer => vec![Purpose::ToolServer],
            Self::CloneReader => vec![Purpose::CloneReader],
            Self::Task => vec![Purpose::Task],
            Self::Plan => vec![Purpose::Plan],
            Self::All => Purpose::ALL.to_vec(),
        };
        (!choices.is_empty()).then(|| Purposes::of(choices.iter().flat_map(purpose)))
    }
}
