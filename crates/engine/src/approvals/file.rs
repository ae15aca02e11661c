//! The files of approvals.
//!
//! ```text
//! $BELLJAR_HOME/approvals/ID.json     what is asked; written once, after its event is in the ledger
//!                         ID.claim    an answer that the supervisor has not carried out yet
//!                         ID.answer   how it ended; nothing follows it
//! ```
//! Each name is given to a file at most once: whoever creates `ID.claim` is the one who answers.

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

/// The version of both files.
const VERSION: u32 = 1;
/// Bytes of one file. The text of a question has at most 3000.
const MAX_FILE: u64 = 64 << 10;

/// The id of a question of a box: its run and its number in this run. Also the name of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub run: RunId,
    pub number: u64,
}

/// Why a text is not the id of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of an approval; it is a run and a number as RUN-NUMBER, or skill:NAME")]
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
        // There is one spelling, or two names would lead to one question.
        if id.to_string() == text { Ok(id) } else { Err(ApprovalIdError) }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalKind {
    /// A request or a connection of a box.
    Request,
    /// A version of a skill.
    Skill,
}

impl ApprovalKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Skill => "skill",
        }
    }
}

/// How an approval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Allowed,
    Denied,
    /// Nobody answered before the deadline.
    Expired,
    /// The program that asked gave up.
    Withdrawn,
    /// The rules of the box changed.
    RulesChanged,
    /// The box or its broker ended.
    Gone,
    /// The answer could not be recorded, so it had no effect.
    Unrecorded,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::RulesChanged => "rules-changed",
            Self::Gone => "gone",
            Self::Unrecorded => "unrecorded",
        }
    }
}

/// `ID.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) kind: ApprovalKind,
    #[serde(rename = "box")]
    pub(super) name: BoxName,
    pub(super) run: RunId,
    /// The number of the question in its run.
    pub(super) number: u64,
    /// The index of `approval.asked` in the ledger.
    pub(super) event: u64,
    pub(super) digest: Digest,
    /// Exactly what is asked. Not safe to show as it is.
    pub(super) text: String,
    pub(super) secrets: Vec<String>,
    /// Milliseconds since the Unix epoch.
    pub(super) asked: u64,
    pub(super) deadline: u64,
}

/// `ID.claim` and `ID.answer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub(super) version: u32,
    pub(super) id: String,
    /// What the answer is about, as it was shown to whoever answered.
    pub(super) digest: Digest,
    pub(super) outcome: Outcome,
    /// Who answered. With an outcome other than a yes or a no, the answer had no effect.
    pub(super) by: Option<Principal>,
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
}

/// A question of a box, as its supervisor opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    pub name: BoxName,
    pub id: RequestId,
    pub event: u64,
    pub text: String,
    pub secrets: Vec<String>,
    pub asked: u64,
    pub deadline: u64,
}

/// Exactly what an answer is about: this question of this run, and all that it says.
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

impl Asked {
    pub(super) fn new(request: NewRequest) -> Self {
        let NewRequest { name, id, event, text, secrets, asked, deadline } = request;
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
            asked,
            deadline,
        }
    }

    pub(super) const fn request(&self) -> RequestId {
        RequestId { run: self.run, number: self.number }
    }

    /// Why this cannot be what was written for this id.
    fn fault(&self, id: RequestId) -> Option<&'static str> {
        if self.version != VERSION {
            Some("it has another version")
        } else if self.id != id.to_string() || self.request() != id {
            Some("it is about another question")
        } else if self.kind != ApprovalKind::Request {
            Some("it has the wrong kind")
        } else if self.digest != request_digest(id, &self.text) {
            Some("its digest is not that of its text")
        } else {
            None
        }
    }
}

impl Answer {
    pub(super) fn of(
        id: RequestId,
        digest: Digest,
        outcome: Outcome,
        by: Option<Principal>,
        at: u64,
    ) -> Self {
        Self { version: VERSION, id: id.to_string(), digest, outcome, by, at }
    }
}

/// A file that says nothing that can be believed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct Damage {
    path: PathBuf,
    why: String,
}

