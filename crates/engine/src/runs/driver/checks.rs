//! Carries out the checks of task outputs. Dependent tasks get an output only after it has passed all checks
//! of its task.
//!
//! A check by a schema runs in the driver. Every other check runs in a box of its own. It can reach nothing but
//! the model of a judge, and has no writable mounts, so it has no effect and can always be repeated. Its host
//! outlives the driver like that of a task. The file `work/check-TASK-ATTEMPT.json` has the box of the current
//! check; it is on disk before the host starts and until the verdict is on record, so a new driver adopts the
//! host or takes its result. Without that file, the checks of the attempt start again.
//!
//! Checks pay from the lease of the attempt. A judge whose host is lost may have used everything that it was
//! allowed to use, so that is spent.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_model::RunId;
use serde::{Deserialize, Serialize};

use super::rounds::{Driver, Host, Waiting};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::runs::budget::{Amounts, Limits, Unit};
use crate::runs::executors;
use crate::runs::executors::checks::Judgement;
use crate::runs::files::RunFiles;
use crate::runs::host;
use crate::runs::machine::{
    CheckKind, CheckOutcome, CheckResult, Checks, Evidence, InputKind, Try, Verdict,
};
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
    /// What all boxes of earlier checks used, without the time.
    #[serde(default)]
    used: Amounts,
    /// How often the host of the current check was lost.
    lost: u32,
    /// The boxes of all checks that may have started.
    #[serde(default)]
    boxes: Vec<RunId>,
    /// The results of earlier checks, in the form of the ledger.
    #[serde(default)]
    results: Vec<String>,
}

impl Progress {
    /// Returns what all boxes of earlier checks used.
    fn usage(&self) -> Amounts {
        self.used.with(Unit::Seconds, self.micros.div_ceil(1_000_000))
    }

    /// Returns what earlier checks left of a lease.
    fn rest(&self, lease: &Limits) -> Limits {
        let used = self.usage();
        Unit::ALL.into_iter().fold(*lease, |rest, unit| {
            let left = rest.get(unit).map(|all| all.saturating_sub(used.get(unit)));
            rest.with(unit, left)
        })
    }

    /// Notes the result of the current check.
    fn note(&mut self, kind: CheckKind, judgement: &Judgement) {
        let Judgement { outcome, model, .. } = judgement;
        let result = CheckResult::new(self.number(), kind, *outcome, model.as_deref());
        self.results.push(result.to_string());
    }

    fn number(&self) -> u32 {
        u32::try_from(self.check).unwrap_or(u32::MAX)
    }

    fn checks(&self) -> Checks {
        let results = self.results.iter().filter_map(|text| text.parse().ok()).collect();
        Checks { boxes: self.boxes.clone(), results }
    }
}

/// Returns the reason of a rejection. The reason of a verifier names its outcome.
fn described(judgement: &Judgement) -> String {
    let Judgement { outcome, text, .. } = judgement;
    match outcome {
        CheckOutcome::Refuted | CheckOutcome::Undecided => format!("{}: {text}", outcome.name()),
        CheckOutcome::Passed
        | CheckOutcome::Confirmed
        | CheckOutcome::Rejected
        | CheckOutcome::NoVerdict => text.clone(),
    }
}

/// Returns the unit of which a check has nothing left, if there is one.
fn used_up(kind: CheckKind, rest: &Limits) -> Option<Unit> {
    let counted: &[Unit] = match kind {
        CheckKind::Schema => &[],
        CheckKind::Command | CheckKind::Verify => &[Unit::Seconds],
        CheckKind::Model => &[Unit::Seconds, Unit::Calls, Unit::Tokens, Unit::Money, Unit::Bytes],
    };
    counted.iter().copied().find(|unit| rest.get(*unit) == Some(0))
}

