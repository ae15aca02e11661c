//! Tools of a server that wait for the operator's agreement.

use anyhow::Context as _;
use belljar_code::pin::{CheckedTool, Pin, Pins};
use belljar_ledger::{ApprovalAsked, ApprovalGiven, Digest, Draft};
use belljar_model::display;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

/// What a server offers and the operator has not accepted: new and changed tools, and the names of
/// accepted tools that are gone.
#[derive(Clone, Debug)]
pub struct Offer {
    pub(super) server: String,
    pub(super) tools: Vec<(CheckedTool, Pin)>,
    pub(super) gone: Vec<String>,
}

impl Offer {
    /// The same offer for one tool only.
    #[must_use]
    pub fn only(mut self, tool: &str) -> Self {
        self.tools.retain(|(judged, _)| judged.name == tool);
        self.gone.retain(|name| name == tool);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.gone.is_empty()
    }

    /// New and changed tools.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &CheckedTool> {
        self.tools.iter().map(|(judged, _)| judged)
    }

    /// Accepted tools that the server has no more. They are forgotten with [`Offer::accept`].
    pub fn gone(&self) -> &[String] {
        &self.gone
    }

    /// Accepts the tools exactly as they are offered here: each agreement is recorded, then in force.
    pub fn accept(&self, state: &Scoped) -> Result<(), EngineError> {
        let ledger = record::open(state).kind(ErrorKind::Broken)?;
        let mut drafts = Vec::new();
        for (judged, pin) in &self.tools {
            let bound_to = Digest::of(&[pin.whole.as_bytes()]);
            let (tool, server) = (display::safe(&judged.name), &self.server);
            let what = format!("call the tool {tool} of the server {server}");
            drafts.push(Draft::new(ApprovalAsked { what, bound_to }));
            let (by, verdict) = ("operator".to_owned(), "allow".to_owned());
            drafts.push(Draft::new(ApprovalGiven { by, verdict, bound_to }));
        }
        if !drafts.is_empty() {
            ledger.record_all(drafts).context("record what is accepted").kind(ErrorKind::Broken)?;
        }
        let pins: Vec<(String, Pin)> =
            self.tools.iter().map(|(judged, pin)| (judged.name.clone(), pin.clone())).collect();
        let accepted =
            Pins::open(state.home()).and_then(|all| all.accept(&self.server, &pins, &self.gone));
        accepted.kind(ErrorKind::Broken)
    }
}
