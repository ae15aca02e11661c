//! Typed access to the events of a verified receipt of a plan.

use std::collections::{BTreeMap, HashMap};

use belljar_model::RunId;

use super::output_of;
use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::entry::Entry;
use crate::event::{Event, RunCreated};
use crate::field::Value;
use crate::note::VerifyingKey;

/// The events of a plan and of its boxes from a verified receipt.
#[derive(Debug, Clone)]
pub struct VerifiedPlan {
    /// The first chain is that of the plan.
    chains: Vec<(RunId, Vec<Entry>)>,
    checkpoint: Checkpoint,
    key: VerifyingKey,
    bodies: HashMap<Digest, Vec<u8>>,
}

/// One task, or one instance of a task, as the events of its plan show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvedTask {
    /// The task, as `id` or `id[n]`.
    pub name: String,
    /// The number of attempts that were started.
    pub attempts: u64,
    /// The last recorded result or state, such as `done`; absent if the task had none.
    pub state: Option<String>,
    /// The commitment to the output and the size of the output.
    pub output: Option<(Digest, u64)>,
}

impl VerifiedPlan {
    pub(super) const fn new(
        chains: Vec<(RunId, Vec<Entry>)>,
        checkpoint: Checkpoint,
        key: VerifyingKey,
        bodies: HashMap<Digest, Vec<u8>>,
    ) -> Self {
        Self { chains, checkpoint, key, bodies }
    }

    /// Returns the events of the plan and of each box, each with its run. The plan is the first.
    pub fn chains(&self) -> &[(RunId, Vec<Entry>)] {
        &self.chains
    }

    /// Returns the run of the plan.
    pub fn run(&self) -> Option<RunId> {
        self.chains.first().map(|(run, _)| *run)
    }

    /// Returns the events of the plan.
    pub fn plan(&self) -> &[Entry] {
        self.chains.first().map_or(&[], |(_, entries)| entries)
    }

    /// Returns the events of each box. A box that was never started has no events.
    pub fn boxes(&self) -> &[(RunId, Vec<Entry>)] {
        self.chains.get(1..).unwrap_or_default()
    }

    /// Returns the events of the plan and of all boxes, chain by chain.
    pub fn events(&self) -> impl Iterator<Item = &Entry> {
        self.chains.iter().flat_map(|(_, entries)| entries)
    }

    /// Returns the signed checkpoint of the receipt.
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the key that signed the checkpoint.
    pub const fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// Returns the disclosed content with this commitment.
    pub fn content(&self, hash: Digest) -> Option<&[u8]> {
        self.bodies.get(&hash).map(Vec::as_slice)
    }

    /// Returns the event that requested the run.
    pub fn created(&self) -> Option<RunCreated> {
        let entry = self.plan().first()?;
        match Event::read(&entry.kind, &entry.fields) {
            Ok(Event::RunCreated(created)) => Some(created),
            _ => None,
        }
    }

    /// Returns the digest that binds the files of the plan.
    pub fn accepted(&self) -> Option<Digest> {
        self.plan().iter().find_map(|entry| match Event::read(&entry.kind, &entry.fields) {
            Ok(Event::PlanAccepted(accepted)) => Some(accepted.plan),
            _ => None,
        })
    }

    /// Returns the outcome of the run, or `None` if the run was open.
    pub fn outcome(&self) -> Option<&str> {
        let end = self.plan().iter().find(|entry| entry.kind == "plan.ended")?;
        text(end, "outcome")
    }

    /// Returns the tasks that the events of the plan name, in the order of their first mention.
    pub fn tasks(&self) -> Vec<ProvedTask> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut tasks: Vec<ProvedTask> = Vec::new();
        for entry in self.plan() {
            let Some(name) = text(entry, "task") else { continue };
            let place = *places.entry(name).or_insert_with(|| {
                let name = name.to_owned();
                tasks.push(ProvedTask { name, attempts: 0, state: None, output: None });
                tasks.len() - 1
            });
            if let Some(task) = tasks.get_mut(place) {
                task.note(entry);
            }
        }
        tasks
    }

    /// Returns the number of actions that persons approved.
    pub fn approvals(&self) -> usize {
        let given = self.events().filter(|entry| entry.kind == "approval.given");
        given.filter(|entry| text(entry, "verdict") != Some("deny")).count()
    }

    /// Returns how often each secret was inserted into a request, by the name of the secret.
    pub fn credential_uses(&self) -> BTreeMap<String, u64> {
        self.count("secret.used", "name")
    }

    /// Returns how often each language model answered, by the name of the model.
    pub fn models(&self) -> BTreeMap<String, u64> {
        self.count("model.called", "model")
    }

    /// Counts the events of a kind by the value of a text field.
    fn count(&self, kind: &str, field: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for entry in self.events().filter(|entry| entry.kind == kind) {
            let name = text(entry, field).unwrap_or_default();
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        counts
    }
}

impl ProvedTask {
    fn note(&mut self, entry: &Entry) {
        match entry.kind.as_str() {
            "task.started" => self.attempts += 1,
            "task.ended" => self.state = text(entry, "result").map(str::to_owned),
            "task.lost" => self.state = Some("lost".to_owned()),
            "task.stopped" => self.state = text(entry, "state").map(str::to_owned),
            "task.judged" if text(entry, "verdict") == Some("rejected") => {
                self.state = Some("rejected".to_owned());
                self.output = None;
            }
            "approval.given" => self.state = Some("done".to_owned()),
            "approval.refused" => self.state = Some("failed".to_owned()),
            "attention.settled" => self.state = text(entry, "how").map(str::to_owned),
            _ => {}
        }
        self.output = output_of(entry).or(self.output);
    }
}

/// Returns the value of a text field.
fn text<'a>(entry: &'a Entry, field: &str) -> Option<&'a str> {
    match entry.fields.get(field)? {
        Value::Text(text) => Some(text),
        Value::Bytes(_)
        | Value::Number(_)
        | Value::Truth(_)
        | Value::List(_)
        | Value::Hash(_)
        | Value::Body(_) => None,
    }
}
