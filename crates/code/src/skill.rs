//! Skills: programs that were worth keeping, by name and by version.
//!
//! A version is named by the hash of its content. What a skill says that it wants (hosts, secrets,
//! paths) is part of it: a version that wants no more than an operator has approved for its name is in
//! force at once, and one that wants more waits while the old one stays (F10). Approval is remembered
//! by name and by what was wanted, so deleting a skill and saving it again gains nothing. A skill has
//! no rights of its own: it runs with those of whoever runs it.

mod files;
mod index;
mod version;
mod wants;

use std::error::Error;
use std::fmt;
use std::path::Path;

use belljar_model::code::SkillName;

pub use files::FileError;
use files::{Files, Turn};
use index::{Event, Index};
pub use version::{Skill, Version, VersionError};
pub use wants::{Granted, Wants, WantsError};

use belljar_wire::Dialect;

/// Bytes of a skill's program.
pub const MAX_CODE: usize = 1 << 20;
/// Characters that say what a skill does.
pub const MAX_DESCRIPTION: usize = 2000;
/// Names, those of deleted ones included.
pub const MAX_SKILLS: usize = 1000;
/// Versions of one skill; the oldest go first.
pub const MAX_VERSIONS: usize = 50;
/// Bytes of all that is kept.
const MAX_TOTAL: u64 = 256 << 20;
/// Replacements at once.
const MAX_EDITS: usize = 100;

/// The skills of a state directory.
pub struct Skills {
    files: Files,
    witness: Option<Box<Witness>>,
}

/// Who is told of every change before it is made, and can stop it.
pub type Witness = dyn Fn(&Deed<'_>) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// A change that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    Save {
        skill: &'a Skill,
        state: &'a State,
        by: &'a str,
    },
    Approve {
        skill: &'a Skill,
    },
    /// A version that waits is not approved.
    Refuse {
        skill: &'a Skill,
    },
    /// With `is_forgotten`, what was approved for it goes too.
    Remove {
        name: &'a SkillName,
        is_forgotten: bool,
    },
}

impl fmt::Debug for Skills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skills").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What is to be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub description: String,
    pub code: String,
    pub language: Dialect,
    /// What it wants beside what the first comment of its code says.
    pub wants: Wants,
}

/// One replacement: what it looks for must be there exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub search: String,
    pub replace: String,
}

/// Who saves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// A person at the terminal: what is wanted is approved by saving it.
    Operator,
    /// Whoever speaks through a server, by a name for the history.
    Caller(String),
}

/// What came of saving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub version: Version,
    pub state: State,
}

/// Whether a version is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Active,
    /// Until it is approved; `more` says in words what it wants beyond what was.
    Waits {
        more: Vec<String>,
    },
}

/// A skill in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillInfo {
    pub name: SkillName,
    pub standing: Standing,
}

/// How it stands with a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In force, and perhaps a version waits that wants more.
    Active { skill: Skill, waiting: Option<Waiting> },
    /// Only a version that waits.
    Waiting(Waiting),
    /// Its files say nothing that can be believed.
    Damaged(String),
}

/// A version that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub skill: Skill,
    pub more: Vec<String>,
}

/// One step in a skill's history, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    pub version: Version,
    pub by: String,
    pub step: Step,
    /// Whether the version is in force.
    pub is_active: bool,
    /// Whether its content is still kept.
    pub is_kept: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    Saved,
    Approved,
    Removed,
}

impl Step {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Saved => "saved",
            Self::Approved => "approved",
            Self::Removed => "removed",
        }
    }
}

