//! The approvals of a tenant for a server: a list that reads each closed approval once, and single approvals.
//!
//! The list shows what the files of approvals say. It does not read the runs behind gates; [`find`] does, and
//! so its result shows everything that an answer carries out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use belljar_ledger::Digest;
use belljar_model::boxes::BoxName;
use belljar_model::{RunId, display};

use super::file::PresentFiles;
use super::gates::{GateFile, GateFiles};
use super::{AnswerRule, Approval, ApprovalId, ApprovalKind, ApprovalState, Approvals, approval};
use crate::error::{EngineError, ErrorKind, WithKind as _};

/// An approval in a list. All texts are safe to print to a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalEntry {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    pub state: ApprovalState,
    /// The box that asks, or the plan and the task of a gate.
    pub asker: String,
    /// The box that asks.
    pub box_name: Option<BoxName>,
    /// The run that asks: that of a box or that of a plan.
    pub run: Option<RunId>,
    pub digest: Digest,
    pub text: String,
    /// The time of the question in milliseconds since the Unix epoch.
    pub asked: Option<u64>,
    /// The time at which the question expires, in milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
}

/// The closed approvals of one tenant, which never change.
#[derive(Debug, Default)]
pub struct ApprovalIndex {
    closed: Mutex<HashMap<ClosedId, Arc<ApprovalEntry>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClosedId {
    Request(super::RequestId),
    Gate(Digest),
}

impl ApprovalIndex {
    /// Returns all approvals of the tenant, the newest question first. Files that are damaged are left out.
    pub fn list(&self, approvals: &Approvals<'_>) -> Result<Vec<Arc<ApprovalEntry>>, EngineError> {
        let mut known = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut all, mut closed) = (Vec::new(), HashMap::new());
        let mut add = |id: ClosedId, entry: Arc<ApprovalEntry>, has_outcome: bool| {
            if has_outcome {
                closed.insert(id, Arc::clone(&entry));
            }
            all.push(entry);
        };
        for (id, present) in approvals.request_files()? {
            let key = ClosedId::Request(id);
            match known.remove(&key).filter(|_| present.answer) {
                Some(entry) => add(key, entry, true),
                None => {
                    if let Some(entry) = approvals.request_entry(id, present) {
                        add(key, Arc::new(entry), present.answer);
                    }
                }
            }
        }
        let files = GateFiles::new(approvals.state);
        for (digest, present) in files.present().kind(ErrorKind::Broken)? {
            let key = ClosedId::Gate(digest);
            match known.remove(&key).filter(|_| present.answer) {
                Some(entry) => add(key, entry, true),
                None => {
                    if let Some(entry) = approvals.gate_entry(&files, digest) {
                        add(key, Arc::new(entry), present.answer);
                    }
                }
            }
        }
        *known = closed;
        drop(known);
        all.extend(approvals.skill_entries()?.into_iter().map(Arc::new));
        all.sort_by_cached_key(|entry| (std::cmp::Reverse(entry.asked), entry.id.to_string()));
        Ok(all)
    }
}

/// An approval with everything that an answer carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundApproval {
    pub entry: ApprovalEntry,
    pub approval: Approval,
    /// Who may answer. `None` if the approval is closed and its rule is not known any more.
    pub rule: Option<AnswerRule>,
}

