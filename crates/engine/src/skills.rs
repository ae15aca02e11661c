//! The skills of one tenant. Each change is recorded in the ledger before it is made.

use belljar_code::skill::{self, SkillChange, SkillError};
use belljar_ledger::{
    ApprovalRefused, Digest, Draft as EventDraft, Event, SkillApproved, SkillRemoved, SkillSaved,
};
use belljar_model::caller::Principal;
use belljar_model::code::SkillName;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;

pub use belljar_code::skill::{
    Author, Draft, Edit, HistoryEntry, MAX_CODE, Saved, Skill, SkillInfo, SkillState, Version,
    VersionState, Waiting, Wants,
};
pub use belljar_wire::Dialect;

/// The skills of one tenant.
#[derive(Debug)]
pub struct Skills(skill::Skills);

impl Skills {
    /// Opens the skills, for reading and for changes.
    pub fn open(state: &Scoped) -> Result<Self, EngineError> {
        open(state).map(Self)
    }

    /// Returns all skills, including damaged skills.
    pub fn list(&self) -> Result<Vec<SkillInfo>, EngineError> {
        self.0.list().map_err(engine_error)
    }

    /// Returns the active version of a skill.
    pub fn get(&self, name: &SkillName) -> Result<Skill, EngineError> {
        self.0.get(name).map_err(engine_error)
    }

    /// Returns the version of a skill that has this hash.
    pub fn version(&self, name: &SkillName, version: &Version) -> Result<Skill, EngineError> {
        self.0.version(name, version).map_err(engine_error)
    }

    /// Returns the full hash of the version whose hash starts with `prefix`.
    pub fn find(&self, name: &SkillName, prefix: &str) -> Result<Version, EngineError> {
        self.0.find(name, prefix).map_err(engine_error)
    }

    /// Returns the version of a skill that waits for approval.
    pub fn waiting(&self, name: &SkillName) -> Result<Version, EngineError> {
        match self.0.info(name).map_err(engine_error)?.state {
            SkillState::Active { waiting: Some(Waiting { skill, .. }), .. }
            | SkillState::Waiting(Waiting { skill, .. }) => Ok(skill.version),
            SkillState::Active { waiting: None, .. } => Err(EngineError::message(
                ErrorKind::WrongState,
                format!(
                    "no version of skill {name} waits for approval; name a version by its hash"
                ),
            )),
            SkillState::Damaged(what) => Err(invalid(what)),
        }
    }

    /// Saves a version of a skill. A client can only change skills that it owns.
    pub fn save(&self, name: &SkillName, draft: Draft, by: &Author) -> Result<Saved, EngineError> {
        self.0.save(name, draft, by).map_err(engine_error)
    }

    /// Creates a new version of a skill by search and replace. Applies all edits or none.
    pub fn edit(
        &self,
        name: &SkillName,
        edits: &[Edit],
        by: &Author,
    ) -> Result<Saved, EngineError> {
        self.0.edit(name, edits, by).map_err(engine_error)
    }

    /// Removes a skill. Its versions, approvals and owner stay on disk.
    pub fn remove(&self, name: &SkillName, by: &Author) -> Result<(), EngineError> {
        self.0.remove(name, by).map_err(engine_error)
    }

    /// Removes a skill with all its versions and approvals.
    pub fn forget(&self, name: &SkillName) -> Result<(), EngineError> {
        self.0.forget(name).map_err(engine_error)
    }

    /// Returns the history of a skill, oldest entry first. Also works for a removed skill.
    pub fn history(&self, name: &SkillName) -> Result<Vec<HistoryEntry>, EngineError> {
        self.0.history(name).map_err(engine_error)
    }

    /// Approves a version of a skill with the permissions that it wants, and makes it the active version.
    pub fn approve(&self, name: &SkillName, version: &Version) -> Result<Skill, EngineError> {
        self.0.approve(name, version).map_err(engine_error)
    }
}

