//! The files that store the questions of boxes and their answers.
//!
//! ```text
//! $BELLJAR_HOME/approvals/ID.json     the question, written once, after its event is in the ledger
//!                         ID.claim    an answer that the supervisor has not carried out yet
//!                         ID.answer   the final outcome
//! ```
//! Each file is created at most once, so the first answer that creates `ID.claim` is the only one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use belljar_ledger::Digest;
use belljar_model::RunId;
use belljar_model::boxes::BoxName;
use belljar_model::caller::Principal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::durable::{self, Links};

/// The format version of the question file and the answer file.
pub(super) const VERSION: u32 = 1;
/// The maximum size of one file in bytes. The text of a question has at most 3000 bytes.
const MAX_FILE: u64 = 64 << 10;

/// The beginning of the names of the files of gates; see `gates`.
pub(super) const GATE_PREFIX: &str = "gate-";

/// The id of a question of a box: its run and its number within the run. Also the stem of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub run: RunId,
    pub number: u64,
}

/// The error for a text that is not the id of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid approval id; an id has the form RUN-NUMBER, skill:NAME or gate:DIGEST")]
pub struct ApprovalIdError;

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.number)
    }
}

impl FromStr for RequestId {
    type Err = ApprovalIdError;

    fn from_str(text: &str) -> Result<Self, ApprovalIdError> {
        let (run, number) = text.split_once('-').ok_or(ApprovalIdError)?;
        let run = run.parse().map_err(|_| ApprovalIdError)?;
        let id = Self { run, number: number.parse().map_err(|_| ApprovalIdError)? };
        // Only one spelling of an id is valid, so that two names never refer to one question.
        if id.to_string() == text { Ok(id) } else { Err(ApprovalIdError) }
    }
}

/// The kind of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalKind {
    /// A network request or connection of a box.
    Request,
    /// A version of a skill that wants more permissions.
    Skill,
    /// A gate of a run.
    Gate,
}

impl ApprovalKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Skill => "skill",
            Self::Gate => "gate",
        }
    }
}

/// The final outcome of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalOutcome {
    Allowed,
    /// A person allowed a gate with another output.
    Edited,
    Denied,
    /// The deadline passed without an answer.
    Expired,
    /// The program in the box closed the connection before an answer.
    Withdrawn,
    /// The network rules of the box changed before an answer.
    RulesChanged,
    /// The box or its broker exited before an answer.
    Gone,
    /// The answer could not be recorded, so it had no effect.
    Unrecorded,
}

impl ApprovalOutcome {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Edited => "edited",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::RulesChanged => "rules-changed",
            Self::Gone => "gone",
            Self::Unrecorded => "unrecorded",
        }
    }
}

/// The content of `ID.json`: a question of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionFile {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) kind: ApprovalKind,
    #[serde(rename = "box")]
    pub(super) name: BoxName,
    pub(super) run: RunId,
    /// The number of the question within its run.
    pub(super) number: u64,
    /// The index of the question's event `approval.asked` in the ledger.
    pub(super) event: u64,
    pub(super) digest: Digest,
    /// The unchanged text of the question. Not safe to print to a terminal.
    pub(super) text: String,
    pub(super) secrets: Vec<String>,
    /// The id of the `ask` rule. Earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<String>,
    /// The time of the question in milliseconds since the Unix epoch.
    pub(super) asked: u64,
    pub(super) deadline: u64,
}

/// The content of `ID.claim` and `ID.answer`: the answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerFile {
    pub(super) version: u32,
    pub(super) id: String,
    /// The digest of the question that was shown to the person who answered.
    pub(super) digest: Digest,
    pub(super) outcome: ApprovalOutcome,
    /// The principal that answered. The answer had an effect only if the outcome is allowed or denied.
    pub(super) by: Option<Principal>,
    /// The time of the answer in milliseconds since the Unix epoch.
    pub(super) at: u64,
}

