//! Typed access to the events of a verified receipt.

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

/// The events of one run from a verified receipt.
#[derive(Debug, Clone)]
pub struct Verified {
    run: RunId,
    events: Vec<(u64, Entry)>,
    checkpoint: Checkpoint,
    key: VerifyingKey,
    bodies: HashMap<Digest, Vec<u8>>,
    is_complete: bool,
}

impl Verified {
    pub(super) const fn new(
        run: RunId,
        events: Vec<(u64, Entry)>,
        checkpoint: Checkpoint,
        key: VerifyingKey,
        bodies: HashMap<Digest, Vec<u8>>,
        is_complete: bool,
    ) -> Self {
        Self { run, events, checkpoint, key, bodies, is_complete }
    }

    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Returns all events of the run up to the checkpoint, with their indexes.
    pub fn events(&self) -> &[(u64, Entry)] {
        &self.events
    }

    /// Returns whether the signature shows that no event of the run up to the checkpoint is missing.
    ///
    /// It does not for receipts of format 1, which Belljar 0.1 made: their last events can have been
    /// cut off.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the signed checkpoint of the receipt.
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the key that signed the checkpoint.
    pub const fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// Returns the disclosed content of a body, which matches its commitment.
    pub fn content(&self, body: &Body) -> Option<&[u8]> {
        self.bodies.get(&body.hash()).map(Vec::as_slice)
    }

    /// Returns whether the run had ended.
    pub fn ended(&self) -> bool {
        self.events.iter().any(|(_, entry)| matches!(&*entry.kind, "run.ended" | "run.failed"))
    }

    /// Returns the event that requested the run.
    pub fn created(&self) -> Option<RunCreated> {
        self.pick(|event| {
            let Event::RunCreated(created) = event else { return None };
            Some(created)
        })
        .next()
    }

    /// Returns the event that ended the run.
    pub fn end(&self) -> Option<RunEnded> {
        self.pick(|event| {
            let Event::RunEnded(ended) = event else { return None };
            Some(ended)
        })
        .next()
    }

    /// Returns the hash of all settings that decided what the box could do.
    pub fn policy(&self) -> Option<Digest> {
        self.created().map(|created| created.policy)
    }

    /// Returns the decisions about network requests.
    pub fn requests(&self) -> impl Iterator<Item = RequestDecided> {
        self.pick(|event| {
            let Event::RequestDecided(request) = event else { return None };
            Some(request)
        })
    }

    /// Returns the decisions about DNS queries.
    pub fn lookups(&self) -> impl Iterator<Item = DnsDecided> {
        self.pick(|event| {
            let Event::DnsDecided(lookup) = event else { return None };
            Some(lookup)
        })
    }

    /// Returns the names of the used secrets.
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

    /// Returns the outputs of the program by name.
    pub fn outputs(&self) -> Vec<(&'static str, Body)> {
        let end = self.end();
        let stdout = end.as_ref().and_then(|end| end.stdout.clone()).map(|body| ("stdout", body));
        let stderr = end.as_ref().and_then(|end| end.stderr.clone()).map(|body| ("stderr", body));
        stdout.into_iter().chain(stderr).collect()
    }

    /// Returns the changes of the run to its workspace.
    pub fn changes(&self) -> impl Iterator<Item = WorkspaceChanged> {
        self.pick(|event| {
            let Event::WorkspaceChanged(changed) = event else { return None };
            Some(changed)
        })
    }

    /// Returns the events that `choose` selects; events of later versions are skipped.
    fn pick<T>(&self, choose: impl Fn(Event) -> Option<T>) -> impl Iterator<Item = T> {
        self.events
            .iter()
            .filter_map(move |(_, entry)| choose(Event::read(&entry.kind, &entry.fields).ok()?))
    }
}
