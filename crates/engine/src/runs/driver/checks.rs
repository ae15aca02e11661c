//! Carries out the checks of task outputs. Dependent tasks get an output only after it has passed all checks
//! of its task.
//!
//! A check by a schema runs in the driver. A check by a command runs in a box of its own, without network
//! and without writable mounts, so it cannot have an effect and can always be repeated. Its host outlives
//! the driver like that of a task. The file `work/check-TASK-ATTEMPT.json` has the box of the current
//! check; it is on disk before the host starts, so a new driver adopts the host or takes its result.
//! Without that file, the checks of the attempt start again.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_model::RunId;
use belljar_model::plan::Check;
use serde::{Deserialize, Serialize};

use super::rounds::{Driver, Host, Waiting};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::runs::budget::{Amounts, Unit};
use crate::runs::executors::checks::Judgement;
use crate::runs::files::RunFiles;
use crate::runs::host;
use crate::runs::machine::{Evidence, InputKind, Try, Verdict};
use crate::store::durable;

/// How often a check whose host is gone is repeated before the output is rejected.
const MAX_LOST: u32 = 3;

/// The progress of the checks of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The number of the current check, from 0.
    check: usize,
    /// The box of the current check, once it may have started.
    box_run: Option<RunId>,
    /// The time of all boxes of earlier checks, in microseconds.
    micros: u64,
    /// How often the host of the current check was lost.
    lost: u32,
    /// The boxes of all checks that may have started.
    #[serde(default)]
    boxes: Vec<RunId>,
}