/// Returns an approval with everything that an answer carries out; `None` if there is none with this id.
pub fn find(
    approvals: &Approvals<'_>,
    id: &ApprovalId,
) -> Result<Option<FoundApproval>, EngineError> {
    match id {
        ApprovalId::Request(id) => {
            let present = PresentFiles { asked: true, ..PresentFiles::default() };
            let found = approvals.request(*id, present).kind(ErrorKind::Damaged)?;
            let Some((asked, state)) = found else { return Ok(None) };
            let rule = match approvals.rule_of_request(&asked) {
                Ok(rule) => Some(rule),
                // The box of a closed question can be gone.
                Err(_) if matches!(state, ApprovalState::Closed { .. }) => None,
                Err(error) => return Err(error),
            };
            let entry = of_request(&asked, state.clone());
            Ok(Some(FoundApproval { entry, approval: approval(asked, state), rule }))
        }
        ApprovalId::Gate(digest) => {
            let files = GateFiles::new(approvals.state);
            let found = approvals.gate(&files, digest)?;
            Ok(found.map(|(gate, state, question)| {
                let rule = question.as_ref().map(|question| question.answers.clone());
                let entry = of_gate(&gate, state.clone());
                let approval = super::gates::approval(&gate, state, question);
                FoundApproval { entry, approval, rule }
            }))
        }
        ApprovalId::Skill(_) => {
            let mut all = Vec::new();
            approvals.list_skills(&mut all)?;
            let found = all.into_iter().find(|it| it.about.as_ref().is_some_and(|it| it.id == *id));
            Ok(found.and_then(|approval| {
                let rule = Some(AnswerRule::default());
                Some(FoundApproval { entry: of_skill(&approval)?, approval, rule })
            }))
        }
    }
}

fn of_request(asked: &super::QuestionFile, state: ApprovalState) -> ApprovalEntry {
    ApprovalEntry {
        id: ApprovalId::Request(asked.request()),
        kind: ApprovalKind::Request,
        state,
        asker: asked.name.to_string(),
        box_name: Some(asked.name.clone()),
        run: Some(asked.run),
        digest: asked.digest,
        text: display::safe_line(&asked.text),
        asked: Some(asked.asked),
        deadline: Some(asked.deadline),
    }
}

fn of_gate(gate: &GateFile, state: ApprovalState) -> ApprovalEntry {
    ApprovalEntry {
        id: ApprovalId::Gate(gate.digest),
        kind: ApprovalKind::Gate,
        state,
        asker: display::safe_line(format!("{}/{}", gate.plan, gate.task)),
        box_name: None,
        run: Some(gate.run),
        digest: gate.digest,
        text: display::safe_line(&gate.question),
        asked: Some(gate.asked),
        deadline: Some(gate.deadline),
    }
}

fn of_skill(approval: &Approval) -> Option<ApprovalEntry> {
    let about = approval.about.as_ref()?;
    Some(ApprovalEntry {
        id: about.id.clone(),
        kind: about.kind,
        state: approval.state.clone(),
        asker: approval.label.clone(),
        box_name: None,
        run: None,
        digest: about.digest,
        text: about.text.clone(),
        asked: None,
        deadline: None,
    })
}

impl Approvals<'_> {
    fn request_files(
        &self,
    ) -> Result<impl Iterator<Item = (super::RequestId, PresentFiles)>, EngineError> {
        let files = self.files();
        let names = files.names().with_context(|| format!("cannot list {}", files.dir().display()));
        Ok(names.kind(ErrorKind::Broken)?.0.into_iter())
    }

    fn request_entry(&self, id: super::RequestId, present: PresentFiles) -> Option<ApprovalEntry> {
        match self.request(id, present) {
            Ok(found) => found.map(|(asked, state)| of_request(&asked, state)),
            Err(damage) => {
                tracing::warn!(%damage, "an approval is not listed");
                None
            }
        }
    }

    fn gate_entry(&self, files: &GateFiles, digest: Digest) -> Option<ApprovalEntry> {
        match files.state(&digest, self.now()) {
            Ok(found) => found.map(|(gate, state)| of_gate(&gate, state)),
            Err(damage) => {
                tracing::warn!(%damage, "an approval is not listed");
                None
            }
        }
    }

    fn skill_entries(&self) -> Result<Vec<ApprovalEntry>, EngineError> {
        let mut all = Vec::new();
        self.list_skills(&mut all)?;
        Ok(all.iter().filter_map(of_skill).collect())
    }
}
