//! The tools of a tool server that wait for the operator's acceptance.

use anyhow::Context as _;
use belljar_code::pin::{CheckedTool, Pin, Pins};
use belljar_ledger::{ApprovalAsked, ApprovalGiven, Digest, Draft};
use belljar_model::display;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

/// The difference between the tools of a server and the tools that the operator accepted: new tools,
/// changed tools, and the names of accepted tools that the server no longer has.
#[derive(Clone, Debug)]
pub struct Offer {
    pub(super) server: String,
    pub(super) tools: Vec<(CheckedTool, Pin)>,
    pub(super) gone: Vec<String>,
}

impl Offer {
    /// Restricts the offer to one tool.
    #[must_use]
    pub fn only(mut self, tool: &str) -> Self {
        self.tools.retain(|(checked, _)| checked.name == tool);
        self.gone.retain(|name| name == tool);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.gone.is_empty()
    }

    /// Returns the new and the changed tools.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &CheckedTool> {
        self.tools.iter().map(|(checked, _)| checked)
    }

    /// Returns the names of accepted tools that the server no longer has. [`Offer::accept`] removes their
    /// pins.
    pub fn gone(&self) -> &[String] {
        &self.gone
    }

    /// Accepts the tools of this offer. Each acceptance is recorded in the ledger before it takes effect.
    pub fn accept(&self, state: &Scoped) -> Result<(), EngineError> {
        let ledger = record::open(state).kind(ErrorKind::Broken)?;
        let mut drafts = Vec::new();
        for (checked, pin) in &self.tools {
            let bound_to = Digest::of(&[pin.whole.as_bytes()]);
            let (tool, server) = (display::safe(&checked.name), &self.server);
            let what = format!("call the tool {tool} of the server {server}");
            drafts.push(Draft::new(ApprovalAsked::new(what, bound_to)));
            let (by, verdict) = ("operator".to_owned(), "allow".to_owned());
            drafts.push(Draft::new(ApprovalGiven::new(by, verdict, bound_to)));
        }
        if !drafts.is_empty() {
            ledger
                .record_all(drafts)
                .context("cannot record the acceptance of the tools in the ledger")
                .kind(ErrorKind::Broken)?;
        }
        let pins: Vec<(String, Pin)> =
            self.tools.iter().map(|(checked, pin)| (checked.name.clone(), pin.clone())).collect();
        let accepted =
            Pins::open(state.home()).and_then(|all| all.accept(&self.server, &pins, &self.gone));
        accepted.kind(ErrorKind::Broken)
    }
}
