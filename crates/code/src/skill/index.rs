//! The index of a skill: its active version, waiting version, approvals and history.

use serde::{Deserialize, Serialize};

use super::{Granted, MAX_VERSIONS, Step, Version, Wants};

/// The maximum number of events in a skill's history. The oldest are dropped first.
const MAX_HISTORY: usize = 200;
/// The maximum number of stored approvals of a skill.
const MAX_APPROVED: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Index {
    pub(super) active: Option<Version>,
    pub(super) waiting: Option<Version>,
    pub(super) is_removed: bool,
    /// The client that owns the skill. `None` if the operator owns it, or if it was saved before skills had
    /// owners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// The approved requests of the skill, one entry per approved version. They are not merged,
    /// because two separate approvals do not approve both requests in one version.
    pub(super) approved: Vec<Wants>,
    /// Oldest event first.
    pub(super) history: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) version: Version,
    pub(super) by: String,
    pub(super) step: Step,
}

/// The reason to wait of a version that requests nothing new, in a skill with approved requests.
const REPLACES: &str = "to replace approved code";

impl Index {
    /// Returns the reasons why a version of a client must be approved before it becomes active, as text.
    ///
    /// An approval is for the code that was shown to the operator. So other code of a skill with an
    /// approval waits even if it requests less.
    pub(super) fn reasons_to_wait(&self, wants: &Wants) -> Vec<String> {
        let more = self.more(wants);
        if more.is_empty() && !self.approved.is_empty() {
            return vec![REPLACES.to_owned()];
        }
        more
    }

    /// Returns the author that saved this version last.
    pub(super) fn author(&self, version: &Version) -> Option<&str> {
        let is_save = |event: &&Event| event.step == Step::Saved && event.version == *version;
        self.history.iter().rev().find(is_save).map(|event| event.by.as_str())
    }

    /// Returns the requests of a skill that the closest approval does not cover, as text.
    pub(super) fn more(&self, wants: &Wants) -> Vec<String> {
        let not_granted = |approved: &Wants| wants.not_granted(&Granted::from(approved));
        let nearest = self.approved.iter().map(not_granted).min_by_key(Vec::len);
        nearest.unwrap_or_else(|| wants.words())
    }

    pub(super) fn approve(&mut self, wants: Wants) {
        self.approved.retain(|old| !old.not_granted(&Granted::from(&wants)).is_empty());
        if self.more(&wants).is_empty() && !wants.is_empty() {
            return;
        }
        if !wants.is_empty() {
            self.approved.push(wants);
        }
        let over = self.approved.len().saturating_sub(MAX_APPROVED);
        self.approved.drain(..over);
    }

    /// Adds an event to the history of a skill and returns the versions that can be deleted.
    pub(super) fn note(&mut self, version: &Version, by: String, step: Step) -> Vec<Version> {
        let event = Event { version: version.clone(), by, step };
        if self.history.last() != Some(&event) {
            self.history.push(event);
        }
        let mut kept: Vec<Version> = Vec::new();
        for event in self.history.iter().rev() {
            if !kept.contains(&event.version) {
                kept.push(event.version.clone());
            }
        }
        let in_use = |version: &Version| {
            self.active.as_ref() == Some(version) || self.waiting.as_ref() == Some(version)
        };
        let over = kept.split_off(kept.len().min(MAX_VERSIONS));
        let dropped: Vec<Version> = over.into_iter().filter(|it| !in_use(it)).collect();
        let many = self.history.len().saturating_sub(MAX_HISTORY);
        let mut gone: Vec<Version> = self.history.drain(..many).map(|it| it.version).collect();
        gone.retain(|it| !in_use(it) && self.history.iter().all(|event| event.version != *it));
        self.history.retain(|event| !dropped.contains(&event.version));
        gone.extend(dropped);
        gone
    }

    /// Returns the skill versions in the history, without duplicates.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Version> {
        let mut seen = std::collections::BTreeSet::new();
        self.history.iter().map(|event| &event.version).filter(move |it| seen.insert(*it))
    }
}