/// Why something was not done with a skill. Safe to print and to tell a caller.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    #[error("there is no skill `{name}`")]
    NotFound { name: SkillName },
    #[error("skill `{name}` has no version {version}")]
    NoVersion { name: SkillName, version: String },
    #[error(
        "skill `{name}` waits for approval: it wants {}; the operator decides with `belljar skill approve {name}`",
        more.join(", ")
    )]
    Waits { name: SkillName, more: Vec<String> },
    #[error("version {version} of skill `{name}` does not wait for approval")]
    NotWaiting { name: SkillName, version: Version },
    #[error("a skill without code")]
    NoCode,
    #[error("code of {length} bytes, where {MAX_CODE} are the most")]
    TooLong { length: usize },
    #[error("a description of more than {MAX_DESCRIPTION} characters")]
    Description,
    #[error(transparent)]
    Wants(WantsError),
    #[error("there are {MAX_SKILLS} skills already; remove one first")]
    TooMany,
    #[error("the skills take up {} MiB already; remove some first", MAX_TOTAL >> 20)]
    Full,
    #[error("edit {number}: `search` is empty")]
    EmptySearch { number: usize },
    #[error("edit {number}: `search` is not in the code; nothing was changed")]
    NoMatch { number: usize },
    #[error("edit {number}: `search` is in the code {count} times, not once; nothing was changed")]
    ManyMatches { number: usize, count: usize },
    #[error("more than {MAX_EDITS} edits at once")]
    TooManyEdits,
    #[error("no edits")]
    NoEdits,
    #[error("the files of skill `{name}` are damaged: {what}")]
    Damaged { name: SkillName, what: String },
    #[error("nothing was changed, since it could not be recorded")]
    Witness { source: Box<dyn Error + Send + Sync> },
    #[error(transparent)]
    Files(#[from] FileError),
}

impl Skills {
    /// Opens the skills of a state directory, which are made if there are none yet.
    pub fn open(home: &Path) -> Result<Self, SkillError> {
        Ok(Self { files: Files::open(home)?, witness: None })
    }

    /// The same, with somebody who is told of every change before it is made.
    #[must_use]
    pub fn witnessed(self, witness: Box<Witness>) -> Self {
        Self { witness: Some(witness), ..self }
    }

    fn tell(&self, deed: &Deed<'_>) -> Result<(), SkillError> {
        match &self.witness {
            Some(witness) => witness(deed).map_err(|source| SkillError::Witness { source }),
            None => Ok(()),
        }
    }

    /// All skills by name, without the deleted ones. One that is damaged hides no other.
    pub fn list(&self) -> Result<Vec<SkillInfo>, SkillError> {
        let turn = self.files.read_turn()?;
        let mut infos = Vec::new();
        for name in turn.names()? {
            let standing = match self.standing(&turn, &name) {
                Ok(standing) => standing,
                Err(SkillError::NotFound { .. }) => continue,
                Err(error) => Standing::Damaged(error.to_string()),
            };
            infos.push(SkillInfo { name, standing });
        }
        Ok(infos)
    }

    fn standing(&self, turn: &Turn<'_>, name: &SkillName) -> Result<Standing, SkillError> {
        let index = live(turn, name)?;
        let waiting = match &index.waiting {
            Some(version) => {
                let skill = turn.version(name, version)?;
                let more = index.more(&skill.wants);
                Some(Waiting { skill, more })
            }
            None => None,
        };
        match (&index.active, waiting) {
            (Some(version), waiting) => {
                Ok(Standing::Active { skill: turn.version(name, version)?, waiting })
            }
            (None, Some(waiting)) => Ok(Standing::Waiting(waiting)),
            (None, None) => Err(SkillError::NotFound { name: name.clone() }),
        }
    }

    /// The version in force.
    pub fn get(&self, name: &SkillName) -> Result<Skill, SkillError> {
        let turn = self.files.read_turn()?;
        match self.standing(&turn, name)? {
            Standing::Active { skill, .. } => Ok(skill),
            Standing::Waiting(Waiting { more, .. }) => {
                Err(SkillError::Waits { name: name.clone(), more })
            }
            Standing::Damaged(what) => Err(SkillError::Damaged { name: name.clone(), what }),
        }
    }

    /// How one skill stands.
    pub fn info(&self, name: &SkillName) -> Result<SkillInfo, SkillError> {
        let turn = self.files.read_turn()?;
        Ok(SkillInfo { name: name.clone(), standing: self.standing(&turn, name)? })
    }

    /// Any version that is kept, also of a deleted skill.
    pub fn version(&self, name: &SkillName, version: &Version) -> Result<Skill, SkillError> {
        let turn = self.files.read_turn()?;
        turn.version(name, version)
    }

