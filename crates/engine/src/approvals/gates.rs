//! Gates of runs: approvals that a driver carries out.
//!
//! ```text
//! $BELLJAR_HOME/approvals/gate-DIGEST.json     names the gate; written after its event is in the ledger
//!                         gate-DIGEST.claim    an answer that the driver has not carried out yet
//!                         gate-DIGEST.answer   the final outcome
//!                         gate-DIGEST.edit-ID  the output of an answer that edits it
//! ```
//! The digest covers everything that happens after an approval, so it is also the id. These files only
//! name the gate: what a person sees comes from the ledger and from the files of the run, which are checked
//! against their commitments. The first answer that creates the claim is the only one. It is on disk before
//! the driver learns of it, so it is not lost if the driver is dead.

mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

use anyhow::Context as _;
use belljar_ledger::Digest;
use belljar_model::caller::{Principal, PrincipalKind};
use belljar_model::{RunId, display};
use serde::{Deserialize, Serialize};

use super::file::{ApprovalFiles, DamagedFile, GATE_PREFIX, PresentFiles, VERSION};
use super::{
    AnswerRule, Answerer, Approval, ApprovalId, ApprovalKind, ApprovalOutcome, ApprovalQuery,
    ApprovalQuestion, ApprovalState, Approvals, Verdict, conflict, damaged,
};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::durable;

/// The maximum size of an edited output in bytes: that of any output.
const MAX_EDIT: u64 = 64 << 20;
/// The maximum size of the reason of a rejection in bytes.
const MAX_REASON: usize = 2_000;

/// Everything that a person needs to know about an open gate. All texts are safe to print to a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GateQuestion {
    /// The name of the plan.
    pub plan: String,
    /// The run, as text.
    pub run: String,
    /// The task instance, such as `merge` or `merge[0]`.
    pub task: String,
    pub question: String,
    /// What an approval does by itself, beside the start of dependents.
    pub apply: Option<GateApply>,
    /// The contents that the gate reads.
    pub inputs: Vec<GateInput>,
    /// The tasks that can start after an approval, each with what it does.
    pub dependents: Vec<GateDependent>,
    /// The labels of everything that the gate reads, with their sources.
    pub taint: Vec<GateLabel>,
    /// The labels of the output after an approval.
    pub labels: Vec<String>,
    /// The labels that an approval removes.
    pub clears: Vec<String>,
    /// The type of the output, which an edited output must have.
    pub output: String,
    /// The maximum size of the output in bytes.
    pub max_output: u64,
    /// The reason why the gate cannot be approved now.
    pub obstacle: Option<String>,
    /// Who may answer.
    #[serde(skip)]
    pub answers: AnswerRule,
}

/// A label of what a gate reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateLabel {
    pub label: String,
    /// The sources of the label, for example `input.issue`.
    pub from: Vec<String>,
}

impl fmt::Display for GateLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)?;
        if self.from.is_empty() { Ok(()) } else { write!(f, " ({})", self.from.join(", ")) }
    }
}

/// A content that a gate reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateInput {
    pub name: String,
    pub size: u64,
    /// The commitment to the content.
    pub digest: String,
    pub labels: Vec<String>,
    /// The beginning of the content.
    pub preview: String,
}

/// A task that can start after an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateDependent {
    pub task: String,
    pub does: String,
}

/// A branch of the user's repository that an approval creates or moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateApply {
    /// The task that made the commit.
    pub of: String,
    pub commit: String,
    pub base: String,
    pub branch: String,
    pub files: u64,
    pub added_lines: u64,
    pub removed_lines: u64,
    /// The changed files that the host would execute, each with the reason.
    pub executes: Vec<String>,
}

/// The state of a gate, from the ledger and the files of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateState {
    Open(Box<GateQuestion>),
    Closed { outcome: ApprovalOutcome, by: Option<Principal>, at: u64 },
}

/// The operations on runs that [`Approvals`] needs.
pub trait Gates: fmt::Debug + Send + Sync {
    /// Returns the state of a gate.
    fn state(&self, state: &Scoped, run: RunId, digest: &Digest) -> Result<GateState, EngineError>;

    /// Refuses an edited output of the wrong type or size.
    fn check_edit(
        &self,
        state: &Scoped,
        run: RunId,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), EngineError>;

    /// Lets the driver look at the answers, and waits until `is_done`, or until a timeout.
    fn wake(&self, state: &Scoped, is_done: &dyn Fn() -> bool) -> Result<(), EngineError>;
}

