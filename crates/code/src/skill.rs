//! Skills: programs that models saved for reuse, by name and version.
//!
//! A version is named by the hash of its content. The hosts, secrets and paths that a skill requests
//! are part of this content. A version that a client saves becomes active at once only if it requests
//! nothing and nothing was approved for its name. Otherwise it waits for approval and the old version
//! stays active (F10). Approvals are stored per name and request, so removing a skill and saving it again
//! gains nothing. A skill has no permissions of its own: it runs with the permissions of its caller.
//!
//! The client that saved a skill first owns it. Only its owner and the operator can change or remove it.

mod files;
mod index;
mod version;
mod wants;

use std::error::Error;
use std::fmt;
use std::path::Path;

use belljar_model::code::SkillName;

pub use files::FileError;
use files::{Files, StoreLock};
use index::{Event, Index};
pub use version::{Skill, Version, VersionError};
pub use wants::{Granted, Wants, WantsError};

use belljar_wire::Dialect;

/// Maximum size of a skill's program, in bytes.
pub const MAX_CODE: usize = 1 << 20;
/// Maximum length of a skill's description, in characters.
pub const MAX_DESCRIPTION: usize = 2000;
/// Maximum number of skills, including removed ones.
pub const MAX_SKILLS: usize = 1000;
/// Maximum number of stored versions of a skill. The oldest are deleted first.
pub const MAX_VERSIONS: usize = 50;
/// Maximum size of all skills together, in bytes.
const MAX_TOTAL: u64 = 256 << 20;
/// The maximum number of replacements in one edit of a skill.
const MAX_EDITS: usize = 100;

/// The store of skills in a state directory.
pub struct Skills {
    files: Files,
    hook: Option<Box<ChangeHook>>,
}

/// A callback that runs before every change of a skill. An error prevents the change.
pub type ChangeHook =
    dyn Fn(&SkillChange<'_>) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// A change of the skills that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum SkillChange<'a> {
    Save {
        skill: &'a Skill,
        state: &'a VersionState,
        by: &'a str,
    },
    Approve {
        skill: &'a Skill,
    },
    /// The operator refuses a waiting version of a skill.
    Refuse {
        skill: &'a Skill,
    },
    /// A skill is removed. With `is_forgotten`, its versions and approvals are deleted too.
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

/// The content of a new skill version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub description: String,
    pub code: String,
    pub language: Dialect,
    /// The requested hosts, secrets and paths in addition to those in the first comment of the
    /// code.
    pub wants: Wants,
}

/// One replacement in the code of a skill. The search text must occur exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub search: String,
    pub replace: String,
}

/// The author of a skill version: the operator or a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// The author is the operator, a person at the terminal. Saving also approves the requests of
    /// the version.
    Operator,
    /// The author is a client of an MCP server. `client` owns the skills that it saves; `session` is
    /// noted in the history.
    Caller { client: String, session: String },
}

impl Author {
    /// Returns the owner of the skills that this author saves, or `None` for the operator.
    fn owner(&self) -> Option<String> {
        match self {
            Self::Operator => None,
            Self::Caller { client, .. } => Some(visible(client)),
        }
    }
}

/// The result of saving a skill version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub version: Version,
    pub state: VersionState,
}

/// Whether a saved skill version is active or waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionState {
    Active,
    /// The saved version waits for approval. `more` lists the requests that are not approved yet.
    Waits {
        more: Vec<String>,
    },
}

/// The name, author and state of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillInfo {
    pub name: SkillName,
    /// The author of the active version, or of the waiting version if none is active. `None` if it is
    /// not known.
    pub author: Option<String>,
    pub state: SkillState,
}

/// The state of a skill: active, waiting for approval or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillState {
    /// The skill has an active version. Another version can wait for approval.
    Active { skill: Skill, waiting: Option<Waiting> },
    /// The only version of the skill waits for approval.
    Waiting(Waiting),
    /// The files of the skill are damaged. Contains the reason.
    Damaged(String),
}

/// A version of a skill that waits for approval, with the requests that are not approved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub skill: Skill,
    pub more: Vec<String>,
}

/// One event in the history of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    pub version: Version,
    pub by: String,
    pub step: Step,
    /// Whether the skill version is active now.
    pub is_active: bool,
    /// Whether the content of the skill version is still stored.
    pub is_kept: bool,
}

/// The kind of an event in a skill's history.
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