/// A new question of a box, as the supervisor of the box opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    pub name: BoxName,
    pub id: RequestId,
    pub event: u64,
    pub text: String,
    pub secrets: Vec<String>,
    /// The id of the `ask` rule.
    pub rule: String,
    pub asked: u64,
    pub deadline: u64,
}

/// Returns the digest of a question, which covers its run, its number and its text.
pub fn request_digest(id: RequestId, text: &str) -> Digest {
    let (number, run) = (id.number.to_string(), id.run.to_string());
    Digest::of(&[
        b"belljar question 1\0",
        run.as_bytes(),
        b"\0",
        number.as_bytes(),
        b"\0",
        text.as_bytes(),
    ])
}

impl QuestionFile {
    pub(super) fn new(request: NewRequest) -> Self {
        let NewRequest { name, id, event, text, secrets, rule, asked, deadline } = request;
        Self {
            version: VERSION,
            id: id.to_string(),
            kind: ApprovalKind::Request,
            name,
            run: id.run,
            number: id.number,
            event,
            digest: request_digest(id, &text),
            text,
            secrets,
            rule: Some(rule),
            asked,
            deadline,
        }
    }

    pub(super) const fn request(&self) -> RequestId {
        RequestId { run: self.run, number: self.number }
    }

    /// Returns the reason why this content is invalid for the file of this id, or `None` if it is valid.
    fn fault(&self, id: RequestId) -> Option<&'static str> {
        if self.version != VERSION {
            Some("the file has an unsupported format version")
        } else if self.id != id.to_string() || self.request() != id {
            Some("the file contains the id of another question")
        } else if self.kind != ApprovalKind::Request {
            Some("the file is not a question of a box")
        } else if self.digest != request_digest(id, &self.text) {
            Some("the digest in the file does not match its text")
        } else {
            None
        }
    }
}

impl AnswerFile {
    pub(super) fn of(
        id: RequestId,
        digest: Digest,
        outcome: ApprovalOutcome,
        by: Option<Principal>,
        at: u64,
    ) -> Self {
        Self { version: VERSION, id: id.to_string(), digest, outcome, by, at }
    }
}

/// The error for a file of an approval that is damaged or was changed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct DamagedFile {
    path: PathBuf,
    why: String,
}

/// The files that exist for one question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PresentFiles {
    pub(super) asked: bool,
    pub(super) claim: bool,
    pub(super) answer: bool,
}

/// The directory that contains the files of all approvals.
#[derive(Clone, Debug)]
pub(super) struct ApprovalFiles {
    dir: PathBuf,
}

