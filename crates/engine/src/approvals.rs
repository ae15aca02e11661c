//! Approvals: questions of boxes, gates of runs and versions of skills that wait for the answer of a person.
//!
//! The supervisor of a box records a question in the ledger and then writes it to a file. A person answers
//! by creating a claim file, which only one answer can do. The supervisor checks that the answer has the
//! digest of its question, records the person who answered, and carries the answer out. A version of a skill
//! waits in the files of the skill, even when no process is running. A gate waits in the ledger; see [`gates`].

mod answering;
mod file;
pub mod gates;
pub mod index;
pub mod requests;
mod retention;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use belljar_code::skill::{SkillError, SkillInfo, SkillState, Skills, Waiting};
use belljar_ledger::{Actor, ApprovalRefused, Digest, Draft, LedgerPaths, Reader, Row};
use belljar_model::boxes::BoxName;
use belljar_model::caller::{Principal, PrincipalKind};
use belljar_model::code::SkillName;
use belljar_model::role::Role;
use belljar_model::{RunId, display};

pub use self::answering::{AnswerRule, Answerer};
use self::file::{AnswerFile, ApprovalFiles, PresentFiles, QuestionFile};
pub use self::file::{
    ApprovalIdError, ApprovalKind, ApprovalOutcome, DamagedFile, NewRequest, RequestId,
    request_digest,
};
use self::gates::{GateQuestion, Gates};
pub use self::retention::{RETENTION, remove_old};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::{record, skills};

/// The age in milliseconds after which a claim counts as left over by a killed process.
const CLAIM_TIMEOUT: u64 = 5_000;

/// The answer of a person to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny,
    /// Denies a gate, with a reason for the record.
    DenyBecause(String),
    /// Allows a gate, with another output.
    Edit(Vec<u8>),
}

impl Verdict {
    /// Returns whether a question of a box or a skill is allowed.
    fn is_allowed(&self) -> Result<bool, EngineError> {
        match self {
            Self::Allow => Ok(true),
            Self::Deny => Ok(false),
            Self::DenyBecause(_) => Err(invalid("only the rejection of a gate has a reason")),
            Self::Edit(_) => Err(invalid("only the output of a gate can be edited")),
        }
    }
}

/// The id of an approval: a question of a box, a gate of a run, or a skill that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalId {
    Request(RequestId),
    Skill(SkillName),
    /// The digest of the gate.
    Gate(Digest),
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => id.fmt(f),
            Self::Skill(name) => write!(f, "skill:{name}"),
            Self::Gate(digest) => write!(f, "gate:{digest}"),
        }
    }
}

impl FromStr for ApprovalId {
    type Err = ApprovalIdError;

    fn from_str(text: &str) -> Result<Self, ApprovalIdError> {
        match text.split_once(':') {
            Some(("skill", name)) => name.parse().map(Self::Skill).map_err(|_| ApprovalIdError),
            Some(("gate", digest)) => digest.parse().map(Self::Gate).map_err(|_| ApprovalIdError),
            Some(_) | None => text.parse().map(Self::Request),
        }
    }
}

/// A filter for [`Approvals::list`].
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Lists only approvals of this box.
    pub name: Option<BoxName>,
    /// Lists only approvals of this kind.
    pub kind: Option<ApprovalKind>,
    /// Also lists approvals that are closed.
    pub closed: bool,
}

/// An approval, or a damaged file in the directory of approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The name shown to people: `NAME:NUMBER`, `skill:NAME`, or the name of a damaged file.
    pub label: String,
    pub state: ApprovalState,
    /// The question. `None` if its file is damaged.
    pub about: Option<ApprovalQuestion>,
}

/// A question that waits for the answer of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalQuestion {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    /// The box that asks. `None` for a skill.
    pub name: Option<BoxName>,
    /// The index of the question's event `approval.asked` in the ledger.
    pub event: Option<u64>,
    /// The digest of the question. An answer must have the same digest.
    pub digest: Digest,
    /// The question on one line, safe to print to a terminal.
    pub text: String,
    /// The names of the secrets that the request would send, safe to print to a terminal.
    pub secrets: Vec<String>,
    /// The time of the question in milliseconds since the Unix epoch.
    pub asked: Option<u64>,
    /// The time at which the question expires, in milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
    /// What happens after an approval. `None` if the approval is not an open gate.
    pub gate: Option<Box<GateQuestion>>,
}