/// The reason why an operation on a skill failed. The messages contain nothing secret.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    #[error("there is no skill `{name}`")]
    NotFound { name: SkillName },
    #[error("skill `{name}` has no version {version}")]
    NoVersion { name: SkillName, version: String },
    #[error(
        "skill `{name}` waits for approval: it requests {}; the operator can approve it with `belljar skill approve {name}`",
        more.join(", ")
    )]
    Waits { name: SkillName, more: Vec<String> },
    #[error(
        "skill `{name}` belongs to {owner}; only its owner and the operator can change it; save the code under another name"
    )]
    NotOwner { name: SkillName, owner: String },
    #[error("version {version} of skill `{name}` does not wait for approval")]
    NotWaiting { name: SkillName, version: Version },
    #[error("cannot save the skill: it has no code")]
    NoCode,
    #[error("the code of the skill has {length} bytes; the limit is {MAX_CODE}")]
    TooLong { length: usize },
    #[error("the description of the skill is longer than {MAX_DESCRIPTION} characters")]
    Description,
    #[error(transparent)]
    Wants(WantsError),
    #[error("there are already {MAX_SKILLS} skills; remove one first")]
    TooMany,
    #[error("the skills already use {} MiB; remove some first", MAX_TOTAL >> 20)]
    Full,
    #[error("cannot apply edit {number}: the text `search` is empty")]
    EmptySearch { number: usize },
    #[error("cannot apply edit {number}: `search` was not found in the code; nothing was changed")]
    NoMatch { number: usize },
    #[error(
        "cannot apply edit {number}: `search` occurs {count} times in the code, not once; nothing was changed"
    )]
    ManyMatches { number: usize, count: usize },
    #[error("the request has more than {MAX_EDITS} edits")]
    TooManyEdits,
    #[error("the list of edits of the skill is empty")]
    NoEdits,
    #[error("the files of skill `{name}` are damaged: {what}")]
    Damaged { name: SkillName, what: String },
    #[error("nothing was changed, because the change could not be recorded")]
    NotRecorded { source: Box<dyn Error + Send + Sync> },
    #[error(transparent)]
    Files(#[from] FileError),
}

impl Skills {
    /// Opens the skills of a state directory and creates their directory if it is missing.
    pub fn open(home: &Path) -> Result<Self, SkillError> {
        Ok(Self { files: Files::open(home)?, hook: None })
    }

    /// Sets a callback that runs before every change of a skill and can prevent the change.
    #[must_use]
    pub fn with_change_hook(self, hook: Box<ChangeHook>) -> Self {
        Self { hook: Some(hook), ..self }
    }

    fn before_change(&self, change: &SkillChange<'_>) -> Result<(), SkillError> {
        match &self.hook {
            Some(hook) => hook(change).map_err(|source| SkillError::NotRecorded { source }),
            None => Ok(()),
        }
    }

    /// Returns all skills except removed ones, sorted by name. Damaged skills are listed as damaged.
    pub fn list(&self) -> Result<Vec<SkillInfo>, SkillError> {
        let lock = self.files.shared_lock()?;
        let mut infos = Vec::new();
        for name in lock.names()? {
            infos.push(match self.info_of(&lock, &name) {
                Ok(info) => info,
                Err(SkillError::NotFound { .. }) => continue,
                Err(error) => {
                    let state = SkillState::Damaged(error.to_string());
                    SkillInfo { name, author: None, state }
                }
            });
        }
        Ok(infos)
    }

    fn info_of(&self, lock: &StoreLock<'_>, name: &SkillName) -> Result<SkillInfo, SkillError> {
        let index = existing_index(lock, name)?;
        let state = self.state(lock, name, &index)?;
        let author = index.active.as_ref().or(index.waiting.as_ref());
        let author = author.and_then(|version| index.author(version)).map(str::to_owned);
        Ok(SkillInfo { name: name.clone(), author, state })
    }

    fn state(
        &self,
        lock: &StoreLock<'_>,
        name: &SkillName,
        index: &Index,
    ) -> Result<SkillState, SkillError> {
        let waiting = match &index.waiting {
            Some(version) => {
                let skill = lock.version(name, version)?;
                let more = index.reasons_to_wait(&skill.wants);
                Some(Waiting { skill, more })
            }
            None => None,
        };
        match (&index.active, waiting) {
            (Some(version), waiting) => {
                Ok(SkillState::Active { skill: lock.version(name, version)?, waiting })
            }
            (None, Some(waiting)) => Ok(SkillState::Waiting(waiting)),
            (None, None) => Err(SkillError::NotFound { name: name.clone() }),
        }
    }

    /// Returns the active version of a skill.
    pub fn get(&self, name: &SkillName) -> Result<Skill, SkillError> {
        let lock = self.files.shared_lock()?;
        match self.info_of(&lock, name)?.state {
            SkillState::Active { skill, .. } => Ok(skill),
            SkillState::Waiting(Waiting { more, .. }) => {
                Err(SkillError::Waits { name: name.clone(), more })
            }
            SkillState::Damaged(what) => Err(SkillError::Damaged { name: name.clone(), what }),
        }
    }