/// Opens the store of skills, which records each change in the ledger with the caller of `state`.
pub(crate) fn open(state: &Scoped) -> Result<skill::Skills, EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    let skills = skill::Skills::open(state.home()).kind(ErrorKind::Broken)?;
    let caller = state.caller().principal.clone();
    Ok(skills.with_change_hook(Box::new(move |change| {
        Ok(ledger.record(EventDraft::new(event(change, &caller)?)).map(drop)?)
    })))
}

fn event(
    change: &SkillChange<'_>,
    caller: &Principal,
) -> Result<Event, belljar_ledger::DigestError> {
    Ok(match change {
        SkillChange::Save { skill, state, by } => SkillSaved {
            name: skill.name.to_string(),
            version: digest(&skill.version)?,
            state: match state {
                VersionState::Active => "active".to_owned(),
                VersionState::Waits { .. } => "waits".to_owned(),
            },
            wants: Wants::words(&skill.wants),
            by: (*by).to_owned(),
        }
        .into(),
        SkillChange::Approve { skill } => SkillApproved {
            name: skill.name.to_string(),
            version: digest(&skill.version)?,
            wants: Wants::words(&skill.wants),
            by: Some(caller.to_string()),
        }
        .into(),
        SkillChange::Refuse { skill } => ApprovalRefused::new(
            "operator".to_owned(),
            digest(&skill.version)?,
            Some(caller.to_string()),
        )
        .into(),
        SkillChange::Remove { name, is_forgotten } => {
            SkillRemoved { name: name.to_string(), forgotten: *is_forgotten }.into()
        }
    })
}

/// Returns the digest that an approval of this version must name.
pub fn digest(version: &Version) -> Result<Digest, belljar_ledger::DigestError> {
    version.as_str().parse()
}

/// Converts an error of the store of skills into an engine error.
fn engine_error(error: SkillError) -> EngineError {
    let kind = match &error {
        SkillError::NotFound { .. } | SkillError::NoVersion { .. } => ErrorKind::NotFound,
        SkillError::NotWaiting { .. } | SkillError::Waits { .. } => ErrorKind::WrongState,
        SkillError::NotOwner { .. } => ErrorKind::Refused,
        SkillError::Damaged { .. } => ErrorKind::Damaged,
        SkillError::NotRecorded { .. } => ErrorKind::Unrecorded,
        SkillError::Files(_) => ErrorKind::Broken,
        SkillError::NoCode
        | SkillError::TooLong { .. }
        | SkillError::Description
        | SkillError::Wants(_)
        | SkillError::TooMany
        | SkillError::Full
        | SkillError::EmptySearch { .. }
        | SkillError::NoMatch { .. }
        | SkillError::ManyMatches { .. }
        | SkillError::TooManyEdits
        | SkillError::NoEdits => ErrorKind::Invalid,
    };
    EngineError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;

    fn draft(code: &str) -> Draft {
        Draft {
            description: String::new(),
            code: code.to_owned(),
            language: Dialect::Ts,
            wants: Wants::default(),
        }
    }

    #[test]
    fn skill_errors_have_the_error_kind_of_their_cause() {
        let dir = tempfile::tempdir().unwrap();
        let skills = Skills::open(&of_test(dir.path())).unwrap();
        let name: SkillName = "double".parse().unwrap();
        let operator = Author::Operator;
        let kind = |error: EngineError| error.kind();
        assert_eq!(kind(skills.get(&name).unwrap_err()), ErrorKind::NotFound);
        assert_eq!(kind(skills.save(&name, draft(""), &operator).unwrap_err()), ErrorKind::Invalid);
        skills.save(&name, draft("export default 2;"), &operator).unwrap();
        assert_eq!(kind(skills.waiting(&name).unwrap_err()), ErrorKind::WrongState);
        assert_eq!(kind(skills.find(&name, "ffffffff").unwrap_err()), ErrorKind::NotFound);
    }
}