    /// The only version that is kept and begins so.
    pub fn find(&self, name: &SkillName, beginning: &str) -> Result<Version, SkillError> {
        let turn = self.files.read_turn()?;
        let index = turn.index(name)?.ok_or(SkillError::NotFound { name: name.clone() })?;
        let mut found = index.kept().filter(|version| version.as_str().starts_with(beginning));
        match (found.next(), found.next()) {
            (Some(version), None) if beginning.len() >= Version::SHORTEST => Ok(version.clone()),
            _ => Err(SkillError::NoVersion { name: name.clone(), version: beginning.to_owned() }),
        }
    }

    /// Keeps a version, and puts it in force if it wants nothing that was not approved.
    pub fn save(&self, name: &SkillName, draft: Draft, by: &Author) -> Result<Saved, SkillError> {
        let skill = Skill::new(name, draft)?;
        let turn = self.files.turn()?;
        self.put(&turn, &skill, by)
    }

    /// Replaces parts of the newest version: all of them or none.
    pub fn edit(&self, name: &SkillName, edits: &[Edit], by: &Author) -> Result<Saved, SkillError> {
        let turn = self.files.turn()?;
        let index = live(&turn, name)?;
        let newest = index.waiting.as_ref().or(index.active.as_ref());
        let newest = newest.ok_or(SkillError::NotFound { name: name.clone() })?;
        let old = turn.version(name, newest)?;
        let code = edited(&old.code, edits)?;
        // What only the old comment wanted, the new comment says anew.
        let said = Wants::of_comment(&old.code).unwrap_or_default();
        let draft = Draft {
            description: old.description,
            code,
            language: old.language,
            wants: old.wants.without(&said),
        };
        self.put(&turn, &Skill::new(name, draft)?, by)
    }

    fn put(&self, turn: &Turn<'_>, skill: &Skill, by: &Author) -> Result<Saved, SkillError> {
        let name = &skill.name;
        let mut index = match turn.index(name)? {
            Some(index) => index,
            None => {
                turn.make_room(name, MAX_SKILLS)?;
                Index::default()
            }
        };
        if !turn.has_room(MAX_TOTAL)? {
            return Err(SkillError::Full);
        }
        let more = match by {
            Author::Operator => Vec::new(),
            Author::Caller(_) => index.more(&skill.wants),
        };
        let version = turn.put_version(skill)?;
        if more.is_empty() {
            if *by == Author::Operator {
                index.approve(skill.wants.clone());
            }
            index.active = Some(version.clone());
            index.waiting = None;
        } else {
            if index.is_removed {
                // What was deleted does not come back to stand in for what waits.
                index.active = None;
            }
            // What is in force already needs nobody's approval again.
            index.waiting = (index.active.as_ref() != Some(&version)).then(|| version.clone());
        }
        index.is_removed = false;
        let state = match index.active.as_ref() == Some(&version) {
            true => State::Active,
            false => State::Waits { more },
        };
        let by = by_text(by);
        self.tell(&Deed::Save { skill, state: &state, by: &by })?;
        let dropped = index.note(&version, by, Step::Saved);
        turn.put_index(name, &index)?;
        turn.drop_versions(name, &dropped);
        Ok(Saved { version, state })
    }

    /// Deletes a skill. Its versions and what was approved for it are remembered.
    pub fn remove(&self, name: &SkillName) -> Result<(), SkillError> {
        let turn = self.files.turn()?;
        let mut index = live(&turn, name)?;
        self.tell(&Deed::Remove { name, is_forgotten: false })?;
        let last = index.active.take().or(index.waiting.take());
        index.waiting = None;
        index.is_removed = true;
        if let Some(version) = last {
            index.note(&version, "-".to_owned(), Step::Removed);
        }
        Ok(turn.put_index(name, &index)?)
    }

    /// Deletes a skill with all its versions and with what was approved for it.
    pub fn forget(&self, name: &SkillName) -> Result<(), SkillError> {
        let turn = self.files.turn()?;
        if !turn.names()?.contains(name) {
            return Err(SkillError::NotFound { name: name.clone() });
        }
        self.tell(&Deed::Remove { name, is_forgotten: true })?;
        match turn.forget(name)? {
            true => Ok(()),
            false => Err(SkillError::NotFound { name: name.clone() }),
        }
    }

