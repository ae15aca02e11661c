//! The turns of a conversation with a model. All protocols share these types.

/// One turn after the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// An answer of the model, with the calls of tools in it.
    Model { text: String, calls: Vec<Call> },
    /// The results of the calls of the last answer, in their order.
    Results(Vec<CallResult>),
    /// A request to correct the last answer.
    Correction(String),
}

/// A call of a tool. All parts come from the model and are unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments as JSON text.
    pub(super) arguments: String,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallResult {
    /// The id of the call.
    pub(super) id: String,
    pub(super) text: String,
    pub(super) is_error: bool,
}

impl Turn {
    /// Returns the number of bytes that the turn adds to a request, about.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Model { text, calls } => {
                let calls = calls.iter().map(|it| it.id.len() + it.name.len() + it.arguments.len());
                text.len() + calls.sum::<usize>()
            }
            Self::Results(results) => {
                results.iter().map(|it| it.id.len() + it.text.len()).sum::<usize>()
            }
            Self::Correction(text) => text.len(),
        };
        bytes as u64
    }
}
