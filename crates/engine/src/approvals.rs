//! What waits for the answer of a person: requests of boxes and versions of skills.
//!
//! A question of a box is a file that its supervisor writes after the event is in the ledger. An answer
//! is a claim on that file, which can be made once; the supervisor compares it with what it asked,
//! records who answered, and carries it out. A skill waits in its own files and outlives every process.

mod file;
pub mod requests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use belljar_code::skill::{SkillError, SkillInfo, SkillState, Skills, Waiting};
use belljar_ledger::{Actor, ApprovalRefused, Digest, Draft, LedgerPaths, Reader, Row};
use belljar_model::boxes::BoxName;
use belljar_model::caller::{Principal, PrincipalKind};
use belljar_model::code::SkillName;
use belljar_model::{RunId, display};

use self::file::{Answer, Asked, Files, Present};
pub use self::file::{
    ApprovalIdError, ApprovalKind, Damage, NewRequest, Outcome, RequestId, request_digest,
};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::{record, skills};

/// How long an approval that ended is kept.
pub const KEPT: Duration = Duration::from_hours(14 * 24);

/// A claim older than this was left by a process that was killed before it told the supervisor.
const CLAIM_TIME: u64 = 5_000; // ms
/// A file that nobody finished in this time was left by a process that was killed.
const WRITE_TIME: Duration = Duration::from_hours(24);

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny,
}

impl Verdict {
    const fn outcome(self) -> Outcome {
        match self {
            Self::Allow => Outcome::Allowed,
            Self::Deny => Outcome::Denied,
        }
    }
}

/// Names one approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalId {
    Request(RequestId),
    Skill(SkillName),
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => id.fmt(f),
            Self::Skill(name) => write!(f, "skill:{name}"),
        }
    }
}

impl FromStr for ApprovalId {
    type Err = ApprovalIdError;

    fn from_str(text: &str) -> Result<Self, ApprovalIdError> {
        match text.strip_prefix("skill:") {
            Some(name) => name.parse().map(Self::Skill).map_err(|_| ApprovalIdError),
            None => text.parse().map(Self::Request),
        }
    }
}

/// Which approvals are wanted.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Only those of this box.
    pub name: Option<BoxName>,
    /// Only those of this kind.
    pub kind: Option<ApprovalKind>,
    /// Also those that ended.
    pub closed: bool,
}

/// One approval, or a file that cannot be read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// For people: `NAME:NUMBER`, `skill:NAME`, or the name of a damaged file.
    pub label: String,
    pub state: ApprovalState,
    /// None if it is damaged.
    pub about: Option<About>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    /// The box that asks; none for a skill.
    pub name: Option<BoxName>,
    /// The index of `approval.asked` in the ledger.
    pub event: Option<u64>,
    /// An answer must name this.
    pub digest: Digest,
    /// In one line that is safe to show.
    pub text: String,
    /// The secrets that would be sent, by name, safe to show.
    pub secrets: Vec<String>,
    /// Milliseconds since the Unix epoch.
    pub asked: Option<u64>,
    pub deadline: Option<u64>,
}

/// How an approval stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    Open,
    /// Answered, and the supervisor has not carried it out.
    Claimed {
        by: Option<Principal>,
    },
    Closed {
        outcome: Outcome,
        by: Option<Principal>,
        /// Milliseconds since the Unix epoch.
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

    /// Who answered.
    pub const fn by(&self) -> Option<&Principal> {
        match self {
            Self::Claimed { by } | Self::Closed { by, .. } => by.as_ref(),
            Self::Open | Self::Damaged(_) => None,
        }
    }
}

/// The supervisors of boxes, as far as approvals need them.
pub trait Supervisors: fmt::Debug + Send + Sync {
    /// Whether the supervisor of this run of a box is alive.
    fn is_alive(&self, state: &Scoped, name: &BoxName, run: RunId) -> bool;

    /// Tells a supervisor that a question is answered. Returns when that is carried out.
    fn wake(&self, state: &Scoped, name: &BoxName, id: RequestId) -> Result<(), EngineError>;
}

