//! The skills of the state directory, whose every change goes on record first.

use belljar_code::skill::{Deed, Skills, State as SkillState, Version, Wants};
use belljar_ledger::{
    ApprovalRefused, Digest, Draft, Event, SkillApproved, SkillRemoved, SkillSaved,
};
use belljar_model::caller::Principal;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

/// Opens the skills, for reading and for changes.
pub fn open(state: &Scoped) -> Result<Skills, EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    let skills = Skills::open(state.home()).kind(ErrorKind::Broken)?;
    let caller = state.caller().principal.clone();
    Ok(skills.witnessed(Box::new(move |deed| {
        Ok(ledger.record(Draft::new(event(deed, &caller)?)).map(drop)?)
    })))
}

fn event(deed: &Deed<'_>, caller: &Principal) -> Result<Event, belljar_ledger::DigestError> {
    Ok(match deed {
        Deed::Save { skill, state, by } => SkillSaved {
            name: skill.name.to_string(),
            version: digest(&skill.version)?,
            state: match state {
                SkillState::Active => "active".to_owned(),
                SkillState::Waits { .. } => "waits".to_owned(),
            },
            wants: Wants::words(&skill.wants),
            by: (*by).to_owned(),
        }
        .into(),
        Deed::Approve { skill } => SkillApproved {
            name: skill.name.to_string(),
            version: digest(&skill.version)?,
            wants: Wants::words(&skill.wants),
            by: Some(caller.to_string()),
        }
        .into(),
        Deed::Refuse { skill } => ApprovalRefused {
            why: "operator".to_owned(),
            bound_to: digest(&skill.version)?,
            by: Some(caller.to_string()),
        }
        .into(),
        Deed::Remove { name, is_forgotten } => {
            SkillRemoved { name: name.to_string(), forgotten: *is_forgotten }.into()
        }
    })
}

/// The digest that an approval of this version is bound to.
pub fn digest(version: &Version) -> Result<Digest, belljar_ledger::DigestError> {
    version.as_str().parse()
}
