//! The end of a run: its result and its entry in the ledger.

use belljar_box::{BoxEnd, Teardown};
use belljar_ledger::{Body, Digest};
use belljar_model::{RunRecord, RunResult, Template};
use tracing::Span;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::broker::NetworkSummary;
use crate::notice::Notice;
use crate::record::RunRecorder;
use crate::scope::Scoped;

/// A run whose program has ended, and whose box is being removed.
#[derive(Debug)]
pub struct Ended {
    pub(super) span: Span,
    pub finished: BoxEnd,
    /// The removal of mounts and cgroups. Dropping the value waits until they are removed.
    pub teardown: Teardown,
    /// The summary of network requests; `None` for a box without network.
    pub network_summary: Option<NetworkSummary>,
    pub recorder: RunRecorder,
    /// The hash of the template and the network policy of the box.
    pub policy: Digest,
    /// The recorded standard output and standard error; `None` for what is not recorded.
    pub outputs: [Option<Body>; 2],
    pub(super) record: RunRecord,
    pub(super) template: Template,
    pub(super) setup: u64,
}

impl Ended {
    /// Returns the result of the run. `changed` is the number of changed files in the workspace, if any.
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

    /// Records the end of the run in the ledger. `changes` is the hash of the list of changes.
    pub fn record(&mut self, result: &RunResult, changes: Option<Body>) -> Result<(), EngineError> {
        let _entered = self.span.clone().entered();
        let outputs = std::mem::take(&mut self.outputs);
        let recorded = self.recorder.ended(result, outputs, changes);
        recorded.kind(ErrorKind::Unrecorded).map_err(|error| {
            tracing::error!(error = format!("{error:#}"), "end of the run is not recorded");
            let run = self.record.id;
            error
                .context(format!("the program ended, but its end is not recorded in the ledger (run {run})"))
                .advise("`belljar runs` shows the run and its result; close it with `belljar ledger settle`")
        })
    }

    /// Records the end of the run as [`Ended::record`] does, and reports a failure as a notice.
    pub fn record_or_notice(&mut self, state: &Scoped, result: &RunResult, changes: Option<Body>) {
        if let Err(error) = self.record(result, changes) {
            state.notice(&Notice::NotRecorded(format!("{error:#}")));
        }
    }
}