/// Returns what a judge can have used at most before its host was lost.
fn lost_amounts(kind: CheckKind, rest: &Limits) -> Amounts {
    match kind {
        CheckKind::Schema | CheckKind::Command | CheckKind::Verify => Amounts::NONE,
        CheckKind::Model => rest.with(Unit::Seconds, None).with(Unit::Boxes, None).amounts(),
    }
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
                let file = self.progress_file(run, &of);
                if let Some(live) = self.runs.get_mut(&run) {
                    live.requests.push(file); // the recorded verdict ends its use
                }
                let usage = Some(progress.usage());
                self.inbox.push((run, InputKind::Judged(of, verdict, usage, progress.checks())));
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
            let Some(check) = context.check(of, progress.check) else {
                return Ok(Some(Verdict::Passed));
            };
            let kind = CheckKind::of(check);
            let lease = live.progress.judging().find(|(judged, _)| judged == of);
            let rest = progress.rest(&lease.map(|(_, lease)| *lease).unwrap_or_default());
            let judgement = match (kind, progress.box_run.take()) {
                (CheckKind::Schema, _) => Some(context.check_by_schema(of, progress.check)),
                (_, Some(box_run)) => {
                    let result = context.check_result(of, progress.check, box_run)?;
                    self.taken.push((run, box_run));
                    let used = result.as_ref().map_or(lost_amounts(kind, &rest), |it| it.used);
                    progress.used = progress.used.plus(used);
                    let micros = result.as_ref().map_or(0, |it| it.micros);
                    progress.micros = progress.micros.saturating_add(micros);
                    result.map(|it| it.judgement)
                }
                (_, None) => match self.start_check(run, of, progress, kind, &rest)? {
                    None => return Ok(None),
                    started => started,
                },
            };
            let Some(judgement) = judgement.or_else(|| {
                let text = "the check could not be carried out";
                let is_last = progress.lost >= MAX_LOST;
                is_last.then(|| Judgement::new(kind.without_result(), text))
            }) else {
                progress.lost += 1;
                continue;
            };
            progress.note(kind, &judgement);
            if !judgement.outcome.passes() {
                return Ok(Some(Verdict::Rejected {
                    check: progress.number(),
                    text: described(&judgement),
                }));
            }
            (progress.check, progress.lost) = (progress.check + 1, 0);
        }
    }

    /// Starts the host of the current check. Returns the result of a check that cannot start.
    fn start_check(
        &mut self,
        run: RunId,
        of: &Try,
        progress: &mut Progress,
        kind: CheckKind,
        rest: &Limits,
    ) -> Result<Option<Judgement>, EngineError> {
        let failed = |text: String| Ok(Some(Judgement::new(kind.without_result(), text)));
        if let Some(unit) = used_up(kind, rest) {
            let unit = if unit == Unit::Seconds { "time" } else { unit.name() };
            return failed(format!("no {unit} is left in the budget for the check"));
        }
        let box_run = self.state.new_id()?.0;
        progress.box_run = Some(box_run);
        progress.boxes.push(box_run);
        self.store_progress(run, of, progress)?;
        let Some(live) = self.runs.get(&run) else { return Ok(None) };
        let spec = live.context(self.state).check_spec(of, progress.check, box_run, rest);
        let maker = live.scope_of_maker(self.state);
        match spec.and_then(|spec| executors::start(&maker?, spec)) {
            Ok(hosted) => {
                let (host, of) = (Host::Started(hosted), of.clone());
                self.hosts.push(Waiting { run, of, box_run, host, is_check: true });
                Ok(None)
            }
            Err(error) => {
                progress.box_run = None;
                failed(format!("the check cannot start: {error:#}"))
            }
        }
    }

    /// Returns the lease that the box of the current check of an attempt has, and the box.
    pub(super) fn check_lease(&self, run: RunId, of: &Try) -> Option<(RunId, Limits)> {
        let live = self.runs.get(&run)?;
        let (_, lease) = live.progress.judging().find(|(judged, _)| judged == of)?;
        let progress = self.stored_progress(run, of);
        Some((progress.box_run?, progress.rest(lease)))
    }

    /// Waits for a host that a killed driver started. Returns whether it runs.
    fn adopt_check(&mut self, run: RunId, of: &Try, box_run: RunId) -> Result<bool, EngineError> {
        let Some(adopted) = host::adopt(self.state, box_run)? else { return Ok(false) };
        tracing::info!(%run, %box_run, "host of a check is adopted");
        // An extension may be on record that the host did not get.
        if let Some((_, lease)) = self.check_lease(run, of).filter(|(it, _)| *it == box_run) {
            self.send_lease(box_run, &lease);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Limits {
        let lease = Limits::default().with(Unit::Tokens, Some(100)).with(Unit::Seconds, Some(60));
        lease.with(Unit::Boxes, Some(1))
    }

    #[test]
    fn checks_share_the_rest_of_a_lease_and_a_check_without_a_rest_is_not_started() {
        let used = Amounts::default().with(Unit::Tokens, 70);
        let progress = Progress { used, micros: 1_500_000, ..Progress::default() };
        let rest = progress.rest(&lease());
        assert_eq!((rest.get(Unit::Tokens), rest.get(Unit::Seconds)), (Some(30), Some(58)));
        assert_eq!(rest.get(Unit::Money), None);
        let used = Amounts::default().with(Unit::Tokens, 100);
        let rest = Progress { used, ..Progress::default() }.rest(&lease());
        assert_eq!(used_up(CheckKind::Model, &rest), Some(Unit::Tokens));
        assert_eq!(used_up(CheckKind::Verify, &rest), None, "a command needs only time");
        let rest = Progress { micros: 60_000_000, ..Progress::default() }.rest(&lease());
        for kind in [CheckKind::Model, CheckKind::Command, CheckKind::Verify] {
            assert_eq!(used_up(kind, &rest), Some(Unit::Seconds), "{kind:?}");
        }
    }

    #[test]
    fn h16_lost_judge_has_spent_its_whole_lease_and_a_lost_command_nothing() {
        assert_eq!(lost_amounts(CheckKind::Model, &lease()).get(Unit::Tokens), 100);
        assert_eq!(lost_amounts(CheckKind::Model, &lease()).get(Unit::Seconds), 0);
        assert!(lost_amounts(CheckKind::Command, &lease()).is_zero());
    }

    #[test]
    fn progress_of_an_older_version_is_read_and_the_new_form_survives_a_round_trip() {
        let older = r#"{"check":1,"box_run":null,"micros":5,"lost":0,"boxes":[]}"#;
        let mut progress: Progress = serde_json::from_str(older).unwrap();
        assert_eq!((progress.check, progress.micros), (1, 5));
        progress.note(CheckKind::Verify, &Judgement::new(CheckOutcome::Confirmed, ""));
        progress.used = Amounts::default().with(Unit::Money, 7);
        let text = serde_json::to_string(&progress).unwrap();
        assert_eq!(serde_json::from_str::<Progress>(&text).unwrap(), progress);
        assert_eq!(progress.checks().results[0].to_string(), "1 verify confirmed");
    }
}
