//! The typed events that the ledger records.
//!
//! An effect on the world is recorded before it happens (an *intent*) and again when its result is
//! known (an *outcome*, whose cause is the intent). An intent without an outcome, recorded by a
//! process that no longer runs, needs the attention of the operator: the effect may or may not have
//! happened.

#[macro_use]
mod define;
mod stored;

use self::stored::Field;
use crate::body::Body;
use crate::digest::Digest;
use crate::field::Fields;

/// Why fields do not match a kind of event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("{kind} is not a kind of event that this version of Belljar supports")]
    Kind { kind: String },
    #[error("the field `{field}` of {kind} is missing or invalid")]
    Field { kind: &'static str, field: &'static str },
}

events! {
    /// A run was requested. Its outcome: `run.ended`, `run.failed` or `plan.ended`.
    RunCreated "run.created" {
        name: Option<String>,
        template: String,
        mode: String,
        net: String,
        /// The hash of all settings that decide what the box can do.
        policy: Digest,
        /// The path of the workspace on the host.
        workspace: Option<Vec<u8>>,
        /// The recording mode for bodies: `hashes`, `bodies` or `none`.
        record: String,
        /// The program and its arguments, separated by NUL.
        command: Body,
        /// The names of the variables passed to the program; never their values.
        environment: Vec<String>,
        /// The resource limits of the box, each as `name=value`.
        limits: Vec<String>,
        /// The purpose of the box: `run`, `call`, `box`, `tool-server`, `clone-reader`, `task` or `plan`.
        purpose: Option<String>,
        /// The caller that requested the run, as `user:1000`.
        principal: Option<String>,
        /// The tenant that owns the data.
        tenant: Option<String>,
        /// The session of the client that requested the run.
        session: Option<String>,
        /// The paths in the box at which the program can change files of the host, if any.
        writable: Option<Vec<String>>,
    }
    /// The layers that confine the run.
    RunLayers "run.layers" { in_force: Vec<String>, missing: Vec<String> }
    /// A layer is off because the operator disabled it.
    RunWeakened "run.weakened" { layer: String }
    /// The program starts inside the box.
    RunExec "run.exec" { program: Vec<u8> }
    /// Another program starts inside a running box.
    BoxExec "box.exec" {
        /// The user id of the client's process.
        uid: u64,
        program: Vec<u8>,
        /// The program and its arguments, separated by NUL.
        command: Body,
        /// The names of the variables passed to the program; never their values.
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
    /// The run ended.
    RunEnded "run.ended" {
        reason: String,
        exit: Option<u64>,
        signal: Option<u64>,
        wall_micros: u64,
        cpu_micros: u64,
        peak_memory: Option<u64>,
        stdin_bytes: u64,
        /// The output of the program; absent if the template records no output, or records only
        /// hashes and the program wrote nothing.
        stdout: Option<Body>,
        stderr: Option<Body>,
    }
    /// The box could not be started, or its supervision failed.
    RunFailed "run.failed" { error: String }
    /// The run changed files in its workspace; no change has reached the host yet.
    WorkspaceChanged "workspace.changed" { files: u64, changes: Body }
    /// Changes are about to be applied. An intent: `workspace.applied` is its outcome.
    WorkspaceApplying "workspace.applying" {
        files: u64,
        /// The branch of the user's repository that moves; absent for other changes, like all fields below.
        branch: Option<String>,
        commit: Option<String>,
        /// The digest of the gate that a person approved.
        bound_to: Option<Digest>,
        /// The person who approved, as `user:1000`.
        by: Option<String>,
    }
    /// Changes were applied to the user's directory.
    WorkspaceApplied "workspace.applied" { taken: u64, held_back: u64, error: Option<String> }
    /// The changes of the run were discarded.
    WorkspaceDiscarded "workspace.discarded" {}
    /// A policy file was read for the run.
    PolicyLoaded "policy.loaded" { scope: String, file: Vec<u8>, hash: Digest }
    /// The host was checked and, with `proved`, tested with attacks.
    DoctorChecked "doctor.checked" { proved: bool, passed: u64, failed: u64, report: Body }
    /// A DNS query from inside the box was decided.
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
        /// The path without the query after `?`.
        path: String,
        verdict: String,
        rule: Option<String>,
        reason: String,
        /// The names of the secrets that the request carries.
        secrets: Vec<String>,
        body: Option<Body>,
        /// `websocket`, if the request opens a connection for messages of this protocol.
        upgrade: Option<String>,
    }
    /// An allowed request finished or failed.
    RequestFinished "request.finished" {
        status: Option<u64>,
        sent_bytes: u64,
        received_bytes: u64,
        micros: u64,
        body: Option<Body>,
        error: Option<String>,
    }
    /// A secret was inserted into a request, by name and slot.
    SecretUsed "secret.used" { name: String, slot: String, host: String }
    /// A placeholder in a request body was replaced by the name of its secret.
    SecretMasked "secret.masked" { name: String, host: String }
    /// A secret was stored or replaced. Its value never appears in the ledger.
    SecretSet "secret.set" { name: String, hosts: Vec<String>, slots: Vec<String> }
    /// A server replaced a refresh token, and the new token was sealed and stored.
    SecretRenewed "secret.renewed" { name: String }
    /// A secret was removed.
    SecretRemoved "secret.removed" { name: String }
    /// A version of a skill was saved; it is active unless it waits for approval.
    SkillSaved "skill.saved" {
        name: String,
        /// The hash of the skill's content.
        version: Digest,
        /// `active` or `waits`.
        state: String,
        /// The requested access: `host api.example.com`, `secret github`, `path /data`.
        wants: Vec<String>,
        by: String,
    }
    /// The operator activated a version of a skill with all its requested access.
    SkillApproved "skill.approved" {
        name: String,
        version: Digest,
        wants: Vec<String>,
        /// The person who approved it, as `user:1000`.
        by: Option<String>,
    }
    /// A skill was deleted; with `forgotten`, its approvals too.
    SkillRemoved "skill.removed" { name: String, forgotten: bool }
    /// A box was removed and all its data moved to the trash.
    BoxRemoved "box.removed" {
        name: String,
        /// The name of the box in the trash.
        trash: String,
        /// A description of the changes in the box that were not applied.
        unapplied: Option<String>,
        /// The command that the operator typed, or `gc`.
        by: String,
    }
    /// The changes of a box were discarded; they are in the trash.
    BoxDiscarded "box.discarded" { name: String, trash: String, unapplied: Option<String> }
    /// An item was restored from the trash: a `box`, its `changes` or data of a `reset`.
    BoxRestored "box.restored" { name: String, trash: String, what: String }
    /// A snapshot of a box was taken.
    BoxSnapshot "box.snapshot" { name: String, tag: String }
    /// A box was reset to its initial state or to a snapshot.
    BoxReset "box.reset" {
        name: String,
        tag: Option<String>,
        trash: String,
        unapplied: Option<String>,
    }
    /// A box was created as a copy of another box or of its snapshot.
    BoxForked "box.forked" { name: String, from: String, tag: Option<String> }
    /// A port of the host was forwarded to a port of a box.
    BoxForwarded "box.forwarded" { name: String, host_port: u64, port: u64, uid: u64 }
    /// Items of the trash were deleted permanently.
    TrashEmptied "trash.emptied" { trash: Vec<String> }
    /// An API was added to the operator's configuration.
    ApiAdded "api.added" { name: String, allow: Vec<String>, secrets: Vec<String> }
    /// An action that indicates an attack was detected.
    AlarmRaised "alarm.raised" { alarm: String, detail: String }
    /// Part of a budget was used.
    BudgetSpent "budget.spent" { budget: String, unit: String, amount: u64, total: u64 }
    /// A language model answered; the server reported the model and its tokens.
    ModelCalled "model.called" {
        provider: String,
        model: Option<String>,
        input: u64,
        cache_read: u64,
        cache_write: u64,
        output: u64,
        /// The cost in millionths of a US dollar.
        microusd: u64,
        /// Whether the response ended with its final usage.
        complete: bool,
    }
    /// An approval for one specific action was requested.
    ApprovalAsked "approval.asked" {
        what: String,
        bound_to: Digest,
        /// The task of a run that waits, as `id` or `id[n]`; absent for other approvals, like all
        /// fields below.
        task: Option<String>,
        attempt: Option<u64>,
        /// The time of the automatic refusal, in milliseconds since 1970.
        deadline: Option<u64>,
        at: Option<u64>,
    }
    /// A person allowed or refused the requested action.
    ApprovalGiven "approval.given" {
        by: String,
        verdict: String,
        bound_to: Digest,
        /// The task of a run that waited; absent for other approvals, like all fields below.
        task: Option<String>,
        attempt: Option<u64>,
        /// The commitment to the output of the task.
        output: Option<Digest>,
        output_bytes: Option<u64>,
        labels: Option<Vec<String>>,
        /// The values that other tasks need from the output.
        selections: Option<Vec<u8>>,
        at: Option<u64>,
    }
    /// The action was refused, by `operator`, `timeout`, `gone`, `rules`, `nobody` or `labels`.
    ApprovalRefused "approval.refused" {
        why: String,
        bound_to: Digest,
        /// The person who refused, as `user:1000`, if a person did.
        by: Option<String>,
        /// The reason that the person gave, or the labels that exclude a gate.
        text: Option<String>,
        /// The task of a run that waited; absent for other approvals, like all fields below.
        task: Option<String>,
        attempt: Option<u64>,
        at: Option<u64>,
    }
    /// The operator changed the network rules of a running box; lists all rules.
    NetworkChanged "network.changed" {
        net: String,
        /// The hash of all settings that decide about the network of the box.
        policy: Digest,
        allow: Vec<String>,
        deny: Vec<String>,
        ask: Vec<String>,
    }
    /// The operator reviewed an intent without an outcome and marked it as settled.
    AttentionSettled "attention.settled" {
        reason: String,
        /// The task of a run that needed attention; absent for other intents, like all fields below.
        task: Option<String>,
        attempt: Option<u64>,
        /// The decision: `rerun`, `done` or `failed`.
        how: Option<String>,
        by: Option<String>,
        output: Option<Digest>,
        output_bytes: Option<u64>,
        labels: Option<Vec<String>>,
        selections: Option<Vec<u8>>,
        at: Option<u64>,
    }
    /// The access to the server is about to change: a login, a token, a session or a tenant.
    AccessChanged "access.changed" { act: String, subject: String, tenant: String, by: String, from: String, details: Vec<String> }
    /// The server denied a request of a known sender.
    AccessDenied "access.denied" { method: String, route: String, reason: String, by: String, from: String }
    /// The newest checkpoint of a tenant's ledger, in the ledger `system`.
    TenantWitnessed "tenant.checkpoint" {
        tenant: String,
        /// The number of events.
        size: u64,
        root: Digest,
        /// The signed checkpoint.
        note: String,
    }
    /// A driver of runs started.
    DriverOpened "driver.opened" { epoch: u64, at: u64 }
    /// The plan of a run was accepted.
    PlanAccepted "plan.accepted" { plan: Digest, policy: Digest, at: u64 }
    /// A schedule is enabled from now on, or has new times.
    ScheduleEnabled "schedule.enabled" {
        schedule: String,
        cron: String,
        zone: String,
        /// The person who enabled it; absent if the driver found it in the configuration.
        by: Option<String>,
        at: u64,
    }
    /// A person paused a schedule.
    SchedulePaused "schedule.paused" { schedule: String, by: String, at: u64 }
    /// A slot of a schedule started the run.
    ScheduleFired "schedule.fired" {
        schedule: String,
        /// The instant of the slot in milliseconds since 1970.
        slot: u64,
        at: u64,
    }
    /// A slot of a schedule waits until the run of an earlier slot has ended.
    ScheduleQueued "schedule.queued" { schedule: String, slot: u64, at: u64 }
    /// A slot of a schedule started no run.
    ScheduleSkipped "schedule.skipped" {
        schedule: String,
        slot: u64,
        /// `overlap` or `plan`.
        why: String,
        /// The fault of the plan.
        text: Option<String>,
        at: u64,
    }
    /// A caller cancelled a run, or one of its tasks.
    PlanCancelling "plan.cancelling" { task: Option<String>, by: String, at: u64 }
    /// All tasks of a run are final.
    PlanEnded "plan.ended" {
        /// `succeeded`, `failed`, `over_budget` or `cancelled`.
        outcome: String,
        at: u64,
    }
    /// An attempt of a task is about to start.
    TaskStarted "task.started" {
        /// The task, as `id` or `id[n]`.
        task: String,
        attempt: u64,
        /// The run of the box.
        box_run: Option<String>,
        /// The number of the driver.
        epoch: u64,
        /// The number of the model tier, from 0.
        tier: u64,
        /// The reserved part of the budget, each as `unit=amount`.
        lease: Vec<String>,
        /// The digest of the outputs that the task reads.
        inputs: Digest,
        /// The time in milliseconds since 1970; it never goes back in a run.
        at: u64,
    }
    /// A label removed a grant from the box of an attempt that is about to start.
    GrantRemoved "grant.removed" {
        task: String,
        attempt: u64,
        /// The grant, as `secret NAME` or `rule ID`.
        grant: String,
        label: String,
        /// The sources of the label, for example `input.issue`.
        from: Vec<String>,
        at: u64,
    }
    /// An attempt of a task ended.
    TaskEnded "task.ended" {
        task: String,
        attempt: u64,
        /// `done`, `failed` or `lost`.
        result: String,
        reason: Option<String>,
        text: Option<String>,
        /// The commitment to the output.
        output: Option<Digest>,
        output_bytes: Option<u64>,
        labels: Option<Vec<String>>,
        /// The values that other tasks need from the output.
        selections: Option<Vec<u8>>,
        /// The used part of the budget, each as `unit=amount`; if absent, all of the lease is used.
        usage: Option<Vec<String>>,
        at: u64,
    }
    /// The checks of an output ended.
    TaskJudged "task.judged" {
        task: String,
        attempt: u64,
        /// `passed` or `rejected`.
        verdict: String,
        /// The number of the check that rejected the output, from 0.
        check: Option<u64>,
        text: Option<String>,
        usage: Option<Vec<String>>,
        /// The runs of the boxes of its checks; absent without a box, and in older events.
        box_runs: Option<Vec<String>>,
        /// The results of its checks, each as `check kind outcome`, and for a judge the model that answered.
        checks: Option<Vec<String>>,
        at: u64,
    }
    /// A failed attempt will be repeated.
    TaskRetrying "task.retrying" {
        task: String,
        attempt: u64,
        tier: u64,
        /// The time of the next attempt, in milliseconds since 1970.
        due: u64,
        jitter: u64,
        at: u64,
    }
    /// An attempt is lost and may have had an effect. A person decides.
    TaskLost "task.lost" { task: String, attempt: u64, evidence: String, at: u64 }
    /// A task ended without a result of its own.
    TaskStopped "task.stopped" {
        task: String,
        /// `skipped`, `stopped`, `failed` or `cancelled`.
        state: String,
        reason: String,
        usage: Option<Vec<String>>,
        /// The owner of the budget that is used up, for example `tenant local`.
        budget: Option<String>,
        /// The unit of the budget that is used up.
        unit: Option<String>,
        /// The limit of the budget that is used up.
        cap: Option<u64>,
        /// When the budget is renewed, in milliseconds since 1970.
        renews: Option<u64>,
        /// The boxes of the checks of a cancelled attempt.
        box_runs: Option<Vec<String>>,
        at: u64,
    }
    /// More of the budget was reserved for a running attempt.
    BudgetLeased "budget.leased" { task: String, attempt: u64, lease: Vec<String>, at: u64 }
    /// The ledger was created.
    LedgerCreated "ledger.created" { version: String, reason: Option<String> }
    /// Bodies were dropped on purpose.
    LedgerRedacted "ledger.redacted" { bodies: Vec<Digest>, reason: String }
    /// Bodies were dropped because only events before an index and a time name them.
    LedgerPruned "ledger.pruned" { before_index: u64, before_time: u64 }
    /// A fault of the ledger was repaired, or the ledger continued after a loss.
    LedgerRepaired "ledger.repaired" { what: String, offset: u64, bytes: u64, reason: Option<String> }
    /// A checkpoint was exported.
    CheckpointMade "ledger.checkpoint" { size: u64, root: Digest }
    /// The signing key was replaced.
    KeyRotated "key.rotated" { old: String, new: String, endorsement: Vec<u8> }
    /// A span was imported from another system's trace.
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

impl ApprovalAsked {
    /// The question of a box or of a skill, which belongs to no task.
    pub const fn new(what: String, bound_to: Digest) -> Self {
        Self { what, bound_to, task: None, attempt: None, deadline: None, at: None }
    }
}

impl ApprovalGiven {
    /// The answer to the question of a box or of a skill, which belongs to no task.
    pub const fn new(by: String, verdict: String, bound_to: Digest) -> Self {
        Self {
            by,
            verdict,
            bound_to,
            task: None,
            attempt: None,
            output: None,
            output_bytes: None,
            labels: None,
            selections: None,
            at: None,
        }
    }
}

impl ApprovalRefused {
    /// The refusal of the question of a box or of a skill, which belongs to no task.
    pub const fn new(why: String, bound_to: Digest, by: Option<String>) -> Self {
        Self { why, bound_to, by, text: None, task: None, attempt: None, at: None }
    }
}

impl WorkspaceApplying {
    /// The intent to apply changes to the files of the user.
    pub const fn new(files: u64) -> Self {
        Self { files, branch: None, commit: None, bound_to: None, by: None }
    }
}

impl AttentionSettled {
    /// The settlement of an intent that belongs to no task.
    pub const fn new(reason: String) -> Self {
        Self {
            reason,
            task: None,
            attempt: None,
            how: None,
            by: None,
            output: None,
            output_bytes: None,
            labels: None,
            selections: None,
            at: None,
        }
    }
}

impl Event {
    /// Returns whether this is the first event of its run.
    pub const fn begins_run(&self) -> bool {
        matches!(self, Self::RunCreated(_))
    }
}

/// Returns whether an event of this kind and verdict is an intent that needs an outcome.
pub fn opens(kind: &str, verdict: Option<&str>) -> bool {
    match kind {
        "run.created" | "workspace.applying" => true,
        "request.decided" => verdict == Some("allow"),
        _ => false,
    }
}

/// Returns whether an event of kind `outcome` is an outcome of an event of kind `intent`.
pub fn closes(outcome: &str, intent: &str) -> bool {
    match outcome {
        "run.ended" | "run.failed" | "plan.ended" => intent == "run.created",
        "workspace.applied" => intent == "workspace.applying",
        "request.finished" => intent == "request.decided",
        "attention.settled" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Cursor;
    use crate::field::Value;

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
            writable: None,
        }
    }

    fn names(event: RunCreated) -> Vec<String> {
        Event::from(event).fields().iter().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn run_created_without_a_caller_has_the_fields_of_version_0_1() {
        let expect = "command environment limits mode net policy record template";
        assert_eq!(names(created()).join(" "), expect);
        let event = Event::from(created());
        assert_eq!(Event::read("run.created", &event.fields()), Ok(event));
    }

    #[test]
    fn run_created_with_a_caller_survives_encoding_and_decoding() {
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
    fn run_created_is_read_without_its_unknown_fields() {
        let event = Event::from(created());
        let mut fields = event.fields();
        fields.set("added_later", Value::Number(1));
        assert_eq!(Event::read("run.created", &fields), Ok(event));
    }
}
