//! What is known about a skill beside its versions: which is in force, which waits, what was approved.

use serde::{Deserialize, Serialize};

use super::{Granted, MAX_VERSIONS, Step, Version, Wants};

/// Steps of one skill's history; the oldest go first.
const MAX_HISTORY: usize = 200;
/// Approvals of one skill; each was a person's decision.
const MAX_APPROVED: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Index {
    pub(super) active: Option<Version>,
    pub(super) waiting: Option<Version>,
    pub(super) is_removed: bool,
    /// Each is what one approved version wanted. Not joined: two approvals are no approval of both at
    /// once.
    pub(super) approved: Vec<Wants>,
    /// The oldest first.
    pub(super) history: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) version: Version,
    pub(super) by: String,
    pub(super) step: Step,
}

impl Index {
    /// What a version wants beyond that approval which comes nearest, in words.
    pub(super) fn more(&self, wants: &Wants) -> Vec<String> {
        let beyond = |approved: &Wants| wants.beyond(&Granted::from(approved));
        let nearest = self.approved.iter().map(beyond).min_by_key(Vec::len);
        nearest.unwrap_or_else(|| wants.words())
    }

    pub(super) fn approve(&mut self, wants: Wants) {
        self.approved.retain(|old| !old.beyond(&Granted::from(&wants)).is_empty());
        if self.more(&wants).is_empty() && !wants.is_empty() {
            return;
        }
        if !wants.is_empty() {
            self.approved.push(wants);
        }
        let over = self.approved.len().saturating_sub(MAX_APPROVED);
        self.approved.drain(..over);
    }

    /// Adds a step, and says which versions need not be kept any more.
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

    /// The versions of its history, each once.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Version> {
        let mut seen = std::collections::BTreeSet::new();
        self.history.iter().map(|event| &event.version).filter(move |it| seen.insert(*it))
    }
}