/// The content of `gate-DIGEST.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateFile {
    version: u32,
    pub digest: Digest,
    pub run: RunId,
    pub plan: String,
    pub task: String,
    /// The unchanged question of the plan. Not safe to print to a terminal.
    pub question: String,
    /// The time of the question in milliseconds since the Unix epoch.
    pub asked: u64,
    pub deadline: u64,
}

/// The content of `gate-DIGEST.claim` and `gate-DIGEST.answer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateAnswerFile {
    version: u32,
    /// The digest of the question that was shown to the person who answered.
    pub digest: Digest,
    pub outcome: ApprovalOutcome,
    pub by: Option<Principal>,
    /// The time of the answer in milliseconds since the Unix epoch.
    pub at: u64,
    /// The reason of a rejection.
    pub reason: Option<String>,
    edit: Option<EditFile>,
}

/// The file with an edited output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditFile {
    name: String,
    hash: Digest,
}

/// The files of gates in the directory of approvals.
#[derive(Clone, Debug)]
pub struct GateFiles {
    files: ApprovalFiles,
}

impl GateFile {
    pub fn new(
        digest: Digest,
        run: RunId,
        (plan, task): (String, String),
        question: String,
        (asked, deadline): (u64, u64),
    ) -> Self {
        Self { version: VERSION, digest, run, plan, task, question, asked, deadline }
    }
}

impl GateAnswerFile {
    pub const fn new(
        digest: Digest,
        outcome: ApprovalOutcome,
        by: Option<Principal>,
        at: u64,
    ) -> Self {
        Self { version: VERSION, digest, outcome, by, at, reason: None, edit: None }
    }

    fn state(self) -> ApprovalState {
        ApprovalState::Closed { outcome: self.outcome, by: self.by, at: self.at }
    }
}

impl GateFiles {
    pub fn new(state: &Scoped) -> Self {
        Self { files: ApprovalFiles::under(state.home()) }
    }