    /// Returns the state of one skill.
    pub fn info(&self, name: &SkillName) -> Result<SkillInfo, SkillError> {
        let lock = self.files.shared_lock()?;
        self.info_of(&lock, name)
    }

    /// Returns any stored version of a skill, also of a removed one.
    pub fn version(&self, name: &SkillName, version: &Version) -> Result<Skill, SkillError> {
        let lock = self.files.shared_lock()?;
        lock.version(name, version)
    }

    /// Returns the stored version of a skill whose hash starts with this prefix, if there is
    /// exactly one.
    pub fn find(&self, name: &SkillName, prefix: &str) -> Result<Version, SkillError> {
        let lock = self.files.shared_lock()?;
        let index = lock.index(name)?.ok_or(SkillError::NotFound { name: name.clone() })?;
        let mut found = index.kept().filter(|version| version.as_str().starts_with(prefix));
        match (found.next(), found.next()) {
            (Some(version), None) if prefix.len() >= Version::SHORTEST => Ok(version.clone()),
            _ => Err(SkillError::NoVersion { name: name.clone(), version: prefix.to_owned() }),
        }
    }

    /// Stores a version of a skill, and activates it unless it needs an approval. A client can only
    /// change skills that it owns.
    pub fn save(&self, name: &SkillName, draft: Draft, by: &Author) -> Result<Saved, SkillError> {
        let skill = Skill::new(name, draft)?;
        let lock = self.files.lock()?;
        self.put(&lock, &skill, by)
    }

    /// Creates a version of a skill by replacing parts of the newest one. Either all replacements
    /// are made or none.
    pub fn edit(&self, name: &SkillName, edits: &[Edit], by: &Author) -> Result<Saved, SkillError> {
        let lock = self.files.lock()?;
        let index = existing_index(&lock, name)?;
        check_owner(&index, name, by)?;
        let newest = index.waiting.as_ref().or(index.active.as_ref());
        let newest = newest.ok_or(SkillError::NotFound { name: name.clone() })?;
        let old = lock.version(name, newest)?;
        let code = apply_edits(&old.code, edits)?;
        // Requests in the old comment do not carry over: the new comment contains its own.
        let from_comment = Wants::of_comment(&old.code).unwrap_or_default();
        let draft = Draft {
            description: old.description,
            code,
            language: old.language,
            wants: old.wants.without(&from_comment),
        };
        self.put(&lock, &Skill::new(name, draft)?, by)
    }

    fn put(&self, lock: &StoreLock<'_>, skill: &Skill, by: &Author) -> Result<Saved, SkillError> {
        let name = &skill.name;
        let mut index = match lock.index(name)? {
            Some(index) => {
                check_owner(&index, name, by)?;
                index
            }
            None => {
                lock.make_room(name, MAX_SKILLS)?;
                Index { owner: by.owner(), ..Index::default() }
            }
        };
        if !lock.has_room(MAX_TOTAL)? {
            return Err(SkillError::Full);
        }
        let more = match by {
            Author::Operator => Vec::new(),
            Author::Caller { .. } => index.reasons_to_wait(&skill.wants),
        };
        let version = lock.put_version(skill)?;
        if more.is_empty() {
            if *by == Author::Operator {
                index.approve(skill.wants.clone());
                // The code is the operator's now, so no client can replace it.
                index.owner = None;
            }
            index.active = Some(version.clone());
            index.waiting = None;
        } else {
            if index.is_removed {
                // Removed code must not become active again because another version waits.
                index.active = None;
            }
            // An active version needs no second approval.
            index.waiting = (index.active.as_ref() != Some(&version)).then(|| version.clone());
        }
        index.is_removed = false;
        let state = match index.active.as_ref() == Some(&version) {
            true => VersionState::Active,
            false => VersionState::Waits { more },
        };
        let by = author_text(by);
        self.before_change(&SkillChange::Save { skill, state: &state, by: &by })?;
        let dropped = index.note(&version, by, Step::Saved);
        lock.put_index(name, &index)?;
        lock.drop_versions(name, &dropped);
        Ok(Saved { version, state })
    }

    /// Removes a skill, but keeps its versions, approvals and owner.
    pub fn remove(&self, name: &SkillName, by: &Author) -> Result<(), SkillError> {
        let lock = self.files.lock()?;
        let mut index = existing_index(&lock, name)?;
        check_owner(&index, name, by)?;
        self.before_change(&SkillChange::Remove { name, is_forgotten: false })?;
        let last = index.active.take().or(index.waiting.take());
        index.waiting = None;
        index.is_removed = true;
        if let Some(version) = last {
            index.note(&version, author_text(by), Step::Removed);
        }
        Ok(lock.put_index(name, &index)?)
    }