/// The approvals of one tenant.
#[derive(Clone, Copy, Debug)]
pub struct Approvals<'a> {
    state: &'a Scoped,
    supervisors: &'a dyn Supervisors,
}

impl<'a> Approvals<'a> {
    pub const fn new(state: &'a Scoped, supervisors: &'a dyn Supervisors) -> Self {
        Self { state, supervisors }
    }

    /// What waits for an answer: by box and in the order of the questions, then skills. A question
    /// whose supervisor is gone is closed, and is in the list of the call that closes it.
    pub fn list(&self, query: &ApprovalQuery) -> Result<Vec<Approval>, EngineError> {
        let mut all = Vec::new();
        if query.kind != Some(ApprovalKind::Skill) {
            self.list_requests(query, &mut all)?;
        }
        if query.kind != Some(ApprovalKind::Request) && query.name.is_none() {
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
        let names = files.names().with_context(|| format!("list {}", files.dir().display()));
        let (known, unknown) = names.kind(ErrorKind::Broken)?;
        for (id, present) in known {
            if present.answer && !query.closed {
                continue;
            }
            match self.request(id, present) {
                Ok(Some((asked, state))) => {
                    let is_wanted = query.name.as_ref().is_none_or(|name| *name == asked.name);
                    let expired =
                        matches!(state, ApprovalState::Closed { outcome: Outcome::Expired, .. });
                    if is_wanted && (query.closed || !expired) {
                        all.push(approval(asked, state));
                    }
                }
                Ok(None) => {} // removed meanwhile
                Err(damage) => all.push(damaged(id.to_string(), damage.to_string())),
            }
        }
        let order = |one: &Approval| {
            let about = one.about.as_ref();
            about.and_then(|about| Some(about.name.as_ref()?.as_str().to_owned()))
        };
        all.sort_by_key(order); // stable: within a box by run and number
        for name in unknown {
            let why = format!("{}: no file of an approval", files.dir().join(&name).display());
            all.push(damaged(display::safe_line(name), why));
        }
        Ok(())
    }

    /// How one question stands; none if its files are gone.
    fn request(
        &self,
        id: RequestId,
        present: Present,
    ) -> Result<Option<(Asked, ApprovalState)>, Damage> {
        let files = self.files();
        let Some(asked) = files.asked(id)? else {
            return match present.asked {
                true => Ok(None),
                false => Err(files.damage_of(id, "the question is missing")),
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
                // The supervisor records that and closes it.
                let (outcome, at) = (Outcome::Expired, asked.deadline);
                ApprovalState::Closed { outcome, by: None, at }
            }
            None => ApprovalState::Open,
        };
        Ok(Some((asked, state)))
    }

    /// Closes a question whose supervisor is gone, unless it closed it itself.
    fn close(&self, asked: &Asked) -> Result<ApprovalState, Damage> {
        let (files, id) = (self.files(), asked.request());
        let claim = files.claim(id).ok().flatten();
        let is_recorded = claim.is_some() && self.is_answered_in_ledger(asked);
        let answer = match claim {
            // The supervisor ended between the record and the file: the record counts.
            Some(claim) if is_recorded => claim,
            // Whoever answered and was not heard is named; a claim that is damaged names nobody.
            claim => {
                let by = claim.and_then(|claim| claim.by);
                Answer::of(id, asked.digest, Outcome::Gone, by, self.now())
            }
        };
        match files.put_answer(&answer) {
            Ok(true) if is_recorded => Ok(closed(answer)),
            Ok(true) => {
                let why = "gone".to_owned();
                let refused = ApprovalRefused { why, bound_to: asked.digest, by: None };
                let draft = Draft::new(refused).of_run(asked.run).by(Actor::Engine);
                let draft = draft.because_of_index(Some(asked.event));
                let recorded = record::open(self.state)
                    .and_then(|ledger| Ok(ledger.record(draft).map(drop)?));
                if let Err(error) = recorded {
                    let text = format!("record that a question is closed: {error:#}");
                    self.state.notice(&Notice::NotRecorded(text));
                }
                Ok(closed(answer))
            }
            Ok(false) => Ok(closed(files.answer(id)?.unwrap_or(answer))),
            Err(error) => Err(files.damage_of(id, &format!("close it: {error}"))),
        }
    }

    /// Whether the ledger has an answer to this question. A ledger that cannot be read has none.
    fn is_answered_in_ledger(&self, asked: &Asked) -> bool {
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
        for SkillInfo { name, state } in skills.list().kind(ErrorKind::Broken)? {
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
                let text = format!("skill {name}, version {version}, wants {}", more.join(", "));
                let id = ApprovalId::Skill(name.clone());
                let secrets = skill.wants.secrets.iter().map(ToString::to_string);
                let about = About {
                    kind: ApprovalKind::Skill,
                    name: None,
                    event: None,
                    digest: skills::digest(&skill.version).ok()?,
                    text: display::safe_line(text),
                    secrets: secrets.collect(),
                    asked: None,
                    deadline: None,
                    id,
                };
                let (label, state) = (about.id.to_string(), ApprovalState::Open);
                Some(Approval { label, state, about: Some(about) })
            }));
        }
        Ok(())
    }

    /// Answers exactly what has this digest, once.
    pub fn answer(
        &self,
        id: &ApprovalId,
        digest: &Digest,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let by = &self.state.caller().principal;
        if !matches!(by.kind(), PrincipalKind::User | PrincipalKind::Person) {
            let text = format!("{by} is not a person, and only a person can answer");
            return Err(EngineError::message(ErrorKind::Refused, text));
        }
        match id {
            ApprovalId::Request(id) => self.answer_request(*id, digest, verdict),
            ApprovalId::Skill(name) => self.answer_skill(name, digest, verdict),
        }
    }

    fn answer_request(
        &self,
        id: RequestId,
        digest: &Digest,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let (files, state) = (self.files(), self.state);
        let asked = files.asked(id).kind(ErrorKind::Damaged)?;
        let Some(asked) = asked else {
            return Err(EngineError::message(ErrorKind::NotFound, NOTHING));
        };
        if asked.digest != *digest {
            return Err(conflict());
        }
        let present = Present { asked: true, ..Present::default() };
        match self.request(id, present).kind(ErrorKind::Damaged)? {
            Some((asked, ApprovalState::Closed { outcome, by, .. })) => {
                return Err(over(&asked.name, outcome, by.as_ref()));
            }
            Some((asked, ApprovalState::Claimed { .. })) => return Err(self.taken(&asked)),
            Some((_, ApprovalState::Open | ApprovalState::Damaged(_))) | None => {}
        }
        let by = Some(state.caller().principal.clone());
        let claim = Answer::of(id, *digest, verdict.outcome(), by, self.now());
        let made = files.put_claim(&claim).context("claim the answer").kind(ErrorKind::Broken)?;
        if !made {
            return Err(self.taken(&asked));
        }
        // The name of a claim is free again once that claim is the answer.
        if let Some(answer) = files.answer(id).kind(ErrorKind::Damaged)? {
            files.remove_claim(id);
            return Err(over(&asked.name, answer.outcome, answer.by.as_ref()));
        }
        let Err(error) = self.supervisors.wake(state, &asked.name, id) else { return Ok(()) };
        match files.answer(id) {
            // Somebody else told the supervisor of our answer.
            Ok(Some(answer)) if answer == claim => Ok(()),
            Ok(Some(answer)) => {
                files.remove_claim(id);
                Err(over(&asked.name, answer.outcome, answer.by.as_ref()))
            }
            _ if !self.supervisors.is_alive(state, &asked.name, asked.run) => {
                self.close(&asked).kind(ErrorKind::Damaged)?;
                Err(over(&asked.name, Outcome::Gone, None))
            }
            _ => Err(error),
        }
    }

    /// Somebody else answered. What a killed process did not finish is finished.
    fn taken(&self, asked: &Asked) -> EngineError {
        let (files, id) = (self.files(), asked.request());
        let claim = match files.claim(id) {
            Ok(claim) => claim,
            Err(damage) => return EngineError::new(ErrorKind::Damaged, damage),
        };
        if let Some(claim) = &claim
            && self.now().saturating_sub(claim.at) > CLAIM_TIME
            && let Err(error) = self.supervisors.wake(self.state, &asked.name, id)
        {
            return error.context("carry out the answer that was given before");
        }
        match files.answer(id).ok().flatten().or(claim) {
            Some(answer) => over(&asked.name, answer.outcome, answer.by.as_ref()),
            // It was refused, since it was about something else.
            None => conflict(),
        }
    }

    fn answer_skill(
        &self,
        name: &SkillName,
        digest: &Digest,
        verdict: Verdict,
    ) -> Result<(), EngineError> {
        let skills = skills::open(self.state)?;
        let version = digest.to_string().parse().kind(ErrorKind::Invalid)?;
        skills.answer(name, &version, verdict == Verdict::Allow).map_err(|error| {
            let kind = match &error {
                SkillError::NotFound { .. } => ErrorKind::NotFound,
                SkillError::NotWaiting { .. } => ErrorKind::Conflict,
                SkillError::Damaged { .. } => ErrorKind::Damaged,
                SkillError::NotRecorded { .. } => ErrorKind::Unrecorded,
                SkillError::Files(_)
                | SkillError::NoVersion { .. }
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

    fn files(&self) -> Files {
        Files::under(self.state.home())
    }

    fn now(&self) -> u64 {
        self.state.clock().millis()
    }
}

/// Removes approvals that ended longer ago than this, and returns how many there are. The ledger keeps
/// what was asked and answered.
pub fn remove_old(state: &Scoped, age: Duration, dry_run: bool) -> Result<usize, EngineError> {
    let files = Files::under(state.home());
    let now = state.clock().millis();
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let removed = || -> anyhow::Result<usize> {
        let mut count = 0;
        for (id, _) in files.names()?.0.into_iter().filter(|(_, present)| present.answer) {
            // What is damaged stays until somebody looked at it.
            let Ok(Some(answer)) = files.answer(id) else { continue };
            if now.saturating_sub(answer.at) > age {
                count += 1;
                if !dry_run {
                    files.remove(id)?;
                }
            }
        }
        if !dry_run {
            files.remove_unfinished(state.clock().now(), WRITE_TIME)?;
        }
        Ok(count)
    };
    removed().context("remove old approvals").kind(ErrorKind::Broken)
}

/// What whoever answers a question that does not wait is told.
pub const NOTHING: &str =
    "nothing waits for an answer under this number; it may have been answered, or given up";

fn conflict() -> EngineError {
    let text = "the answer is about something else than what is asked now; look at it again";
    EngineError::message(ErrorKind::Conflict, text)
}

/// Why a question that ended takes no answer.
fn over(name: &BoxName, outcome: Outcome, by: Option<&Principal>) -> EngineError {
    let by = by.map_or_else(|| "somebody".to_owned(), ToString::to_string);
    let why = match outcome {
        Outcome::Allowed | Outcome::Denied => format!("already answered by {by}"),
        Outcome::Expired => "nobody answered in time".to_owned(),
        Outcome::Withdrawn => "the program that asked gave up".to_owned(),
        Outcome::RulesChanged => "the rules of the box changed".to_owned(),
        Outcome::Gone => {
            format!("box {name} is not running any more, so the question is closed")
        }
        Outcome::Unrecorded => format!("the answer of {by} could not be recorded"),
    };
    let text = format!("nothing waits for an answer under this number: {why}");
    EngineError::message(ErrorKind::WrongState, text)
}

fn closed(Answer { outcome, by, at, .. }: Answer) -> ApprovalState {
    ApprovalState::Closed { outcome, by, at }
}

fn damaged(label: String, why: String) -> Approval {
    let state = ApprovalState::Damaged(display::safe_line(why));
    Approval { label, state, about: None }
}

fn approval(asked: Asked, state: ApprovalState) -> Approval {
    let label = format!("{}:{}", asked.name, asked.number);
    let about = About {
        id: ApprovalId::Request(asked.request()),
        kind: asked.kind,
        event: Some(asked.event),
        digest: asked.digest,
        text: display::safe_line(asked.text),
        secrets: asked.secrets.iter().map(display::safe_line).collect(),
        asked: Some(asked.asked),
        deadline: Some(asked.deadline),
        name: Some(asked.name),
    };
    Approval { label, state, about: Some(about) }
}
