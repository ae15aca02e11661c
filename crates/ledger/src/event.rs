//! What can happen, as typed events.
//!
//! An effect on the world is recorded before it is made (an *intent*) and again when it is known how
//! it went (an *outcome*, whose cause is the intent). An intent without an outcome, of a process that
//! is gone, needs somebody's attention: nobody knows whether the effect was made.

use crate::body::Body;
use crate::digest::Digest;
use crate::field::{Fields, Value};

/// Why fields are not those of a kind of event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("{kind} is not a kind of event that this version knows")]
    Kind { kind: String },
    #[error("{kind} has no usable `{field}`")]
    Field { kind: &'static str, field: &'static str },
}

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $kind:literal {
            $( $(#[doc = $about:literal])* $field:ident: $type:ty ),* $(,)?
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name {
                $( $(#[doc = $about])* pub $field: $type, )*
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )+

        /// Everything that the ledger records.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $( $name($name), )+
        }

        impl Event {
            /// Each kind with what it means.
            pub const KINDS: &[(&str, &str)] = &[$( ($kind, concat!($($doc),+)) ),+];

            pub const fn kind(&self) -> &'static str {
                match self {
                    $( Self::$name(_) => $kind, )+
                }
            }

            pub fn fields(&self) -> Fields {
                let mut fields = Fields::default();
                match self {
                    $( Self::$name(_event) => {
                        $( _event.$field.put(stringify!($field), &mut fields); )*
                    } )+
                }
                fields
            }

            /// Reads an event back. Fields that this version does not know are passed over.
            pub fn read(kind: &str, fields: &Fields) -> Result<Self, EventError> {
                match kind {
                    $( $kind => Ok(Self::$name($name {
                        $( $field: Field::get(stringify!($field), fields).ok_or(
                            EventError::Field { kind: $kind, field: stringify!($field) },
                        )?, )*
                    })), )+
                    _ => Err(EventError::Kind { kind: kind.to_owned() }),
                }
            }
        }
    };
}

events! {
    /// A run was asked for. An intent: `run.ended` or `run.failed` is its outcome.
    RunCreated "run.created" {
        name: Option<String>,
        template: String,
        mode: String,
        net: String,
        /// The hash of everything that decides what the box may do.
        policy: Digest,
        /// Where the workspace is on the host.
        workspace: Option<Vec<u8>>,
        /// What is recorded of bodies: `hashes`, `bodies` or `none`.
        record: String,
        /// The program and its arguments, separated by NUL.
        command: Body,
        /// The names of the variables that the program gets; never their values.
        environment: Vec<String>,
        /// What the box may use at most, as `name=value`.
        limits: Vec<String>,
        /// What the box is started for: `run`, `call`, `box`, `tool-server` or `clone-reader`.
        purpose: Option<String>,
        /// Who asked for it, as `user:1000`.
        principal: Option<String>,
        /// Whose data it is.
        tenant: Option<String>,
        /// The session of the client that asked.
        session: Option<String>,
    }
    /// The layers that confine the run.
    RunLayers "run.layers" { in_force: Vec<String>, missing: Vec<String> }
    /// A layer is off because the operator asked for it.
    RunWeakened "run.weakened" { layer: String }
    /// The program starts inside the box.
    RunExec "run.exec" { program: Vec<u8> }
    /// One more program starts inside a box that runs.
    BoxExec "box.exec" {
        /// The user that the client's process runs as.
        uid: u64,
        program: Vec<u8>,
        /// The program and its arguments, separated by NUL.
        command: Body,
        /// The names of the variables that were given; never their values.
        environment: Vec<String>,
        workdir: Option<Vec<u8>>,
        terminal: bool,
        /// The caller, as `user:1000`.
        principal: Option<String>,
        /// The session of the client.
        session: Option<String>,
    }
    /// A limit ended the run.
    RunLimit "run.limit" { limit: String }
    /// The run is over.
    RunEnded "run.ended" {
        reason: String,
        exit: Option<u64>,
        signal: Option<u64>,
        wall_micros: u64,
        cpu_micros: u64,
        peak_memory: Option<u64>,
        stdin_bytes: u64,
        /// What the program wrote; absent when the template records nothing of it, or only hashes and
        /// it wrote nothing.
        stdout: Option<Body>,
        stderr: Option<Body>,
    }
    /// The box could not be started, or not be watched to its end.
    RunFailed "run.failed" { error: String }
    /// What the run changed in its workspace; nothing of it has reached the host.
    WorkspaceChanged "workspace.changed" { files: u64, changes: Body }
    /// Changes are about to be taken over. An intent: `workspace.applied` is its outcome.
    WorkspaceApplying "workspace.applying" { files: u64 }
    /// Changes were taken over into the user's directory.
    WorkspaceApplied "workspace.applied" { taken: u64, held_back: u64, error: Option<String> }
    /// The changes of the run were thrown away.
    WorkspaceDiscarded "workspace.discarded" {}
    /// A file of rules was read for the run.
    PolicyLoaded "policy.loaded" { scope: String, file: Vec<u8>, hash: Digest }
    /// The machine was looked at, and with `proved` attacked.
    DoctorChecked "doctor.checked" { proved: bool, passed: u64, failed: u64, report: Body }
    /// A name was asked for from inside the box.
    DnsDecided "dns.decided" {
        name: String,
        query: String,
        verdict: String,
        rule: Option<String>,
        reason: String,
    }
    /// A request was decided. If allowed, an intent: `request.finished` is its outcome.
    RequestDecided "request.decided" {
        method: String,
        scheme: String,
        host: String,
        port: u64,
        /// Without what follows `?`.
        path: String,
        verdict: String,
        rule: Option<String>,
        reason: String,
        /// The names of the secrets that it carries.
        secrets: Vec<String>,
        body: Option<Body>,
    }
    /// How an allowed request went.
    RequestFinished "request.finished" {
        status: Option<u64>,
        sent_bytes: u64,
        received_bytes: u64,
        micros: u64,
        body: Option<Body>,
        error: Option<String>,
    }
    /// A secret was put into a request, by name and slot.
    SecretUsed "secret.used" { name: String, slot: String, host: String }
    /// A secret was stored or replaced. Its value is nowhere in the ledger.
    SecretSet "secret.set" { name: String, hosts: Vec<String>, slots: Vec<String> }
    /// A refresh token's server gave another in its place, which the broker sealed and is stored.
    SecretRenewed "secret.renewed" { name: String }
    /// A secret was removed.
    SecretRemoved "secret.removed" { name: String }
    /// A version of a skill is kept, and in force unless it waits for approval.
    SkillSaved "skill.saved" {
        name: String,
        /// The hash of its content.
        version: Digest,
        /// `active` or `waits`.
        state: String,
        /// What it wants, in words: `host api.example.com`, `secret github`, `path /data`.
        wants: Vec<String>,
        by: String,
    }
    /// The operator put a version of a skill in force, with all that it wants.
    SkillApproved "skill.approved" {
        name: String,
        version: Digest,
        wants: Vec<String>,
        /// Who approved it, as `user:1000`.
        by: Option<String>,
    }
    /// A skill was deleted; with `forgotten`, what was approved for it too.
    SkillRemoved "skill.removed" { name: String, forgotten: bool }
    /// A box was taken down; all of it is in the trash.
    BoxRemoved "box.removed" {
        name: String,
        /// Where it is in the trash.
        trash: String,
        /// What it held that was not taken over, in words.
        unapplied: Option<String>,
        /// What the operator typed, or `gc`.
        by: String,
    }
    /// The changes of a box were thrown away; they are in the trash.
    BoxDiscarded "box.discarded" { name: String, trash: String, unapplied: Option<String> }
    /// Something came back from the trash: a `box`, or the `changes` or what a `reset` took from one.
    BoxRestored "box.restored" { name: String, trash: String, what: String }
    /// What a box holds was copied aside.
    BoxSnapshot "box.snapshot" { name: String, tag: String }
    /// A box was set back, to what it was when it was made or to a snapshot.
    BoxReset "box.reset" {
        name: String,
        tag: Option<String>,
        trash: String,
        unapplied: Option<String>,
    }
    /// A box was made as a copy of another one, or of a snapshot of it.
    BoxForked "box.forked" { name: String, from: String, tag: Option<String> }
    /// The trash was emptied of these, for good.
    TrashEmptied "trash.emptied" { trash: Vec<String> }
    /// A service was written into the operator's file.
    ApiAdded "api.added" { name: String, allow: Vec<String>, secrets: Vec<String> }
    /// Something happened that an attacker would do.
    AlarmRaised "alarm.raised" { alarm: String, detail: String }
    /// Part of a budget is used up.
    BudgetSpent "budget.spent" { budget: String, unit: String, amount: u64, total: u64 }
    /// Somebody is asked to allow exactly one thing.
    ApprovalAsked "approval.asked" { what: String, bound_to: Digest }
    /// Somebody allowed or refused exactly that thing.
    ApprovalGiven "approval.given" { by: String, verdict: String, bound_to: Digest }
    /// Exactly that thing is not allowed: `operator`, `timeout`, `gone`, `rules` or `nobody` says why.
    ApprovalRefused "approval.refused" {
        why: String,
        bound_to: Digest,
        /// Who said no, as `user:1000`, where somebody did.
        by: Option<String>,
    }
    /// The operator changes what a running box may reach. These are all its rules from here on.
    NetworkChanged "network.changed" {
        net: String,
        /// The hash of all that decides about its network.
        policy: Digest,
        allow: Vec<String>,
        deny: Vec<String>,
        ask: Vec<String>,
    }
    /// The operator looked at an intent without outcome and settled it.
    AttentionSettled "attention.settled" { reason: String }
    /// The ledger begins.
    LedgerCreated "ledger.created" { version: String, reason: Option<String> }
    /// Bodies were dropped on purpose.
    LedgerRedacted "ledger.redacted" { bodies: Vec<Digest>, reason: String }
    /// Bodies that only events before an index name were dropped for their age.
    LedgerPruned "ledger.pruned" { before_index: u64, before_time: u64 }
    /// The ledger was found in disorder and put right, or continued knowingly.
    LedgerRepaired "ledger.repaired" { what: String, offset: u64, bytes: u64, reason: Option<String> }
    /// A checkpoint was given out.
    CheckpointMade "ledger.checkpoint" { size: u64, root: Digest }
    /// The signing key was exchanged.
    KeyRotated "key.rotated" { old: String, new: String, endorsement: Vec<u8> }
    /// A span of another system's trace, brought in.
    TraceSpan "trace.span" {
        trace: String,
        span: String,
        parent: Option<String>,
        name: String,
        start: u64,
        end: u64,
        status: String,
        attributes: Body,
    }
}

impl Event {
    /// Whether this is the first event of its run.
    pub const fn begins_run(&self) -> bool {
        matches!(self, Self::RunCreated(_))
    }
}

/// Whether an event of this kind (and verdict) waits for an outcome.
pub fn opens(kind: &str, verdict: Option<&str>) -> bool {
    match kind {
        "run.created" | "workspace.applying" => true,
        "request.decided" => verdict == Some("allow"),
        _ => false,
    }
}

/// Whether an event of kind `outcome` ends the wait of its cause, which is of kind `intent`.
pub fn closes(outcome: &str, intent: &str) -> bool {
    match outcome {
        "run.ended" | "run.failed" => intent == "run.created",
        "workspace.applied" => intent == "workspace.applying",
        "request.finished" => intent == "request.decided",
        "attention.settled" => true,
        _ => false,
    }
}

/// A Rust value as a field. `None` is a field that is not there.
trait Field: Sized {
    fn put(&self, name: &str, fields: &mut Fields);
    fn get(name: &str, fields: &Fields) -> Option<Self>;
}

macro_rules! field {
    ($type:ty, $value:ident => $put:expr, $pattern:pat => $get:expr) => {
        impl Field for $type {
            fn put(&self, name: &str, fields: &mut Fields) {
                let $value = self.clone();
                fields.set(name, $put);
            }

            fn get(name: &str, fields: &Fields) -> Option<Self> {
                match fields.get(name)? {
                    $pattern => $get,
                    _ => None,
                }
            }
        }
    };
}

field!(String, value => Value::Text(value), Value::Text(text) => Some(text.clone()));
field!(Vec<u8>, value => Value::Bytes(value), Value::Bytes(bytes) => Some(bytes.clone()));
field!(u64, value => Value::Number(value), Value::Number(number) => Some(*number));
field!(bool, value => Value::Truth(value), Value::Truth(truth) => Some(*truth));
field!(Digest, value => Value::Hash(value), Value::Hash(hash) => Some(*hash));
field!(Body, value => Value::Body(value), Value::Body(body) => Some(*body));
field!(
    Vec<String>,
    value => Value::List(value.into_iter().map(String::into_bytes).collect()),
    Value::List(items) => items.iter().map(|item| String::from_utf8(item.clone()).ok()).collect()
);
field!(
    Vec<Digest>,
    value => Value::List(value.iter().map(|hash| hash.as_bytes().to_vec()).collect()),
    Value::List(items) => items
        .iter()
        .map(|item| <[u8; Digest::LENGTH]>::try_from(item.as_slice()).ok().map(Digest::new))
        .collect()
);

impl<T: Field> Field for Option<T> {
    fn put(&self, name: &str, fields: &mut Fields) {
        if let Some(value) = self {
            value.put(name, fields);
        }
    }

    fn get(name: &str, fields: &Fields) -> Option<Self> {
        match fields.get(name) {
            Some(_) => T::get(name, fields).map(Some),
            None => Some(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Cursor;

    fn created() -> RunCreated {
        RunCreated {
            name: None,
            template: "default".into(),
            mode: "overlay".into(),
            net: "none".into(),
            policy: Digest::of(&[b"policy"]),
            workspace: None,
            record: "hashes".into(),
            command: Body::named(Digest::of(&[b"command"]), 4, false),
            environment: vec!["PATH".into()],
            limits: Vec::new(),
            purpose: None,
            principal: None,
            tenant: None,
            session: None,
        }
    }

    fn names(event: RunCreated) -> Vec<String> {
        Event::from(event).fields().iter().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn run_created_without_a_caller_has_the_fields_of_0_1_and_is_read() {
        let expect = "command environment limits mode net policy record template";
        assert_eq!(names(created()).join(" "), expect);
        let event = Event::from(created());
        assert_eq!(Event::read("run.created", &event.fields()), Ok(event));
    }

    #[test]
    fn run_created_with_a_caller_is_equal_after_its_bytes() {
        let event = Event::from(RunCreated {
            purpose: Some("run".into()),
            principal: Some("user:1000".into()),
            tenant: Some("local".into()),
            session: Some("0f".repeat(16)),
            ..created()
        });
        let mut bytes = Vec::new();
        event.fields().encode(&mut bytes).unwrap();
        let fields = Fields::decode(&mut Cursor::new(&bytes)).unwrap();
        assert_eq!(Event::read("run.created", &fields), Ok(event));
    }

    #[test]
    fn run_created_with_an_unknown_field_is_read_without_it() {
        let event = Event::from(created());
        let mut fields = event.fields();
        fields.set("added_later", Value::Number(1));
        assert_eq!(Event::read("run.created", &fields), Ok(event));
    }
}
