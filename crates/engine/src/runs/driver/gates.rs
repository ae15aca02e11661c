//! The driver's part of gates: it asks, and carries out the answers of people.
//!
//! ```text
//! approval.asked ──▶ file of the gate ──▶ a person writes a claim ──▶ the client connects to the driver
//! claim ──▶ output on disk ──▶ [workspace.applying ──▶ branch ──▶ workspace.applied] ──▶ approval.given
//!       ──▶ file of the answer ──▶ the connection of the client is closed
//! ```
//! A claim stays on disk until its fact is recorded, so a new driver carries out what a killed one left. A
//! gate that is not open any more has no claim to carry out, so no answer counts twice. A branch is moved
//! before the gate is done, because dependents rely on it. If the driver is killed in between, the open
//! intent in the ledger makes the next driver move the branch again, which changes nothing, and the answer
//! counts from the time of the intent.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::{UnixListener, UnixStream};

use belljar_ledger::{Digest, Event, RecordError, WorkspaceApplied, WorkspaceApplying};
use belljar_model::RunId;
use belljar_model::caller::Principal;

use super::live::Live;
use super::rounds::{Driver, Stop};
use crate::approvals::ApprovalOutcome;
use crate::approvals::gates::{GateAnswerFile, GateFile, GateFiles};
use crate::clones::BranchUpdate;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::read;
use crate::runs::executors::output_of;
use crate::runs::gate::{Sender, may_answer};
use crate::runs::machine::{
    Fact, FactKind, GateAnswer, GateVerdict, InputKind, Moment, Output, RefusedBecause, TaskRef,
};
use crate::supervisor;

/// The maximum number of clients that wait for the end of a round.
const MAX_CLIENTS: usize = 64;

/// What the driver does about answers in the current round.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Gates whose question was recorded and whose file is not written yet.
    pub(super) asked: Vec<(RunId, Digest)>,
    /// Whether a client may have answered since the last round.
    pub(super) are_expected: bool,
    /// Branches that a killed driver may have moved, by the index of the intent.
    updates: Vec<(RunId, Digest, u64)>,
    /// Clients that wait until their answers are carried out.
    clients: Vec<UnixStream>,
}

impl Answers {
    /// Accepts all clients. Only a process of the same user, or of root, can wait for an answer.
    pub(super) fn accept(&mut self, listener: &UnixListener) {
        while let Ok((client, _)) = listener.accept() {
            if supervisor::is_own_user(&client) && self.clients.len() < MAX_CLIENTS {
                self.clients.push(client);
            }
        }
    }
}

/// The gates of one run.
#[derive(Debug, Default)]
pub(super) struct LiveGates {
    asked: BTreeMap<Digest, Asked>,
    /// The recorded outcomes.
    outcomes: BTreeMap<Digest, (ApprovalOutcome, Option<Principal>, Moment)>,
    /// The gates with a file that has no outcome yet.
    open_files: BTreeSet<Digest>,
}

/// A recorded question.
#[derive(Clone, Debug)]
struct Asked {
    of: TaskRef,
    at: Moment,
    deadline: Moment,
}

impl LiveGates {
    pub(super) fn note(&mut self, fact: &Fact) {
        if let FactKind::ApprovalAsked { of, digest, deadline } = &fact.kind {
            let asked = Asked { of: of.instance(), at: fact.at, deadline: *deadline };
            self.asked.insert(*digest, asked);
        }
        if let Some((digest, outcome, by)) = outcome_of(&fact.kind) {
            self.outcomes.insert(digest, (outcome, by, fact.at));
        }
    }

    /// Finds the files of gates whose outcome a killed driver recorded and did not store.
    pub(super) fn look_for_files(&mut self, files: &GateFiles) {
        let left = self.outcomes.keys().filter(|digest| files.is_open(digest));
        self.open_files.extend(left.copied());
    }
}

/// Returns the outcome of a gate that a fact records.
pub(in crate::runs) fn outcome_of(
    fact: &FactKind,
) -> Option<(Digest, ApprovalOutcome, Option<Principal>)> {
    if let FactKind::ApprovalGiven { digest, by, edited, .. } = fact {
        let outcome = if *edited { ApprovalOutcome::Edited } else { ApprovalOutcome::Allowed };
        return Some((*digest, outcome, Some(by.clone())));
    }
    let FactKind::ApprovalRefused { digest, why, by, .. } = fact else { return None };
    let outcome = match why {
        RefusedBecause::Rejected | RefusedBecause::Labels => ApprovalOutcome::Denied,
        RefusedBecause::Expired => ApprovalOutcome::Expired,
    };
    Some((*digest, outcome, by.clone()))
}

/// Why an answer has no effect. The gate stays open.
struct Refused(String);

