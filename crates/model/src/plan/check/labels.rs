//! The check of the labels that gates name.

use std::collections::BTreeSet;

use super::super::{Executor, Label};
use super::{Checker, hint};

/// The labels that Belljar gives to data by itself.
const OWN: [&str; 3] = ["model", "network", "untrusted"];

impl Checker<'_> {
    /// Refuses a gate with a label that no data of the plan can have: it is likely a spelling mistake, and
    /// the gate would not protect anything.
    pub(super) fn labels(&mut self) {
        let inputs = self.plan.inputs.values().flat_map(|input| &input.labels);
        let tasks = self.plan.tasks.iter().flat_map(|task| &task.labels);
        let known: BTreeSet<&str> = inputs.chain(tasks).map(Label::as_str).chain(OWN).collect();
        let known: Vec<&str> = known.into_iter().collect();
        for place in self.places() {
            let Executor::Approval { clears, deny_when, .. } = &place.task.executor else {
                continue;
            };
            for (key, labels) in [("clears", clears), ("deny_when", deny_when)] {
                for label in labels.iter().filter(|label| !known.contains(&label.as_str())) {
                    let hint = hint(label.as_str(), &known);
                    self.faults.add(place.line(key), || {
                        let id = &place.task.id;
                        format!("task `{id}`: `{key}`: no data of the plan has the label `{label}`{hint}")
                    });
                }
            }
            for label in clears.iter().filter(|label| deny_when.contains(label)) {
                self.faults.add(place.line("clears"), || {
                    let id = &place.task.id;
                    format!("task `{id}`: the label `{label}` is in `clears` and in `deny_when`; an approval that is refused clears nothing")
                });
            }
        }
    }
}