impl Driver<'_> {
    /// Starts or continues the checks of an output.
    pub(super) fn judge(&mut self, run: RunId, of: Try) {
        let progress = self.stored_progress(run, &of);
        self.continue_checks(run, of, progress);
    }

    /// Ends the checks of a cancelled attempt.
    pub(super) fn cancel_checks(&mut self, run: RunId, of: Try) {
        let is_same = |waiting: &&Waiting| waiting.run == run && waiting.of == of;
        let waiting = self.hosts.iter().find(is_same).map(|waiting| waiting.box_run);
        let box_run = match waiting {
            Some(box_run) => Some(box_run),
            // A killed driver started the check.
            None => self
                .stored_progress(run, &of)
                .box_run
                .filter(|box_run| self.adopt_check(run, &of, *box_run).unwrap_or(false)),
        };
        match box_run.map(|box_run| host::kill(self.state, box_run)) {
            // The end of the host is reported when it ends.
            Some(Ok(true)) => {}
            Some(Err(error)) => self.state.failed(&anyhow::anyhow!("{error:#}")),
            Some(Ok(false)) if waiting.is_some() => {}
            Some(Ok(false)) | None => {
                self.inbox.push((run, InputKind::Lost(of, Evidence::NoEffect)));
            }
        }
    }

    /// Takes the result of the host of a check that has ended.
    pub(super) fn check_ended(&mut self, run: RunId, of: Try) {
        let progress = self.stored_progress(run, &of);
        self.continue_checks(run, of, progress);
    }

    fn continue_checks(&mut self, run: RunId, of: Try, mut progress: Progress) {
        match self.next_check(run, &of, &mut progress) {
            Ok(Some(verdict)) => {
                fs::remove_file(self.progress_file(run, &of)).ok(); // the verdict ends its use
                let seconds = progress.micros.div_ceil(1_000_000);
                let usage = Amounts::default().with(Unit::Seconds, seconds);
                self.inbox.push((run, InputKind::Judged(of, verdict, Some(usage), progress.boxes)));
            }
            Ok(None) => {} // a host runs
            Err(error) => {
                // For example a full disk: the driver tries again with the next round.
                self.state.failed(&anyhow::anyhow!("{error:#}"));
                self.retries.push((run, of));
            }
        }
    }

    /// Runs checks until one needs a host. Returns the verdict if all have passed or one has not.
    fn next_check(
        &mut self,
        run: RunId,
        of: &Try,
        progress: &mut Progress,
    ) -> Result<Option<Verdict>, EngineError> {
        loop {
            if let Some(box_run) = progress.box_run {
                let is_waited_for = self.hosts.iter().any(|it| it.box_run == box_run);
                if is_waited_for || self.adopt_check(run, of, box_run)? {
                    return Ok(None);
                }
            }
            let Some(live) = self.runs.get(&run) else { return Ok(None) };
            let context = live.context(self.state);
            let rejected = |text: String| {
                let check = u32::try_from(progress.check).unwrap_or(u32::MAX);
                Ok(Some(Verdict::Rejected { check, text }))
            };
            let Some(check) = context.check(of, progress.check) else {
                return Ok(Some(Verdict::Passed));
            };
            let judgement = match (check, progress.box_run) {
                (Check::Schema(_), _) => context.check_by_schema(of, progress.check),
                (Check::Model { .. }, _) => {
                    Judgement::Rejected("checks by a model are not supported yet".to_owned())
                }
                (Check::Command(_), Some(box_run)) => {
                    let (judgement, micros) = context.check_result(box_run)?;
                    self.taken.push((run, box_run));
                    progress.micros = progress.micros.saturating_add(micros);
                    progress.box_run = None;
                    judgement
                }
                (Check::Command(argv), None) => {
                    let lease = live.progress.judging().find(|(judged, _)| judged == of);
                    let lease = lease.map(|(_, lease)| *lease).unwrap_or_default();
                    let used = progress.micros.div_ceil(1_000_000);
                    let seconds = lease.get(Unit::Seconds).map(|all| all.saturating_sub(used));
                    if seconds == Some(0) {
                        return rejected("no time is left in the budget for the check".to_owned());
                    }
                    let (box_run, argv) = (self.state.new_id()?.0, argv.clone());
                    progress.box_run = Some(box_run);
                    progress.boxes.push(box_run);
                    self.store_progress(run, of, progress)?;
                    let spec = context.check_spec(of, box_run, argv, seconds);
                    match spec.and_then(|spec| host::start(self.state, spec, None)) {
                        Ok(hosted) => {
                            let host = Host::Started(hosted);
                            let of = of.clone();
                            self.hosts.push(Waiting { run, of, box_run, host, is_check: true });
                            return Ok(None);
                        }
                        Err(error) => {
                            return rejected(format!("the check cannot start: {error:#}"));
                        }
                    }
                }
            };
            match judgement {
                Judgement::Passed => (progress.check, progress.lost) = (progress.check + 1, 0),
                Judgement::Rejected(text) => return rejected(text),
                Judgement::Lost if progress.lost >= MAX_LOST => {
                    return rejected("the check could not be carried out".to_owned());
                }
                Judgement::Lost => progress.lost += 1,
            }
        }
    }

    /// Waits for a host that a killed driver started. Returns whether it runs.
    fn adopt_check(&mut self, run: RunId, of: &Try, box_run: RunId) -> Result<bool, EngineError> {
        let Some(adopted) = host::adopt(self.state, box_run)? else { return Ok(false) };
        tracing::info!(%run, %box_run, "host of a check is adopted");
        let (host, of) = (Host::Adopted(adopted), of.clone());
        self.hosts.push(Waiting { run, of, box_run, host, is_check: true });
        Ok(true)
    }

    fn progress_file(&self, run: RunId, of: &Try) -> PathBuf {
        let files = RunFiles::of(self.state.store().layout(), run);
        let item = of.item.map(|item| format!(".{item}")).unwrap_or_default();
        files.work_dir().join(format!("check-{}{item}-{}.json", of.task, of.attempt))
    }

    /// Reads the progress of the checks of an attempt. A file that cannot be read means a new beginning.
    fn stored_progress(&self, run: RunId, of: &Try) -> Progress {
        let text = fs::read(self.progress_file(run, of)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn store_progress(&self, run: RunId, of: &Try, progress: &Progress) -> Result<(), EngineError> {
        let file = self.progress_file(run, of);
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let dir = RunFiles::of(self.state.store().layout(), run).work_dir();
        let text = serde_json::to_vec(progress).kind(ErrorKind::Broken)?;
        durable::write(&dir, &name, &text)
            .context("cannot store the progress of a check")
            .kind(ErrorKind::Broken)
    }
}