    /// What happened to a skill, the oldest first; also to a deleted one.
    pub fn history(&self, name: &SkillName) -> Result<Vec<Past>, SkillError> {
        let turn = self.files.read_turn()?;
        let index = turn.index(name)?.ok_or(SkillError::NotFound { name: name.clone() })?;
        let past = |event: &Event| Past {
            version: event.version.clone(),
            by: event.by.clone(),
            step: event.step,
            is_active: index.active.as_ref() == Some(&event.version),
            is_kept: turn.has_version(name, &event.version),
        };
        Ok(index.history.iter().map(past).collect())
    }

    /// Puts a version in force, and remembers that what it wants was approved. Only for an operator.
    pub fn approve(&self, name: &SkillName, version: &Version) -> Result<Skill, SkillError> {
        let turn = self.files.turn()?;
        let index = turn.index(name)?.ok_or(SkillError::NotFound { name: name.clone() })?;
        self.put_in_force(&turn, index, name, version)
    }

    /// Approves or refuses exactly this version, if it is the one that waits. Only for an operator.
    pub fn answer(
        &self,
        name: &SkillName,
        version: &Version,
        approved: bool,
    ) -> Result<(), SkillError> {
        let turn = self.files.turn()?;
        let mut index = live(&turn, name)?;
        if index.waiting.as_ref() != Some(version) {
            let (name, version) = (name.clone(), version.clone());
            return Err(SkillError::NotWaiting { name, version });
        }
        if approved {
            return self.put_in_force(&turn, index, name, version).map(drop);
        }
        let skill = turn.version(name, version)?;
        self.tell(&Deed::Refuse { skill: &skill })?;
        index.waiting = None;
        index.is_removed = index.active.is_none();
        Ok(turn.put_index(name, &index)?)
    }

    fn put_in_force(
        &self,
        turn: &Turn<'_>,
        mut index: Index,
        name: &SkillName,
        version: &Version,
    ) -> Result<Skill, SkillError> {
        let skill = turn.version(name, version)?;
        self.tell(&Deed::Approve { skill: &skill })?;
        index.approve(skill.wants.clone());
        index.active = Some(version.clone());
        index.waiting = None;
        index.is_removed = false;
        let dropped = index.note(version, by_text(&Author::Operator), Step::Approved);
        turn.put_index(name, &index)?;
        turn.drop_versions(name, &dropped);
        Ok(skill)
    }
}

/// The index of a skill that was not deleted.
fn live(turn: &Turn<'_>, name: &SkillName) -> Result<Index, SkillError> {
    let index = turn.index(name)?.filter(|index| !index.is_removed);
    index.ok_or_else(|| SkillError::NotFound { name: name.clone() })
}

fn by_text(by: &Author) -> String {
    const MAX: usize = 64;
    match by {
        Author::Operator => "operator".to_owned(),
        Author::Caller(who) => {
            // It is shown beside the operator's name and must not look like it.
            let who: String = who.chars().filter(|c| c.is_ascii_graphic()).take(MAX).collect();
            format!("caller {who}").trim_end().to_owned()
        }
    }
}

/// The text with every replacement made, one after the other.
fn edited(code: &str, edits: &[Edit]) -> Result<String, SkillError> {
    if edits.is_empty() {
        return Err(SkillError::NoEdits);
    }
    if edits.len() > MAX_EDITS {
        return Err(SkillError::TooManyEdits);
    }
    let mut code = code.to_owned();
    for (number, Edit { search, replace }) in (1..).zip(edits) {
        if search.is_empty() {
            return Err(SkillError::EmptySearch { number });
        }
        match occurrences(&code, search) {
            0 => return Err(SkillError::NoMatch { number }),
            1 => code = code.replacen(search.as_str(), replace, 1),
            count => return Err(SkillError::ManyMatches { number, count }),
        }
        if code.len() > MAX_CODE {
            return Err(SkillError::TooLong { length: code.len() });
        }
    }
    Ok(code)
}

/// How often a text is there, overlaps included: what can be found at two places is ambiguous.
fn occurrences(text: &str, search: &str) -> usize {
    const ENOUGH: usize = 100; // nobody counts further
    let step = search.chars().next().map_or(1, char::len_utf8);
    let (mut count, mut from) = (0, 0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(search)) {
        count += 1;
        from += at + step;
        if count == ENOUGH {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests;
