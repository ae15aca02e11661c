//! Labels of data: where they come from, and which grants they remove.
//!
//! A label states where data comes from: `untrusted` for inputs and files that the plan marks, `network` for
//! boxes with an open network or an untrusted rule, `model` for everything that a model wrote. A task has the
//! labels of all data that it reads, and of its own box. Its output has the same labels. Only a gate with
//! `clears` removes labels.
//!
//! A secret or a rule with `deny-when` is removed from the box of a task that has one of these labels. What a
//! box earns and can lose is fixed when the plan is submitted, so this module is pure except for [`view`]: the
//! labels follow from the recorded facts alone.

mod origins;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use belljar_model::net::{RemovedGrants, SecretName};
use belljar_model::plan::{Executor, Label, Plan, Source, Task, TaskId};
use serde::{Deserialize, Serialize};

pub(crate) use origins::origins;

/// The name of the label of data from an open network.
pub(crate) const NETWORK: &str = "network";
/// The name of the label of data that a model wrote.
pub(crate) const MODEL: &str = "model";

/// What labels mean for the boxes of a plan, by task. Tasks without an entry earn and lose nothing.
pub type PlanTaint = BTreeMap<TaskId, BoxTaint>;

/// What labels mean for the box of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxTaint {
    /// The labels that the box gives to the task.
    pub earned: Vec<Earned>,
    /// The grants of the box that labels remove.
    pub marked: Vec<Marked>,
}

/// A label that the box of a task gives to the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earned {
    pub label: Label,
    /// The setting of the box, for example `net = "full"`.
    pub from: String,
}

/// A grant with `deny-when`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marked {
    pub grant: GrantName,
    pub deny_when: BTreeSet<Label>,
    /// The number of the tier whose attempts have the grant, from 0; `None` for all attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<u32>,
    /// The number of the check whose box has the grant, from 0; `None` for the box of the task itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<u32>,
}

/// A grant of a box that labels can remove. The text is `secret NAME` or `rule ID`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantName {
    Secret(SecretName),
    Rule(String),
}

impl fmt::Display for GrantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => write!(f, "secret {name}"),
            Self::Rule(id) => write!(f, "rule {id}"),
        }
    }
}

/// A text is not the name of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid grant; it is `secret NAME` or `rule ID`")]
pub struct GrantNameError;

impl FromStr for GrantName {
    type Err = GrantNameError;

    fn from_str(text: &str) -> Result<Self, GrantNameError> {
        match text.split_once(' ') {
            Some(("secret", name)) => name.parse().map(Self::Secret).map_err(|_| GrantNameError),
            Some(("rule", id)) => Ok(Self::Rule(id.to_owned())),
            _ => Err(GrantNameError),
        }
    }
}

/// A grant that a label removed from the box of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Removed {
    pub grant: GrantName,
    pub label: Label,
    /// The sources of the label, for example `input.issue`.
    pub from: Vec<String>,
}

/// The source of a label, and the tasks through which it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The source, for example `input.issue` or `model of triage`.
    pub source: String,
    /// The tasks from the source to the task with the label, which is the last one.
    pub path: Vec<TaskId>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        self.path.iter().try_for_each(|task| write!(f, " > {task}"))
    }
}

/// Collects the grants that were removed.
pub fn grants<'r>(removed: impl IntoIterator<Item = &'r Removed>) -> RemovedGrants {
    let mut grants = RemovedGrants::default();
    for Removed { grant, .. } in removed {
        match grant {
            GrantName::Secret(name) => drop(grants.secrets.insert(name.clone())),
            GrantName::Rule(id) => drop(grants.rules.insert(id.clone())),
        }
    }
    grants
}

/// Returns the labels that a task has without regard to other tasks, each with its source.
pub(crate) fn own(task: &Task, plan: &Plan, taint: Option<&BoxTaint>) -> Vec<(Label, String)> {
    let id = &task.id;
    let mut own = Vec::new();
    for edge in &task.data {
        let Source::Input(name) = &edge.from else { continue };
        let labels = plan.inputs.get(name).into_iter().flat_map(|input| &input.labels);
        own.extend(labels.map(|label| (label.clone(), format!("input.{name}"))));
    }
    own.extend(task.labels.iter().map(|label| (label.clone(), format!("files of {id}"))));
    if matches!(task.executor, Executor::Agent { .. } | Executor::Model { .. }) {
        own.extend(MODEL.parse().ok().map(|label| (label, format!("model of {id}"))));
    } else if task.attempts > 1 && task.checks.iter().any(|check| check.tier().is_some()) {
        // The reason of a judge is an input of the next attempt.
        own.extend(MODEL.parse().ok().map(|label| (label, format!("check of {id}"))));
    }
    let earned = taint.into_iter().flat_map(|taint| &taint.earned);
    own.extend(earned.map(|it| (it.label.clone(), format!("{} of {id}", it.from))));
    own
}

/// Returns a label with its sources as one line of text.
pub fn sentence(label: &Label, from: &[String]) -> String {
    match from {
        [] => label.to_string(),
        from => format!("{label} ({})", from.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_name_survives_a_round_trip_and_other_texts_are_refused() {
        let secret = GrantName::Secret("deploy".parse().unwrap());
        let rule = GrantName::Rule("allow POST api.example.com secret x".to_owned());
        for grant in [secret, rule] {
            assert_eq!(grant.to_string().parse(), Ok(grant));
        }
        for wrong in ["", "secret", "secret ", "secret A", "host x", "deploy"] {
            assert_eq!(wrong.parse::<GrantName>(), Err(GrantNameError), "{wrong}");
        }
    }

    #[test]
    fn removed_grants_are_collected_by_kind() {
        let removed = |grant: &str, label: &str| Removed {
            grant: grant.parse().unwrap(),
            label: label.parse().unwrap(),
            from: Vec::new(),
        };
        let all = [
            removed("secret a", "model"),
            removed("secret a", "network"),
            removed("rule allow b.example", "network"),
        ];
        let grants = grants(&all);
        assert_eq!(grants.secrets, BTreeSet::from(["a".parse().unwrap()]));
        assert_eq!(grants.rules, BTreeSet::from(["allow b.example".to_owned()]));
    }
}