/// The state of an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    Open,
    /// A person answered, but the supervisor has not carried the answer out yet.
    Claimed {
        by: Option<Principal>,
    },
    Closed {
        outcome: ApprovalOutcome,
        by: Option<Principal>,
        /// The time of the outcome in milliseconds since the Unix epoch.
        at: u64,
    },
    Damaged(String),
}

impl ApprovalState {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Claimed { .. } => "claimed",
            Self::Closed { outcome, .. } => outcome.name(),
            Self::Damaged(_) => "damaged",
        }
    }

    /// Returns the principal that answered, if any.
    pub const fn by(&self) -> Option<&Principal> {
        match self {
            Self::Claimed { by } | Self::Closed { by, .. } => by.as_ref(),
            Self::Open | Self::Damaged(_) => None,
        }
    }
}

/// The operations on supervisors that [`Approvals`] needs.
pub trait Supervisors: fmt::Debug + Send + Sync {
    /// Returns whether the supervisor of this run of a box is alive.
    fn is_alive(&self, state: &Scoped, name: &BoxName, run: RunId) -> bool;

    /// Returns who may answer a question of a box, as its current `ask` rules say.
    fn answer_rule(
        &self,
        state: &Scoped,
        name: &BoxName,
        rule: Option<&str>,
    ) -> Result<AnswerRule, EngineError>;

    /// Notifies a supervisor that a question has an answer. Returns when the answer is carried out.
    fn wake(&self, state: &Scoped, name: &BoxName, id: RequestId) -> Result<(), EngineError>;
}

/// The approvals of one tenant.
#[derive(Clone, Copy, Debug)]
pub struct Approvals<'a> {
    state: &'a Scoped,
    supervisors: &'a dyn Supervisors,
    gates: &'a dyn Gates,
}

impl<'a> Approvals<'a> {
    pub const fn new(
        state: &'a Scoped,
        supervisors: &'a dyn Supervisors,
        gates: &'a dyn Gates,
    ) -> Self {
        Self { state, supervisors, gates }
    }

    /// Lists approvals: first gates, then the questions of each box in their order, then skills.
    ///
    /// A question whose supervisor has exited is closed, and only the call that closes it lists it.
    pub fn list(&self, query: &ApprovalQuery) -> Result<Vec<Approval>, EngineError> {
        let is_wanted = |kind| query.kind.is_none_or(|wanted| wanted == kind);
        let mut all = Vec::new();
        if is_wanted(ApprovalKind::Gate) && query.name.is_none() {
            self.list_gates(query, &mut all)?;
        }
        if is_wanted(ApprovalKind::Request) {
            let mut requests = Vec::new();
            self.list_requests(query, &mut requests)?;
            all.append(&mut requests);
        }
        if is_wanted(ApprovalKind::Skill) && query.name.is_none() {
            self.list_skills(&mut all)?;
        }
        Ok(all)
    }

    fn list_requests(
        &self,
        query: &ApprovalQuery,
        all: &mut Vec<Approval>,
    ) -> Result<(), EngineError> {
        let files = self.files();
        let names = files.names().with_context(|| format!("cannot list {}", files.dir().display()));
        let (known, unknown) = names.kind(ErrorKind::Broken)?;
        for (id, present) in known {
            if present.answer && !query.closed {
                continue;
            }
            match self.request(id, present) {
                Ok(Some((asked, state))) => {
                    let is_wanted = query.name.as_ref().is_none_or(|name| *name == asked.name);
                    let expired = matches!(
                        state,
                        ApprovalState::Closed { outcome: ApprovalOutcome::Expired, .. }
                    );
                    if is_wanted && (query.closed || !expired) {
                        all.push(approval(asked, state));
                    }
                }
                Ok(None) => {} // another process removed the files
                Err(damage) => all.push(damaged(id.to_string(), damage.to_string())),
            }
        }
        let order = |one: &Approval| {
            let about = one.about.as_ref();
            about.and_then(|about| Some(about.name.as_ref()?.as_str().to_owned()))
        };
        all.sort_by_key(order); // stable: within a box by run and number
        for name in unknown {
            let why = format!("{}: not a file of an approval", files.dir().join(&name).display());
            all.push(damaged(display::safe_line(name), why));
        }
        Ok(())
    }