    /// Writes the file of a gate whose question is in the ledger. Does nothing if the file exists.
    pub fn open(&self, gate: &GateFile) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.files.dir())?;
        self.files.create(&name(&gate.digest, "json"), gate).map(drop)
    }

    /// Returns whether a gate has a file of a question without an outcome.
    pub fn is_open(&self, digest: &Digest) -> bool {
        self.path(digest, "json").exists() && !self.path(digest, "answer").exists()
    }

    /// Returns the answer to a gate that no driver has carried out yet.
    ///
    /// An answer counts only if its file belongs to the user of this process, or to root, and if a user of
    /// this machine gave it, only if the file belongs to that user.
    pub fn claim(&self, digest: &Digest) -> Result<Option<GateAnswerFile>, DamagedFile> {
        let claim = self.answer_in(digest, "claim")?;
        let Some(answer) = claim else { return Ok(None) };
        let file = name(digest, "claim");
        let owner = fs::symlink_metadata(self.path(digest, "claim"));
        let owner = owner.map_err(|error| self.files.damage(&file, &error.to_string()))?.uid();
        let own = rustix::process::geteuid().as_raw();
        let is_owner = owner == own || owner == 0;
        let is_named = answer
            .by
            .as_ref()
            .is_some_and(|by| by.kind() != PrincipalKind::User || *by == Principal::user(owner));
        if !is_owner || !is_named {
            return Err(self
                .files
                .damage(&file, "the file does not belong to the person it names"));
        }
        Ok(Some(answer))
    }

    /// Reads the edited output of an answer.
    pub fn edit(&self, answer: &GateAnswerFile) -> Result<Vec<u8>, DamagedFile> {
        let missing = || self.files.damage(&name(&answer.digest, "claim"), "no edited output");
        let edit = answer.edit.as_ref().ok_or_else(missing)?;
        if !edit.name.starts_with(&name(&answer.digest, "edit-")) || edit.name.contains('/') {
            return Err(missing());
        }
        let mut content = Vec::new();
        let read = File::open(self.files.dir().join(&edit.name))
            .and_then(|file| file.take(MAX_EDIT + 1).read_to_end(&mut content));
        read.map_err(|error| self.files.damage(&edit.name, &error.to_string()))?;
        if edit_digest(&content) != edit.hash {
            return Err(self.files.damage(&edit.name, "the edited output was changed"));
        }
        Ok(content)
    }

    /// Removes an answer that cannot be carried out. The gate stays open.
    pub fn refuse_claim(&self, digest: &Digest) {
        self.remove_edit(digest);
        // A claim that cannot be removed stays in the list of approvals.
        fs::remove_file(self.path(digest, "claim")).ok();
    }

    /// Stores the outcome of a gate, after it was recorded. Does nothing if it has an outcome.
    pub fn close(&self, answer: &GateAnswerFile) -> io::Result<()> {
        self.remove_edit(&answer.digest);
        self.files.create(&name(&answer.digest, "answer"), answer)?;
        fs::remove_file(self.path(&answer.digest, "claim")).ok(); // usually there is one
        Ok(())
    }

    fn remove_edit(&self, digest: &Digest) {
        let claim = self.answer_in(digest, "claim").ok().flatten();
        if let Some(EditFile { name: file, .. }) = claim.and_then(|claim| claim.edit)
            && file.starts_with(&name(digest, "edit-"))
            && !file.contains('/')
        {
            fs::remove_file(self.files.dir().join(file)).ok(); // it only uses space
        }
    }

    fn answer_in(
        &self,
        digest: &Digest,
        kind: &str,
    ) -> Result<Option<GateAnswerFile>, DamagedFile> {
        let file = name(digest, kind);
        let answer: Option<GateAnswerFile> = self.files.read(&file)?;
        match answer {
            Some(answer) if answer.version != VERSION => {
                Err(self.files.damage(&file, "the file has an unsupported format version"))
            }
            answer => Ok(answer),
        }
    }

    fn question(&self, digest: &Digest) -> Result<Option<GateFile>, DamagedFile> {
        let file = name(digest, "json");
        let gate: Option<GateFile> = self.files.read(&file)?;
        match gate {
            Some(gate) if gate.version != VERSION || gate.digest != *digest => {
                Err(self.files.damage(&file, "the file is not the question of this gate"))
            }
            gate => Ok(gate),
        }
    }

    /// Returns all gates with their files, and the names of unknown files.
    fn all(&self) -> io::Result<(BTreeMap<Digest, PresentFiles>, Vec<String>)> {
        let entries = match fs::read_dir(self.files.dir()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            entries => entries?,
        };
        let (mut known, mut unknown) = (BTreeMap::<Digest, PresentFiles>::new(), Vec::new());
        for entry in entries {
            let file = entry?.file_name().to_string_lossy().into_owned();
            let Some(rest) = file.strip_prefix(GATE_PREFIX) else { continue };
            let parts = rest.split_once('.');
            match parts.and_then(|(digest, kind)| Some((digest.parse::<Digest>().ok()?, kind))) {
                Some((digest, "json")) => known.entry(digest).or_default().asked = true,
                Some((digest, "claim")) => known.entry(digest).or_default().claim = true,
                Some((digest, "answer")) => known.entry(digest).or_default().answer = true,
                Some((_, kind)) if kind.starts_with("edit-") => {}
                _ => unknown.push(file),
            }
        }
        unknown.sort_unstable();
        Ok((known, unknown))
    }

    fn path(&self, digest: &Digest, kind: &str) -> std::path::PathBuf {
        self.files.dir().join(name(digest, kind))
    }
}

/// Removes the files of gates that were closed more than `age` milliseconds ago. Returns their number.
pub(super) fn remove_old(state: &Scoped, age: u64, dry_run: bool) -> io::Result<usize> {
    let files = GateFiles::new(state);
    let now = state.clock().millis();
    let mut count = 0;
    for digest in files.all()?.0.into_iter().filter(|(_, it)| it.answer).map(|(digest, _)| digest) {
        let Ok(Some(answer)) = files.answer_in(&digest, "answer") else { continue };
        if now.saturating_sub(answer.at) <= age {
            continue;
        }
        count += 1;
        for kind in ["json", "claim", "answer"].iter().filter(|_| !dry_run) {
            fs::remove_file(files.path(&digest, kind)).ok(); // a later call retries
        }
    }
    Ok(count)
}

fn name(digest: &Digest, kind: &str) -> String {
    format!("{GATE_PREFIX}{digest}.{kind}")
}

fn edit_digest(content: &[u8]) -> Digest {
    Digest::of(&[b"belljar edited output 1\0", content])
}