    /// Deletes a skill with all its versions and approvals. Only an operator is allowed to call this.
    pub fn forget(&self, name: &SkillName) -> Result<(), SkillError> {
        let lock = self.files.lock()?;
        if !lock.names()?.contains(name) {
            return Err(SkillError::NotFound { name: name.clone() });
        }
        self.before_change(&SkillChange::Remove { name, is_forgotten: true })?;
        match lock.forget(name)? {
            true => Ok(()),
            false => Err(SkillError::NotFound { name: name.clone() }),
        }
    }

    /// Returns the history of a skill, oldest event first, also for a removed skill.
    pub fn history(&self, name: &SkillName) -> Result<Vec<HistoryEntry>, SkillError> {
        let lock = self.files.shared_lock()?;
        let index = lock.index(name)?.ok_or(SkillError::NotFound { name: name.clone() })?;
        let entry = |event: &Event| HistoryEntry {
            version: event.version.clone(),
            by: event.by.clone(),
            step: event.step,
            is_active: index.active.as_ref() == Some(&event.version),
            is_kept: lock.has_version(name, &event.version),
        };
        Ok(index.history.iter().map(entry).collect())
    }

    /// Activates a version of a skill and approves its requests. Only an operator is allowed to
    /// call this.
    pub fn approve(&self, name: &SkillName, version: &Version) -> Result<Skill, SkillError> {
        let lock = self.files.lock()?;
        let index = lock.index(name)?.ok_or(SkillError::NotFound { name: name.clone() })?;
        self.activate(&lock, index, name, version)
    }

    /// Approves or refuses the waiting version of a skill. Only an operator is allowed to call
    /// this.
    pub fn answer(
        &self,
        name: &SkillName,
        version: &Version,
        approved: bool,
    ) -> Result<(), SkillError> {
        let lock = self.files.lock()?;
        let mut index = existing_index(&lock, name)?;
        if index.waiting.as_ref() != Some(version) {
            let (name, version) = (name.clone(), version.clone());
            return Err(SkillError::NotWaiting { name, version });
        }
        if approved {
            return self.activate(&lock, index, name, version).map(drop);
        }
        let skill = lock.version(name, version)?;
        self.before_change(&SkillChange::Refuse { skill: &skill })?;
        index.waiting = None;
        index.is_removed = index.active.is_none();
        Ok(lock.put_index(name, &index)?)
    }

    fn activate(
        &self,
        lock: &StoreLock<'_>,
        mut index: Index,
        name: &SkillName,
        version: &Version,
    ) -> Result<Skill, SkillError> {
        let skill = lock.version(name, version)?;
        self.before_change(&SkillChange::Approve { skill: &skill })?;
        index.approve(skill.wants.clone());
        index.active = Some(version.clone());
        index.waiting = None;
        index.is_removed = false;
        let dropped = index.note(version, author_text(&Author::Operator), Step::Approved);
        lock.put_index(name, &index)?;
        lock.drop_versions(name, &dropped);
        Ok(skill)
    }
}

/// Returns the index of a skill, or an error if the skill is missing or removed.
fn existing_index(lock: &StoreLock<'_>, name: &SkillName) -> Result<Index, SkillError> {
    let index = lock.index(name)?.filter(|index| !index.is_removed);
    index.ok_or_else(|| SkillError::NotFound { name: name.clone() })
}

/// Returns an error if the author is neither the operator nor the owner of the skill.
fn check_owner(index: &Index, name: &SkillName, by: &Author) -> Result<(), SkillError> {
    if *by == Author::Operator || index.owner.is_some() && index.owner == by.owner() {
        return Ok(());
    }
    let owner = index.owner.as_ref().map_or_else(operator, |owner| format!("caller {owner}"));
    Err(SkillError::NotOwner { name: name.clone(), owner })
}

fn author_text(by: &Author) -> String {
    match by {
        Author::Operator => operator(),
        // The first word distinguishes a caller from the operator in the history.
        Author::Caller { client, session } => {
            let (client, session) = (visible(client), visible(session));
            format!("caller {client} {session}").trim_end().to_owned()
        }
    }
}

fn operator() -> String {
    "operator".to_owned()
}

/// Returns the visible characters of a caller's name, up to a maximum length.
fn visible(name: &str) -> String {
    const MAX: usize = 64;
    name.chars().filter(char::is_ascii_graphic).take(MAX).collect()
}

/// Applies the replacements to the code of a skill, one after the other.
fn apply_edits(code: &str, edits: &[Edit]) -> Result<String, SkillError> {
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

/// Returns the number of occurrences of a text, including overlapping ones.
fn occurrences(text: &str, search: &str) -> usize {
    const ENOUGH: usize = 100; // bounds the work; the exact number is irrelevant
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