impl Driver<'_> {
    /// Notes the branches that a killed driver may have moved without an outcome.
    pub(super) fn find_updates(&mut self, live: &Live) -> Result<(), EngineError> {
        let rows = self.reader.unsettled(Some(live.run)).kind(ErrorKind::Broken)?;
        for row in rows.iter().filter(|row| row.kind == "workspace.applying") {
            let entry = read(&self.reader, row)?;
            if let Ok(Event::WorkspaceApplying(WorkspaceApplying {
                bound_to: Some(digest), ..
            })) = Event::read(&entry.kind, &entry.fields)
            {
                self.answers.updates.push((live.run, digest, row.index));
            }
        }
        Ok(())
    }

    /// Carries out the answers that [`Self::find_updates`] found. It runs before deadlines are checked, so that a
    /// recorded answer wins over a deadline that passed in the meantime.
    pub(super) fn finish_updates(&mut self) -> Result<(), Stop> {
        for (run, digest, intent) in std::mem::take(&mut self.answers.updates) {
            let Some(live) = self.runs.get(&run) else { continue };
            let at = live.last_fact;
            self.answer_gate(run, digest, at, Some(intent))?;
        }
        Ok(())
    }

    /// Reads the answers to all open gates, and carries them out.
    pub(super) fn answer_gates(&mut self) -> Result<(), Stop> {
        if !std::mem::take(&mut self.answers.are_expected) {
            return Ok(());
        }
        let gates = self.runs.iter().flat_map(|(run, live)| {
            live.progress.gates().map(|digest| (*run, *digest)).collect::<Vec<_>>()
        });
        for (run, digest) in gates.collect::<Vec<_>>() {
            self.answer_gate(run, digest, self.now(), None)?;
        }
        Ok(())
    }

    /// Carries out the answer to a gate, if there is one.
    fn answer_gate(
        &mut self,
        run: RunId,
        digest: Digest,
        at: Moment,
        intent: Option<u64>,
    ) -> Result<(), Stop> {
        let files = GateFiles::new(self.state);
        let claim = match files.claim(&digest) {
            Ok(Some(claim)) => claim,
            Ok(None) => return self.abandon(run, intent, "the answer is missing"),
            Err(damage) => {
                // A person sees the damaged file in the list of approvals.
                self.state.failed(&anyhow::anyhow!("an answer has no effect: {damage}"));
                return self.abandon(run, intent, "the answer is damaged");
            }
        };
        match self.verdict(run, &digest, &claim, at, intent)? {
            Ok(Some((by, verdict))) => {
                let answer = GateAnswer { digest, by: Sender::outside(by), verdict };
                let random = self.state.new_id()?.1;
                if let Some(live) = self.runs.get_mut(&run) {
                    live.give(at, random, InputKind::Answered(answer));
                }
            }
            Ok(None) => {}
            Err(Refused(why)) => {
                self.state.failed(&anyhow::anyhow!("an answer to a gate has no effect: {why}"));
                files.refuse_claim(&digest);
            }
        }
        Ok(())
    }

    /// Records that an intent of a killed driver has no outcome of its own.
    fn abandon(&mut self, run: RunId, intent: Option<u64>, why: &str) -> Result<(), Stop> {
        let Some(intent) = intent else { return Ok(()) };
        let error = Some(why.to_owned());
        let applied = WorkspaceApplied { taken: 0, held_back: 0, error };
        self.record_one(run, applied, Some(intent)).map(drop)
    }

    /// Returns the verdict of an answer with everything that it needs on disk. `None` if it came too late.
    fn verdict(
        &mut self,
        run: RunId,
        digest: &Digest,
        claim: &GateAnswerFile,
        at: Moment,
        intent: Option<u64>,
    ) -> Result<Result<Option<(Principal, GateVerdict)>, Refused>, Stop> {
        let Some(live) = self.runs.get(&run) else { return Ok(Ok(None)) };
        let Some(Asked { of, deadline, .. }) = live.gates.asked.get(digest).cloned() else {
            return Ok(Ok(None));
        };
        if deadline <= at {
            return Ok(Ok(None)); // the machine records that the gate expired
        }
        let Some(by) = claim.by.clone().filter(|_| claim.digest == *digest) else {
            return Ok(Err(Refused("it is the answer to another gate".to_owned())));
        };
        if let Err(error) = may_answer(&Sender::outside(by.clone())) {
            return Ok(Err(Refused(error.to_string())));
        }
        let context = live.context(self.state);
        let content = match claim.outcome {
            ApprovalOutcome::Denied => {
                return Ok(Ok(Some((by, GateVerdict::Reject(claim.reason.clone())))));
            }
            ApprovalOutcome::Allowed => context.gate_content(&of),
            ApprovalOutcome::Edited => {
                let files = GateFiles::new(self.state);
                files.edit(claim).map_err(|damage| damage.to_string())
            }
            ApprovalOutcome::Expired
            | ApprovalOutcome::Withdrawn
            | ApprovalOutcome::RulesChanged
            | ApprovalOutcome::Gone
            | ApprovalOutcome::Unrecorded => Err("it is not an answer of a person".to_owned()),
        };
        let output = content.and_then(|content| {
            let selections = context.gate_selections(&of, &content)?;
            let stored = live.files.store_output(&of, &content);
            let stored = stored.map_err(|error| format!("its output cannot be stored: {error}"))?;
            Ok(output_of(&stored, selections))
        });
        let output: Output = match output {
            Ok(output) => output,
            Err(why) => return Ok(Err(Refused(why))),
        };
        match context.update(&of) {
            Ok(None) => {}
            Ok(Some((update, _))) => {
                if let Err(why) = self.move_branch(run, digest, &by, &update, intent)? {
                    return Ok(Err(Refused(why)));
                }
            }
            Err(why) => return Ok(Err(Refused(why))),
        }
        let is_edited = claim.outcome == ApprovalOutcome::Edited;
        let verdict =
            if is_edited { GateVerdict::Edit(output) } else { GateVerdict::Approve(output) };
        Ok(Ok(Some((by, verdict))))
    }

    /// Moves the branch of an approved commit. The intent is on disk before the branch moves.
    fn move_branch(
        &mut self,
        run: RunId,
        digest: &Digest,
        by: &Principal,
        update: &BranchUpdate,
        intent: Option<u64>,
    ) -> Result<Result<(), String>, Stop> {
        let size = match update.size(self.state) {
            Ok(size) => size,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        let intent = match intent {
            Some(intent) => intent,
            None => {
                match update.obstacle(self.state) {
                    Ok(None) => {}
                    Ok(Some(why)) => return Ok(Err(why)),
                    Err(error) => return Ok(Err(format!("{error:#}"))),
                }
                let applying = WorkspaceApplying {
                    files: size.files,
                    branch: Some(update.branch.clone()),
                    commit: Some(update.commit.clone()),
                    bound_to: Some(*digest),
                    by: Some(by.to_string()),
                };
                self.record_one(run, applying, None)?
            }
        };
        let applied = update.apply(self.state).map_err(|error| format!("{error:#}"));
        let taken = if applied.is_ok() { size.files } else { 0 };
        let outcome = WorkspaceApplied { taken, held_back: 0, error: applied.clone().err() };
        self.record_one(run, outcome, Some(intent))?;
        Ok(applied)
    }

    fn record_one(
        &mut self,
        run: RunId,
        event: impl Into<Event>,
        cause: Option<u64>,
    ) -> Result<u64, Stop> {
        let gone = || EngineError::message(ErrorKind::Broken, "the run is not open");
        let live = self.runs.get_mut(&run).ok_or_else(gone)?;
        live.record(&self.ledger, event, cause).map_err(|error| {
            if matches!(error, RecordError::Moved { .. }) {
                return Stop::Replaced;
            }
            let error = anyhow::Error::new(error).context("cannot record an answer");
            EngineError::new(ErrorKind::Unrecorded, error).into()
        })
    }

    /// Writes the files of new gates and of outcomes, which are on record, and releases waiting clients.
    pub(super) fn update_gate_files(&mut self) -> Result<(), EngineError> {
        let files = GateFiles::new(self.state);
        for (run, digest) in std::mem::take(&mut self.answers.asked) {
            let Some(live) = self.runs.get_mut(&run) else { continue };
            let Some(Asked { of, at, deadline }) = live.gates.asked.get(&digest).cloned() else {
                continue;
            };
            let names = (live.plan_name().to_owned(), of.to_string());
            let question = live.question(&of).to_owned();
            let gate = GateFile::new(digest, run, names, question, (at.0, deadline.0));
            files.open(&gate).kind(ErrorKind::Broken)?;
            live.gates.open_files.insert(digest);
        }
        for live in self.runs.values_mut().filter(|live| !live.gates.open_files.is_empty()) {
            let open: BTreeSet<Digest> = live.progress.gates().copied().collect();
            let closed: Vec<Digest> = live.gates.open_files.difference(&open).copied().collect();
            for digest in closed {
                let (outcome, by, at) = live.gates.outcomes.get(&digest).cloned().unwrap_or((
                    ApprovalOutcome::Withdrawn,
                    None,
                    live.last_fact,
                ));
                let answer = GateAnswerFile::new(digest, outcome, by, at.0);
                if let Err(error) = files.close(&answer) {
                    // The next list of approvals closes it.
                    self.state.failed(&anyhow::anyhow!("cannot close a gate: {error}"));
                }
                live.gates.open_files.remove(&digest);
            }
        }
        self.answers.clients.clear();
        Ok(())
    }
}