impl Approvals<'_> {
    pub(super) fn list_gates(
        &self,
        query: &ApprovalQuery,
        all: &mut Vec<Approval>,
    ) -> Result<(), EngineError> {
        let files = GateFiles::new(self.state);
        let listed = files.all().context("cannot list the gates that wait for an answer");
        let (known, unknown) = listed.kind(ErrorKind::Broken)?;
        let mut found = Vec::new();
        for (digest, present) in known {
            if present.answer && !query.closed {
                continue;
            }
            match self.gate(&files, &digest) {
                Ok(Some((gate, state, question))) => {
                    let is_closed = matches!(state, ApprovalState::Closed { .. });
                    if query.closed || !is_closed {
                        found.push((gate.asked, approval(&gate, state, question)));
                    }
                }
                Ok(None) => {} // another process removed the files
                Err(error) => {
                    let label = format!("{GATE_PREFIX}{digest}");
                    found.push((u64::MAX, damaged(label, format!("{error:#}"))));
                }
            }
        }
        found.sort_by_key(|(asked, _)| *asked);
        all.extend(found.into_iter().map(|(_, approval)| approval));
        for file in unknown {
            let label = display::safe_line(&file);
            all.push(damaged(label, format!("{file}: not a file of an approval")));
        }
        Ok(())
    }

    /// Returns a gate and whether it is open. If the ledger shows that the gate was answered, its file is
    /// updated.
    #[expect(clippy::type_complexity, reason = "the parts of one approval")]
    pub(super) fn gate(
        &self,
        files: &GateFiles,
        digest: &Digest,
    ) -> Result<Option<(GateFile, ApprovalState, Option<Box<GateQuestion>>)>, EngineError> {
        let gate = files.question(digest).kind(ErrorKind::Damaged)?;
        let Some(gate) = gate else { return Ok(None) };
        if let Some(answer) = files.answer_in(digest, "answer").kind(ErrorKind::Damaged)? {
            return Ok(Some((gate, answer.state(), None)));
        }
        let question = match self.gates.state(self.state, gate.run, digest)? {
            GateState::Open(question) => question,
            GateState::Closed { outcome, by, at } => {
                // The driver was killed between the record and the file.
                let answer = GateAnswerFile::new(*digest, outcome, by, at);
                files.close(&answer).kind(ErrorKind::Broken)?;
                return Ok(Some((gate, answer.state(), None)));
            }
        };
        let state = match files.claim(digest).kind(ErrorKind::Damaged)? {
            Some(claim) => ApprovalState::Claimed { by: claim.by },
            None if self.now() >= gate.deadline => {
                // The driver will record that the gate expired, and close it.
                let (outcome, at) = (ApprovalOutcome::Expired, gate.deadline);
                ApprovalState::Closed { outcome, by: None, at }
            }
            None => ApprovalState::Open,
        };
        Ok(Some((gate, state, Some(question))))
    }

    pub(super) fn answer_gate(
        &self,
        id: &Digest,
        digest: &Digest,
        verdict: Verdict,
        person: &Answerer<'_>,
    ) -> Result<(), EngineError> {
        if id != digest {
            return Err(conflict());
        }
        let files = GateFiles::new(self.state);
        let unknown = || EngineError::message(ErrorKind::NotFound, super::NOT_WAITING);
        let (gate, state, question) = self.gate(&files, digest)?.ok_or_else(unknown)?;
        match state {
            ApprovalState::Open => {}
            ApprovalState::Closed { outcome, by, .. } => return Err(closed(outcome, by.as_ref())),
            ApprovalState::Claimed { by } => {
                // The claim may be left over by a killed process: its answer is carried out now.
                self.gates.wake(self.state, &|| !files.path(digest, "claim").exists())?;
                return Err(closed(ApprovalOutcome::Allowed, by.as_ref()));
            }
            ApprovalState::Damaged(why) => {
                return Err(EngineError::message(ErrorKind::Damaged, why));
            }
        }
        if let Some(question) = &question {
            question.answers.check(person)?;
        }
        let obstacle = question.and_then(|question| question.obstacle);
        let claim = self.new_claim(&files, &gate, verdict, obstacle)?;
        let created = files.files.create(&name(digest, "claim"), &claim);
        let created = created.context("cannot store the answer").kind(ErrorKind::Broken);
        let lost = |error: EngineError| {
            if let Some(edit) = &claim.edit {
                fs::remove_file(files.files.dir().join(&edit.name)).ok(); // it only uses space
            }
            error
        };
        if !created.map_err(lost)? {
            let other = files.answer_in(digest, "claim").ok().flatten();
            let by = other.and_then(|claim| claim.by);
            return Err(lost(closed(ApprovalOutcome::Allowed, by.as_ref())));
        }
        self.carried_out(&files, &claim)
    }

    /// Returns the claim for an answer, and stores its edited output.
    fn new_claim(
        &self,
        files: &GateFiles,
        gate: &GateFile,
        verdict: Verdict,
        obstacle: Option<String>,
    ) -> Result<GateAnswerFile, EngineError> {
        let by = Some(self.state.caller().principal.clone());
        let claim = |outcome| GateAnswerFile::new(gate.digest, outcome, by, self.now());
        match verdict {
            Verdict::Allow => match obstacle {
                Some(why) => {
                    let text = format!("the gate cannot be approved: {why}");
                    Err(EngineError::message(ErrorKind::WrongState, text))
                }
                None => Ok(claim(ApprovalOutcome::Allowed)),
            },
            Verdict::Deny => Ok(claim(ApprovalOutcome::Denied)),
            Verdict::DenyBecause(reason) => {
                if reason.len() > MAX_REASON {
                    return Err(invalid(format!("a reason has at most {MAX_REASON} bytes")));
                }
                Ok(GateAnswerFile { reason: Some(reason), ..claim(ApprovalOutcome::Denied) })
            }
            Verdict::Edit(content) => {
                self.gates.check_edit(self.state, gate.run, &gate.digest, &content)?;
                let id = self.state.new_id()?.0;
                let edit = name(&gate.digest, &format!("edit-{id}"));
                let hash = edit_digest(&content);
                let created = durable::create_new(files.files.dir(), &edit, &content);
                created.context("cannot store the edited output").kind(ErrorKind::Broken)?;
                let edit = Some(EditFile { name: edit, hash });
                Ok(GateAnswerFile { edit, ..claim(ApprovalOutcome::Edited) })
            }
        }
    }

    /// Waits until the driver has carried out an answer.
    fn carried_out(&self, files: &GateFiles, claim: &GateAnswerFile) -> Result<(), EngineError> {
        let digest = &claim.digest;
        // An outcome that was stored after the state was read: the answer came too late.
        if let Some(answer) = files.answer_in(digest, "answer").kind(ErrorKind::Damaged)? {
            files.refuse_claim(digest);
            return Err(closed(answer.outcome, answer.by.as_ref()));
        }
        self.gates.wake(self.state, &|| !files.path(digest, "claim").exists())?;
        match files.answer_in(digest, "answer").kind(ErrorKind::Damaged)? {
            Some(answer) if (&answer.by, answer.outcome) == (&claim.by, claim.outcome) => Ok(()),
            Some(answer) => Err(closed(answer.outcome, answer.by.as_ref())),
            None if files.path(digest, "claim").exists() => {
                let text = "the answer is stored, but no driver has carried it out yet; `belljar approve --list` shows its state";
                Err(EngineError::message(ErrorKind::Busy, text))
            }
            None => {
                let text = "the driver refused the answer; show the gate and answer again";
                Err(EngineError::message(ErrorKind::Conflict, text))
            }
        }
    }
}