impl ApprovalFiles {
    pub(super) fn under(home: &Path) -> Self {
        Self { dir: home.join("approvals") }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns all question ids with their existing files, and the names of all unknown files.
    pub(super) fn names(&self) -> io::Result<(BTreeMap<RequestId, PresentFiles>, Vec<String>)> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            entries => entries?,
        };
        let (mut known, mut unknown) = (BTreeMap::<RequestId, PresentFiles>::new(), Vec::new());
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // A file that is being written, or that `remove_unfinished` removes later; a file of a gate.
            if name.starts_with('.') || name.starts_with(GATE_PREFIX) {
                continue;
            }
            let parts = name.split_once('.');
            let id = parts.and_then(|(id, kind)| Some((id.parse::<RequestId>().ok()?, kind)));
            match id {
                Some((id, "json")) => known.entry(id).or_default().asked = true,
                Some((id, "claim")) => known.entry(id).or_default().claim = true,
                Some((id, "answer")) => known.entry(id).or_default().answer = true,
                _ => unknown.push(name),
            }
        }
        unknown.sort_unstable();
        Ok((known, unknown))
    }

    pub(super) fn asked(&self, id: RequestId) -> Result<Option<QuestionFile>, DamagedFile> {
        let name = format!("{id}.json");
        let asked: Option<QuestionFile> = self.read(&name)?;
        match asked.as_ref().and_then(|asked| asked.fault(id)) {
            Some(why) => Err(self.damage(&name, why)),
            None => Ok(asked),
        }
    }

    pub(super) fn claim(&self, id: RequestId) -> Result<Option<AnswerFile>, DamagedFile> {
        self.answer_in(id, &format!("{id}.claim"))
    }

    pub(super) fn answer(&self, id: RequestId) -> Result<Option<AnswerFile>, DamagedFile> {
        self.answer_in(id, &format!("{id}.answer"))
    }

    fn answer_in(&self, id: RequestId, name: &str) -> Result<Option<AnswerFile>, DamagedFile> {
        let answer: Option<AnswerFile> = self.read(name)?;
        match answer {
            Some(answer) if answer.version != VERSION => {
                Err(self.damage(name, "the file has an unsupported format version"))
            }
            Some(answer) if answer.id != id.to_string() => {
                Err(self.damage(name, "the file contains the id of another question"))
            }
            answer => Ok(answer),
        }
    }

    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, DamagedFile> {
        let read = durable::read(&self.dir.join(name), MAX_FILE, Links::Refuse);
        let text = read.map_err(|error| self.damage(name, &error.to_string()))?;
        let Some(text) = text else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| self.damage(name, &error.to_string()))
    }

    pub(super) fn damage_of(&self, id: RequestId, why: &str) -> DamagedFile {
        self.damage(&format!("{id}.json"), why)
    }

    pub(super) fn damage(&self, name: &str, why: &str) -> DamagedFile {
        DamagedFile { path: self.dir.join(name), why: why.to_owned() }
    }

    /// Writes the file of a new question.
    pub(super) fn put_asked(&self, asked: &QuestionFile) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        match self.create(&format!("{}.json", asked.id), asked)? {
            true => Ok(()),
            false => Err(io::Error::other("a question with this id already exists")),
        }
    }

    /// Writes an answer that is not carried out yet. Returns false if the question has a claim already.
    pub(super) fn put_claim(&self, claim: &AnswerFile) -> io::Result<bool> {
        self.create(&format!("{}.claim", claim.id), claim)
    }

    /// Writes the outcome of a question and removes its claim. Returns false if there is an outcome
    /// already.
    pub(super) fn put_answer(&self, answer: &AnswerFile) -> io::Result<bool> {
        let written = self.create(&format!("{}.answer", answer.id), answer)?;
        fs::remove_file(self.dir.join(format!("{}.claim", answer.id))).ok(); // usually there is no claim
        Ok(written)
    }

    /// Renames the claim of a question to its answer, after the claim was carried out.
    pub(super) fn settle(&self, id: RequestId) -> io::Result<()> {
        durable::rename(&self.dir, &format!("{id}.claim"), &format!("{id}.answer"))
    }

    pub(super) fn remove_claim(&self, id: RequestId) {
        // A claim that cannot be removed stays in the list of approvals.
        fs::remove_file(self.dir.join(format!("{id}.claim"))).ok();
    }

    /// Removes all files of a question.
    pub(super) fn remove(&self, id: RequestId) -> io::Result<()> {
        for kind in ["json", "claim", "answer"] {
            match fs::remove_file(self.dir.join(format!("{id}.{kind}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes unfinished files of killed processes that are older than `age`.
    pub(super) fn remove_unfinished(&self, now: SystemTime, age: Duration) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries.filter_map(Result::ok) {
            let written = entry.metadata().and_then(|meta| meta.modified());
            let is_old = written
                .is_ok_and(|written| now.duration_since(written).is_ok_and(|since| since > age));
            if is_old && entry.file_name().as_encoded_bytes().starts_with(b".") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    pub(super) fn create<T: Serialize>(&self, name: &str, record: &T) -> io::Result<bool> {
        durable::create_new(&self.dir, name, &serde_json::to_vec_pretty(record)?)
    }
}
