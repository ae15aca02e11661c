//! The end of a run: its result, and the record of it.

use belljar_box::{BoxEnd, Teardown};
use belljar_ledger::{Body, Digest};
use belljar_model::{RunRecord, RunResult, Template};
use tracing::Span;

use crate::network::broker::NetworkSummary;
use crate::notice::Notice;
use crate::record::RunRecorder;
use crate::scope::Scoped;

/// A program that ended, in a box that is being removed.
#[derive(Debug)]
pub struct Ended {
    pub(super) span: Span,
    pub finished: BoxEnd,
    /// Mounts and cgroups, which are gone at the latest when this is dropped.
    pub remains: Teardown,
    /// What the network of the box was used for.
    pub account: Option<NetworkSummary>,
    pub recorder: RunRecorder,
    /// The hash of everything that decided what the box may do.
    pub policy: Digest,
    /// What the program wrote, as far as that is recorded.
    pub outputs: [Option<Body>; 2],
    pub(super) record: RunRecord,
    pub(super) template: Template,
    pub(super) setup: u64,
}

impl Ended {
    /// The result. `changed` is the number of changed files, where there is a workspace.
    pub fn result(&self, changed: Option<u64>) -> RunResult {
        let BoxEnd { exit, signal, reason, wall, .. } = &self.finished;
        RunResult {
            run: self.record.id,
            name: self.record.name.clone(),
            exit: *exit,
            signal: *signal,
            reason: *reason,
            setup_micros: self.setup,
            wall_micros: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
            cpu_micros: self.finished.cpu,
            peak_memory_bytes: self.finished.peak_memory,
            stdin_bytes: self.finished.stdin_bytes,
            output_bytes: self.finished.output,
            changed_files: changed,
            layers: self.finished.layers.clone(),
            limits: self.template.limits.clone(),
        }
    }

    /// Records the end. `changes` is the hash of the list of changes.
    pub fn record(&mut self, state: &Scoped, result: &RunResult, changes: Option<Body>) {
        let _entered = self.span.clone().entered();
        let outputs = std::mem::take(&mut self.outputs);
        if let Err(error) = self.recorder.ended(result, outputs, changes) {
            state.notice(&Notice::NotRecorded(format!(
                "the end of the run is not on record; `belljar runs` will show it: {error}"
            )));
        }
    }
}