    /// Returns a question of a box and its state, or `None` if its files were removed.
    fn request(
        &self,
        id: RequestId,
        present: PresentFiles,
    ) -> Result<Option<(QuestionFile, ApprovalState)>, DamagedFile> {
        let files = self.files();
        let Some(asked) = files.asked(id)? else {
            return match present.asked {
                true => Ok(None),
                false => Err(files.damage_of(id, "the file of the question is missing")),
            };
        };
        if let Some(answer) = files.answer(id)? {
            return Ok(Some((asked, closed(answer))));
        }
        if !self.supervisors.is_alive(self.state, &asked.name, asked.run) {
            let state = self.close(&asked)?;
            return Ok(Some((asked, state)));
        }
        let state = match files.claim(id)? {
            Some(claim) => ApprovalState::Claimed { by: claim.by },
            None if self.now() > asked.deadline => {
                // The supervisor will record that the question expired, and close it.
                let (outcome, at) = (ApprovalOutcome::Expired, asked.deadline);
                ApprovalState::Closed { outcome, by: None, at }
            }
            None => ApprovalState::Open,
        };
        Ok(Some((asked, state)))
    }

    /// Closes a question whose supervisor has exited, unless the supervisor closed the question itself.
    fn close(&self, asked: &QuestionFile) -> Result<ApprovalState, DamagedFile> {
        let (files, id) = (self.files(), asked.request());
        let claim = files.claim(id).ok().flatten();
        let is_recorded = claim.is_some() && self.is_answered_in_ledger(asked);
        let answer = match claim {
            // The supervisor exited after it recorded the answer and before it wrote the file: the record
            // is valid.
            Some(claim) if is_recorded => claim,
            // The closing entry names the principal of an answer that had no effect, if it is known.
            claim => {
                let by = claim.and_then(|claim| claim.by);
                AnswerFile::of(id, asked.digest, ApprovalOutcome::Gone, by, self.now())
            }
        };
        match files.put_answer(&answer) {
            Ok(true) if is_recorded => Ok(closed(answer)),
            Ok(true) => {
                let why = "gone".to_owned();
                let refused = ApprovalRefused::new(why, asked.digest, None);
                let draft = Draft::new(refused).of_run(asked.run).by(Actor::Engine);
                let draft = draft.because_of_index(Some(asked.event));
                let recorded = record::open(self.state)
                    .and_then(|ledger| Ok(ledger.record(draft).map(drop)?));
                if let Err(error) = recorded {
                    let text = format!("cannot record that a question is closed: {error:#}");
                    self.state.notice(&Notice::NotRecorded(text));
                }
                Ok(closed(answer))
            }
            Ok(false) => Ok(closed(files.answer(id)?.unwrap_or(answer))),
            Err(error) => Err(files.damage_of(id, &format!("cannot close the question: {error}"))),
        }
    }

    /// Returns whether the ledger has an answer to this question. False if the ledger cannot be read.
    fn is_answered_in_ledger(&self, asked: &QuestionFile) -> bool {
        let effects = Reader::open(&LedgerPaths::under(self.state.home()))
            .and_then(|reader| reader.effects_of(asked.event));
        let is_answer =
            |row: &Row| matches!(row.kind.as_str(), "approval.given" | "approval.refused");
        effects.is_ok_and(|rows| rows.iter().any(is_answer))
    }

    fn list_skills(&self, all: &mut Vec<Approval>) -> Result<(), EngineError> {
        if !self.state.store().layout().skills().is_dir() {
            return Ok(());
        }
        let skills = Skills::open(self.state.home()).kind(ErrorKind::Broken)?;
        for SkillInfo { name, state, .. } in skills.list().kind(ErrorKind::Broken)? {
            let waiting = match state {
                SkillState::Active { waiting, .. } => waiting,
                SkillState::Waiting(waiting) => Some(waiting),
                SkillState::Damaged(why) => {
                    all.push(damaged(format!("skill:{name}"), why));
                    continue;
                }
            };
            all.extend(waiting.and_then(|Waiting { skill, more }| {
                let version = skill.version.short();
                let wanted = more.join(", ");
                let text = format!("skill {name}, version {version}, wants {wanted}");
                let id = ApprovalId::Skill(name.clone());
                let secrets = skill.wants.secrets.iter().map(ToString::to_string);
                let about = ApprovalQuestion {
                    kind: ApprovalKind::Skill,
                    name: None,
                    event: None,
                    digest: skills::digest(&skill.version).ok()?,
                    text: display::safe_line(text),
                    secrets: secrets.collect(),
                    asked: None,
                    deadline: None,
                    gate: None,
                    id,
                };
                let (label, state) = (about.id.to_string(), ApprovalState::Open);
                Some(Approval { label, state, about: Some(about) })
            }));
        }
        Ok(())
    }

