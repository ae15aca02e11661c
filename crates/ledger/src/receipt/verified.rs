//! What a receipt that holds says about its run.

use std::collections::{BTreeSet, HashMap};

use belljar_model::RunId;

use crate::body::Body;
use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::entry::Entry;
use crate::event::{
    ApprovalGiven, DnsDecided, Event, RequestDecided, RunCreated, RunEnded, WorkspaceChanged,
};
use crate::note::VerifyingKey;

/// The events of one run, every one of them proved.
#[derive(Debug, Clone)]
pub struct Verified {
    run: RunId,
    events: Vec<(u64, Entry)>,
    checkpoint: Checkpoint,
    key: VerifyingKey,
    bodies: HashMap<Digest, Vec<u8>>,
}

impl Verified {
    pub(super) const fn new(
        run: RunId,
        events: Vec<(u64, Entry)>,
        checkpoint: Checkpoint,
        key: VerifyingKey,
        bodies: HashMap<Digest, Vec<u8>>,
    ) -> Self {
        Self { run, events, checkpoint, key, bodies }
    }

    pub const fn run(&self) -> RunId {
        self.run
    }

    /// All events of the run up to the checkpoint, with their index.
    pub fn events(&self) -> &[(u64, Entry)] {
        &self.events
    }

    /// What was signed, and so the moment that the receipt speaks of.
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The key that signed it.
    pub const fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// The content of a body, if it was disclosed; it fits its commitment.
    pub fn content(&self, body: &Body) -> Option<&[u8]> {
        self.bodies.get(&body.hash()).map(Vec::as_slice)
    }

    /// Whether the run was over.
    pub fn ended(&self) -> bool {
        self.events.iter().any(|(_, entry)| matches!(&*entry.kind, "run.ended" | "run.failed"))
    }

    /// How the run was asked for.
    pub fn created(&self) -> Option<RunCreated> {
        self.pick(|event| {
            let Event::RunCreated(created) = event else { return None };
            Some(created)
        })
        .next()
    }

    /// How the run went.
    pub fn end(&self) -> Option<RunEnded> {
        self.pick(|event| {
            let Event::RunEnded(ended) = event else { return None };
            Some(ended)
        })
        .next()
    }

    /// The hash of everything that decided what the box might do.
    pub fn policy(&self) -> Option<Digest> {
        self.created().map(|created| created.policy)
    }

    /// What was asked of the network, and what was decided.
    pub fn requests(&self) -> impl Iterator<Item = RequestDecided> {
        self.pick(|event| {
            let Event::RequestDecided(request) = event else { return None };
            Some(request)
        })
    }

    /// Which names were asked for, and what was decided.
    pub fn lookups(&self) -> impl Iterator<Item = DnsDecided> {
        self.pick(|event| {
            let Event::DnsDecided(lookup) = event else { return None };
            Some(lookup)
        })
    }

    /// The names of the secrets that were used.
    pub fn secrets(&self) -> BTreeSet<String> {
        self.pick(|event| {
            let Event::SecretUsed(used) = event else { return None };
            Some(used.name)
        })
        .collect()
    }

    pub fn approvals(&self) -> impl Iterator<Item = ApprovalGiven> {
        self.pick(|event| {
            let Event::ApprovalGiven(given) = event else { return None };
            Some(given)
        })
    }

    /// What the program wrote, by name.
    pub fn outputs(&self) -> Vec<(&'static str, Body)> {
        let end = self.end();
        let stdout = end.as_ref().and_then(|end| end.stdout).map(|body| ("stdout", body));
        let stderr = end.as_ref().and_then(|end| end.stderr).map(|body| ("stderr", body));
        stdout.into_iter().chain(stderr).collect()
    }

    /// What the run changed in its workspace.
    pub fn changes(&self) -> impl Iterator<Item = WorkspaceChanged> {
        self.pick(|event| {
            let Event::WorkspaceChanged(changed) = event else { return None };
            Some(changed)
        })
    }

    /// The events of one kind, read. One of a later version is passed over.
    fn pick<T>(&self, choose: impl Fn(Event) -> Option<T>) -> impl Iterator<Item = T> {
        self.events
            .iter()
            .filter_map(move |(_, entry)| choose(Event::read(&entry.kind, &entry.fields).ok()?))
    }
}
