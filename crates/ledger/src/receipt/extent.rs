//! The statement of a receipt's checkpoint about the events of the run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_model::RunId;

use crate::digest::Digest;
use crate::entry::EntryView;

/// The number of signed events of a run, the hash of the last one, and whether the run had ended.
///
/// The checkpoint of a receipt has these values as an extension line. Its signature therefore shows
/// that the receipt has all events that the run had at this size of the ledger.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extent {
    run: RunId,
    events: u64,
    last: Option<Digest>,
    ended: bool,
}

impl Extent {
    pub(super) fn of<'a>(run: RunId, entries: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut extent = Self { run, events: 0, last: None, ended: false };
        for entry in entries {
            extent.events += 1;
            extent.last = Some(Digest::leaf(entry));
            extent.ended |= EntryView::parse(entry)
                .is_ok_and(|view| matches!(view.kind, "run.ended" | "run.failed" | "plan.ended"));
        }
        extent
    }

    /// Returns the extension line of the checkpoint.
    pub(super) fn to_line(&self) -> String {
        let last = self.last.map_or("-".to_owned(), |hash| STANDARD.encode(hash.as_bytes()));
        format!("belljar run {} {} {last} {}", self.run, self.events, self.state())
    }

    /// Returns the number of events.
    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    /// Returns whether the run had ended, as a word.
    pub(super) const fn state(&self) -> &'static str {
        if self.ended { "ended" } else { "open" }
    }
}