    /// Answers an approval as the user of the machine, who owns the tenant `local`. Fails if the approval has
    /// another digest or was answered before.
    pub fn answer(
        &self,
        id: &ApprovalId,
        digest: &Digest,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let owns = |maker: &Principal| *maker == self.state.caller().principal;
        self.answer_as(id, digest, verdict, &Answerer { role: Role::Owner, owns: &owns })
    }

    /// Answers an approval as a person with these rights. Fails if the approval has another digest, was answered
    /// before, or demands another person.
    pub fn answer_as(
        &self,
        id: &ApprovalId,
        digest: &Digest,
        verdict: Verdict,
        person: &Answerer<'_>,
    ) -> Result<(), EngineError> {
        let by = &self.state.caller().principal;
        if !matches!(by.kind(), PrincipalKind::User | PrincipalKind::Person) {
            let text = format!("{by} cannot answer: only a person can answer an approval");
            return Err(EngineError::message(ErrorKind::Refused, text));
        }
        match id {
            ApprovalId::Request(id) => {
                self.answer_request(*id, digest, verdict.is_allowed()?, person)
            }
            ApprovalId::Skill(name) => self.answer_skill(name, digest, verdict.is_allowed()?),
            ApprovalId::Gate(id) => self.answer_gate(id, digest, verdict, person),
        }
    }

    fn answer_request(
        &self,
        id: RequestId,
        digest: &Digest,
        is_allowed: bool,
        person: &Answerer<'_>,
    ) -> Result<(), EngineError> {
        let (files, state) = (self.files(), self.state);
        let asked = files.asked(id).kind(ErrorKind::Damaged)?;
        let Some(asked) = asked else {
            return Err(EngineError::message(ErrorKind::NotFound, NOT_WAITING));
        };
        if asked.digest != *digest {
            return Err(conflict());
        }
        let present = PresentFiles { asked: true, ..PresentFiles::default() };
        match self.request(id, present).kind(ErrorKind::Damaged)? {
            Some((asked, ApprovalState::Closed { outcome, by, .. })) => {
                return Err(closed_error(&asked.name, outcome, by.as_ref()));
            }
            Some((asked, ApprovalState::Claimed { .. })) => {
                return Err(self.already_claimed(&asked));
            }
            Some((_, ApprovalState::Open | ApprovalState::Damaged(_))) | None => {}
        }
        self.rule_of_request(&asked)?.check(person)?;
        let by = Some(state.caller().principal.clone());
        let outcome = if is_allowed { ApprovalOutcome::Allowed } else { ApprovalOutcome::Denied };
        let claim = AnswerFile::of(id, *digest, outcome, by, self.now());
        let created = files.put_claim(&claim).context("cannot write the answer to the question");
        if !created.kind(ErrorKind::Broken)? {
            return Err(self.already_claimed(&asked));
        }
        // An earlier claim is renamed when it becomes the answer. Then a second claim can be created.
        if let Some(answer) = files.answer(id).kind(ErrorKind::Damaged)? {
            files.remove_claim(id);
            return Err(closed_error(&asked.name, answer.outcome, answer.by.as_ref()));
        }
        let Err(error) = self.supervisors.wake(state, &asked.name, id) else { return Ok(()) };
        match files.answer(id) {
            // Another process notified the supervisor of this answer.
            Ok(Some(answer)) if answer == claim => Ok(()),
            Ok(Some(answer)) => {
                files.remove_claim(id);
                Err(closed_error(&asked.name, answer.outcome, answer.by.as_ref()))
            }
            _ if !self.supervisors.is_alive(state, &asked.name, asked.run) => {
                self.close(&asked).kind(ErrorKind::Damaged)?;
                Err(closed_error(&asked.name, ApprovalOutcome::Gone, None))
            }
            _ => Err(error),
        }
    }

    fn rule_of_request(&self, asked: &QuestionFile) -> Result<AnswerRule, EngineError> {
        self.supervisors.answer_rule(self.state, &asked.name, asked.rule.as_deref())
    }