/// Which files there are for one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) asked: bool,
    pub(super) claim: bool,
    pub(super) answer: bool,
}

/// The directory of approvals.
#[derive(Clone, Debug)]
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn under(home: &Path) -> Self {
        Self { dir: home.join("approvals") }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// All ids with the files there are, and the names that belong to no id.
    pub(super) fn names(&self) -> io::Result<(BTreeMap<RequestId, Present>, Vec<String>)> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            entries => entries?,
        };
        let (mut known, mut unknown) = (BTreeMap::<RequestId, Present>::new(), Vec::new());
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // A file that is being written. What a killed process left is removed with the old ones.
            if name.starts_with('.') {
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

    pub(super) fn asked(&self, id: RequestId) -> Result<Option<Asked>, Damage> {
        let name = format!("{id}.json");
        let asked: Option<Asked> = self.read(&name)?;
        match asked.as_ref().and_then(|asked| asked.fault(id)) {
            Some(why) => Err(self.damage(&name, why)),
            None => Ok(asked),
        }
    }

    pub(super) fn claim(&self, id: RequestId) -> Result<Option<Answer>, Damage> {
        self.answer_in(id, &format!("{id}.claim"))
    }

    pub(super) fn answer(&self, id: RequestId) -> Result<Option<Answer>, Damage> {
        self.answer_in(id, &format!("{id}.answer"))
    }

    fn answer_in(&self, id: RequestId, name: &str) -> Result<Option<Answer>, Damage> {
        let answer: Option<Answer> = self.read(name)?;
        match answer {
            Some(answer) if answer.version != VERSION => {
                Err(self.damage(name, "it has another version"))
            }
            Some(answer) if answer.id != id.to_string() => {
                Err(self.damage(name, "it is about another question"))
            }
            answer => Ok(answer),
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Damage> {
        let read = durable::read(&self.dir.join(name), MAX_FILE, Links::Refuse);
        let text = read.map_err(|error| self.damage(name, &error.to_string()))?;
        let Some(text) = text else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| self.damage(name, &error.to_string()))
    }

    pub(super) fn damage_of(&self, id: RequestId, why: &str) -> Damage {
        self.damage(&format!("{id}.json"), why)
    }

    fn damage(&self, name: &str, why: &str) -> Damage {
        Damage { path: self.dir.join(name), why: why.to_owned() }
    }

    /// Writes what is asked.
    pub(super) fn put_asked(&self, asked: &Asked) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        match self.create(&format!("{}.json", asked.id), asked)? {
            true => Ok(()),
            false => Err(io::Error::other("there is a question with this id already")),
        }
    }

    /// Writes an answer that is not carried out yet. False if there is one already.
    pub(super) fn put_claim(&self, claim: &Answer) -> io::Result<bool> {
        self.create(&format!("{}.claim", claim.id), claim)
    }

    /// Writes how it ended, if it did not end before, and removes a claim that came to nothing.
    pub(super) fn put_answer(&self, answer: &Answer) -> io::Result<bool> {
        let written = self.create(&format!("{}.answer", answer.id), answer)?;
        fs::remove_file(self.dir.join(format!("{}.claim", answer.id))).ok(); // there is hardly one
        Ok(written)
    }

    /// The claim is carried out, so that it is the answer.
    pub(super) fn settle(&self, id: RequestId) -> io::Result<()> {
        durable::rename(&self.dir, &format!("{id}.claim"), &format!("{id}.answer"))
    }

    pub(super) fn remove_claim(&self, id: RequestId) {
        fs::remove_file(self.dir.join(format!("{id}.claim"))).ok(); // what is left is shown
    }

    /// Removes all files of an id. Without its question an answer means nothing.
    pub(super) fn remove(&self, id: RequestId) -> io::Result<()> {
        for kind in ["json", "claim", "answer"] {
            match fs::remove_file(self.dir.join(format!("{id}.{kind}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes files that a killed process did not finish.
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

    fn create<T: Serialize>(&self, name: &str, record: &T) -> io::Result<bool> {
        durable::create(&self.dir, name, &serde_json::to_vec_pretty(record)?)
    }
}