/// Returns the error for an answer to a gate that does not wait for one.
fn closed(outcome: ApprovalOutcome, by: Option<&Principal>) -> EngineError {
    let by = by.map_or_else(|| "somebody".to_owned(), ToString::to_string);
    let why = match outcome {
        ApprovalOutcome::Allowed | ApprovalOutcome::Edited | ApprovalOutcome::Denied => {
            format!("already answered by {by}")
        }
        ApprovalOutcome::Expired => "its deadline has passed".to_owned(),
        ApprovalOutcome::Withdrawn
        | ApprovalOutcome::RulesChanged
        | ApprovalOutcome::Gone
        | ApprovalOutcome::Unrecorded => "its task was stopped or cancelled".to_owned(),
    };
    let text = format!("this gate does not wait for an answer: {why}");
    EngineError::message(ErrorKind::WrongState, text)
}

pub(super) fn approval(
    gate: &GateFile,
    state: ApprovalState,
    question: Option<Box<GateQuestion>>,
) -> Approval {
    let label = display::safe_line(format!("{}/{}", gate.plan, gate.task));
    let about = ApprovalQuestion {
        id: ApprovalId::Gate(gate.digest),
        kind: ApprovalKind::Gate,
        name: None,
        event: None,
        digest: gate.digest,
        text: display::safe_line(&gate.question),
        secrets: Vec::new(),
        asked: Some(gate.asked),
        deadline: Some(gate.deadline),
        gate: question,
    };
    Approval { label, state, about: Some(about) }
}