    /// Returns the error for a question that has a claim already.
    ///
    /// An old claim was left over by a killed process: its answer is carried out first.
    fn already_claimed(&self, asked: &QuestionFile) -> EngineError {
        let (files, id) = (self.files(), asked.request());
        let claim = match files.claim(id) {
            Ok(claim) => claim,
            Err(damage) => return EngineError::new(ErrorKind::Damaged, damage),
        };
        if let Some(claim) = &claim
            && self.now().saturating_sub(claim.at) > CLAIM_TIMEOUT
            && let Err(error) = self.supervisors.wake(self.state, &asked.name, id)
        {
            return error.context("cannot carry out the earlier answer to this question");
        }
        match files.answer(id).ok().flatten().or(claim) {
            Some(answer) => closed_error(&asked.name, answer.outcome, answer.by.as_ref()),
            // The supervisor refused the earlier answer, because its digest did not match.
            None => conflict(),
        }
    }

    fn answer_skill(
        &self,
        name: &SkillName,
        digest: &Digest,
        is_allowed: bool,
    ) -> Result<(), EngineError> {
        let skills = skills::open(self.state)?;
        let version = digest.to_string().parse().kind(ErrorKind::Invalid)?;
        skills.answer(name, &version, is_allowed).map_err(|error| {
            let kind = match &error {
                SkillError::NotFound { .. } => ErrorKind::NotFound,
                SkillError::NotWaiting { .. } => ErrorKind::Conflict,
                SkillError::Damaged { .. } => ErrorKind::Damaged,
                SkillError::NotRecorded { .. } => ErrorKind::Unrecorded,
                SkillError::Files(_)
                | SkillError::NoVersion { .. }
                | SkillError::NotOwner { .. }
                | SkillError::Waits { .. }
                | SkillError::NoCode
                | SkillError::TooLong { .. }
                | SkillError::Description
                | SkillError::Wants(_)
                | SkillError::TooMany
                | SkillError::Full
                | SkillError::EmptySearch { .. }
                | SkillError::NoMatch { .. }
                | SkillError::ManyMatches { .. }
                | SkillError::TooManyEdits
                | SkillError::NoEdits => ErrorKind::Broken,
            };
            EngineError::new(kind, error)
        })
    }

    fn files(&self) -> ApprovalFiles {
        ApprovalFiles::under(self.state.home())
    }

    fn now(&self) -> u64 {
        self.state.clock().millis()
    }
}

/// The error text for an answer to a question that does not wait for one.
pub const NOT_WAITING: &str = "no question with this number waits for an answer; it may have been answered or withdrawn already";

fn conflict() -> EngineError {
    let text = "the answer does not match the current question; show the question and answer again";
    EngineError::message(ErrorKind::Conflict, text)
}

/// Returns the error for an answer to a closed question, with the reason for the closing.
fn closed_error(name: &BoxName, outcome: ApprovalOutcome, by: Option<&Principal>) -> EngineError {
    let by = by.map_or_else(|| "somebody".to_owned(), ToString::to_string);
    let why = match outcome {
        ApprovalOutcome::Allowed | ApprovalOutcome::Edited | ApprovalOutcome::Denied => {
            format!("already answered by {by}")
        }
        ApprovalOutcome::Expired => "the question expired without an answer".to_owned(),
        ApprovalOutcome::Withdrawn => "the program that asked closed its connection".to_owned(),
        ApprovalOutcome::RulesChanged => "the network rules of the box changed".to_owned(),
        ApprovalOutcome::Gone => {
            format!("box {name} is not running any more, so the question is closed")
        }
        ApprovalOutcome::Unrecorded => format!("the answer of {by} could not be recorded"),
    };
    let text = format!("no question with this number waits for an answer: {why}");
    EngineError::message(ErrorKind::WrongState, text)
}

fn closed(AnswerFile { outcome, by, at, .. }: AnswerFile) -> ApprovalState {
    ApprovalState::Closed { outcome, by, at }
}

fn damaged(label: String, why: String) -> Approval {
    let state = ApprovalState::Damaged(display::safe_line(why));
    Approval { label, state, about: None }
}

fn approval(asked: QuestionFile, state: ApprovalState) -> Approval {
    let label = format!("{}:{}", asked.name, asked.number);
    let about = ApprovalQuestion {
        id: ApprovalId::Request(asked.request()),
        kind: asked.kind,
        event: Some(asked.event),
        digest: asked.digest,
        text: display::safe_line(asked.text),
        secrets: asked.secrets.iter().map(display::safe_line).collect(),
        asked: Some(asked.asked),
        deadline: Some(asked.deadline),
        gate: None,
        name: Some(asked.name),
    };
    Approval { label, state, about: Some(about) }
}
