//! Describes ledger events in English, each on one line.
//!
//! The module does no I/O. Texts that a box, a server or a file name could have chosen have their
//! control characters escaped, and long texts are cut so that every description fits on a line.

use belljar_ledger::{
    Body, Digest, Entry, Event, Fields, RequestDecided, RequestFinished, RunCreated, RunEnded,
    RunLayers, Value, WorkspaceApplied,
};
use belljar_model::display;
use belljar_model::net::MicroUsd;

use crate::moment;

/// Describes an event on one line. The caller prints the kind of the event next to the description.
pub fn words(entry: &Entry) -> String {
    match Event::read(&entry.kind, &entry.fields) {
        Ok(event) => known(&event),
        // A newer version of Belljar or another program wrote the event.
        Err(_) => unknown(&entry.fields),
    }
}

/// Returns the complete value of an event field as one line without control characters.
pub fn value(value: &Value) -> String {
    match value {
        Value::Text(text) => display::safe(text),
        Value::Bytes(bytes) => display::safe(bytes),
        Value::Number(number) => number.to_string(),
        Value::Truth(true) => "yes".to_owned(),
        Value::Truth(false) => "no".to_owned(),
        Value::List(items) if items.is_empty() => "none".to_owned(),
        Value::List(items) => items.iter().map(display::safe).collect::<Vec<_>>().join(", "),
        Value::Hash(hash) => hash.to_string(),
        Value::Body(body) => format!("{} ({})", body.hash(), size(body.size())),
    }
}

/// Formats a number of bytes with a unit: `1.5 KiB`.
pub fn size(bytes: u64) -> String {
    let mut text = format!("{bytes} B");
    for (unit, shift) in
        [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50), ("EiB", 60)]
    {
        if bytes >> shift == 0 {
            break;
        }
        let tenths = (u128::from(bytes) * 10) >> shift;
        text = format!("{}.{} {unit}", tenths / 10, tenths % 10);
    }
    text
}

/// Returns the first 12 digits of a hash, which `belljar ledger get` accepts as a prefix.
pub fn brief(hash: &Digest) -> String {
    hash.to_string().chars().take(12).collect()
}

fn known(event: &Event) -> String {
    match event {
        Event::RunCreated(run) => created(run),
        Event::RunLayers(layers) => in_force(layers),
        Event::RunWeakened(weakened) => format!("without {}", short(&weakened.layer)),
        Event::RunExec(exec) => short(&exec.program),
        Event::BoxExec(exec) => format!("{} as user {}", short(&exec.program), exec.uid),
        Event::RunLimit(limit) => format!("limit exceeded: {}", short(&limit.limit)),
        Event::RunEnded(run) => ended(run),
        Event::RunFailed(failed) => short(&failed.error),
        Event::WorkspaceChanged(changed) => format!("{} changed", files(changed.files)),
        Event::WorkspaceApplying(applying) => match &applying.branch {
            Some(branch) => format!("about to move the branch {}", short(branch)),
            None => format!("about to apply {}", files(applying.files)),
        },
        Event::WorkspaceApplied(done) => applied(done),
        Event::WorkspaceDiscarded(_) => "changes discarded".to_owned(),
        Event::PolicyLoaded(policy) => {
            format!("{} {} ({})", short(&policy.scope), short(&policy.file), brief(&policy.hash))
        }
        Event::DoctorChecked(doctor) => {
            let attacks = if doctor.proved { ", attack tests included" } else { "" };
            format!("{} checks passed, {} failed{attacks}", doctor.passed, doctor.failed)
        }
        Event::DnsDecided(dns) => {
            let reason = reason_and_rule(&dns.reason, dns.rule.as_deref());
            format!("{} {} {}{reason}", short(&dns.verdict), short(&dns.query), short(&dns.name))
        }
        Event::RequestDecided(request) => decided(request),
        Event::RequestFinished(request) => finished(request),
        Event::SecretUsed(secret) => {
            format!(
                "{} as {} for {}",
                short(&secret.name),
                short(&secret.slot),
                short(&secret.host)
            )
        }
        Event::SecretMasked(secret) => {
            format!("placeholder of {} in a body to {}", short(&secret.name), short(&secret.host))
        }
        Event::SecretSet(secret) => format!("{} for {}", short(&secret.name), list(&secret.hosts)),
        Event::SecretRenewed(secret) => short(&secret.name),
        Event::SecretRemoved(secret) => short(&secret.name),
        Event::SkillSaved(skill) => {
            let (name, state, by) = (short(&skill.name), short(&skill.state), short(&skill.by));
            format!(
                "{name} {} {state}, by {by}{}",
                brief(&skill.version),
                requirements(&skill.wants)
            )
        }
        Event::SkillApproved(skill) => {
            let name = short(&skill.name);
            format!("{name} {}{}", brief(&skill.version), requirements(&skill.wants))
        }
        Event::SkillRemoved(skill) => match skill.forgotten {
            true => format!("{} with its approvals", short(&skill.name)),
            false => short(&skill.name),
        },
        Event::BoxRemoved(event) => removal(&event.name, "removed", event.unapplied.as_deref()),
        Event::BoxDiscarded(event) => removal(&event.name, "discarded", event.unapplied.as_deref()),
        Event::BoxRestored(event) => format!("{} ({})", short(&event.name), short(&event.what)),
        Event::BoxSnapshot(event) => format!("{}@{}", short(&event.name), short(&event.tag)),
        Event::BoxReset(event) => {
            let to =
                event.tag.as_deref().map_or_else(String::new, |tag| format!(" to {}", short(tag)));
            removal(&event.name, &format!("reset{to}"), event.unapplied.as_deref())
        }
        Event::BoxForked(event) => {
            let tag =
                event.tag.as_deref().map_or_else(String::new, |tag| format!("@{}", short(tag)));
            format!("{} from {}{tag}", short(&event.name), short(&event.from))
        }
        Event::BoxForwarded(event) => {
            let (name, host_port, port) = (short(&event.name), event.host_port, event.port);
            format!("127.0.0.1:{host_port} to port {port} of {name}, by user {}", event.uid)
        }
        Event::TrashEmptied(event) => list(&event.trash),
        Event::ApiAdded(api) => format!("{} for {}", short(&api.name), list(&api.allow)),
        Event::AlarmRaised(alarm) => format!("{}: {}", short(&alarm.alarm), short(&alarm.detail)),
        Event::BudgetSpent(budget) => {
            let (name, unit) = (short(&budget.budget), short(&budget.unit));
            format!("{name}: {} {unit}, {} in total", budget.amount, budget.total)
        }
        Event::ModelCalled(called) => {
            let tokens = [called.input, called.cache_read, called.cache_write, called.output];
            let tokens = tokens.into_iter().fold(0, u64::saturating_add);
            let model = called.model.as_deref().map_or_else(|| "a model".to_owned(), short);
            format!("{model}: {tokens} tokens, {}", MicroUsd(called.microusd))
        }
        Event::ApprovalAsked(asked) => short(&asked.what),
        Event::ApprovalGiven(given) => format!("{} by {}", short(&given.verdict), short(&given.by)),
        Event::ApprovalRefused(refused) => match refused.why.as_str() {
            "operator" => match &refused.by {
                Some(by) => format!("denied by the operator: {}", short(by)),
                None => "denied by the operator".to_owned(),
            },
            "timeout" => "no answer within the time limit".to_owned(),
            "gone" => "the program stopped waiting for the answer".to_owned(),
            "rules" => "the rules changed before the answer".to_owned(),
            "nobody" => "no operator could be asked".to_owned(),
            "labels" => format!("excluded by labels{}", with_note(refused.text.as_deref())),
            other => short(other),
        },
        Event::NetworkChanged(network) => {
            let counts = [
                (network.allow.len(), "allow"),
                (network.deny.len(), "deny"),
                (network.ask.len(), "ask"),
            ];
            let counts = counts.into_iter().filter(|(count, _)| *count > 0);
            let counts: Vec<String> =
                counts.map(|(count, action)| format!("{count} {action}")).collect();
            let rules = match counts.as_slice() {
                [] => "no rules".to_owned(),
                counts => format!("rules: {}", counts.join(", ")),
            };
            format!("{}, {rules} ({})", short(&network.net), brief(&network.policy))
        }
        Event::AttentionSettled(settled) => short(&settled.reason),
        Event::AccessChanged(change) => {
            let (act, subject, by) =
                (short(&change.act), short(&change.subject), short(&change.by));
            format!("{act} {subject} by {by} from {}", short(&change.from))
        }
        Event::AccessDenied(denied) => {
            let (method, route, by) =
                (short(&denied.method), short(&denied.route), short(&denied.by));
            format!(
                "{method} {route} by {by} from {}: {}",
                short(&denied.from),
                short(&denied.reason)
            )
        }
        Event::TenantWitnessed(checkpoint) => {
            let (tenant, root) = (short(&checkpoint.tenant), brief(&checkpoint.root));
            format!("tenant {tenant}: {} events, root {root}", checkpoint.size)
        }
        Event::DriverOpened(driver) => format!("driver number {}", driver.epoch),
        Event::PlanAccepted(plan) => format!("plan {}", brief(&plan.plan)),
        Event::ScheduleEnabled(schedule) => {
            let (cron, zone) = (short(&schedule.cron), short(&schedule.zone));
            format!("{}: {cron} in {zone}", short(&schedule.schedule))
        }
        Event::SchedulePaused(schedule) => {
            format!("{} by {}", short(&schedule.schedule), short(&schedule.by))
        }
        Event::ScheduleFired(schedule) => slot(&schedule.schedule, schedule.slot),
        Event::ScheduleQueued(schedule) => slot(&schedule.schedule, schedule.slot),
        Event::ScheduleSkipped(schedule) => {
            let text = with_note(schedule.text.as_deref());
            let slot = slot(&schedule.schedule, schedule.slot);
            format!("{slot}, because of {}{text}", short(&schedule.why))
        }
        Event::PlanCancelling(cancelling) => {
            let task = cancelling.task.as_deref().unwrap_or("the run");
            format!("{} by {}", short(task), short(&cancelling.by))
        }
        Event::PlanEnded(plan) => short(&plan.outcome),
        Event::TaskStarted(task) => attempt(&task.task, task.attempt, "started"),
        Event::GrantRemoved(removed) => {
            let (task, grant, label) =
                (short(&removed.task), short(&removed.grant), short(&removed.label));
            let attempt = removed.attempt;
            format!(
                "{task}, attempt {attempt}: {grant}, label {label} from {}",
                list(&removed.from)
            )
        }
        Event::TaskEnded(task) => {
            let reason = with_note(task.reason.as_deref());
            format!("{}{reason}", attempt(&task.task, task.attempt, &task.result))
        }
        Event::TaskJudged(task) => {
            let judged = attempt(&task.task, task.attempt, &task.verdict);
            match task.checks.as_deref() {
                None | Some([]) => judged,
                Some(checks) => format!("{judged}, checks: {}", list(checks)),
            }
        }
        Event::TaskRetrying(task) => {
            let wait = moment::duration(task.due.saturating_sub(task.at).saturating_mul(1000));
            format!("{}, next attempt in {wait}", attempt(&task.task, task.attempt, "failed"))
        }
        Event::TaskLost(task) => {
            format!("{}: {}", attempt(&task.task, task.attempt, "lost"), short(&task.evidence))
        }
        Event::TaskStopped(task) => {
            let budget = task.budget.as_ref().map(|it| format!(" of {}", short(it)));
            let (state, reason) = (short(&task.state), short(&task.reason));
            format!("{} {state}: {reason}{}", short(&task.task), budget.unwrap_or_default())
        }
        Event::BudgetLeased(task) => {
            format!("{} for {}, attempt {}", list(&task.lease), short(&task.task), task.attempt)
        }
        Event::LedgerCreated(created) => {
            format!(
                "created by version {}{}",
                short(&created.version),
                with_note(created.reason.as_deref())
            )
        }
        Event::LedgerRedacted(redacted) => match redacted.bodies.len() {
            1 => format!("1 body dropped: {}", short(&redacted.reason)),
            many => format!("{many} bodies dropped: {}", short(&redacted.reason)),
        },
        Event::LedgerPruned(pruned) => {
            let before = moment::readable(pruned.before_time);
            format!("bodies of all events before event {} dropped ({before})", pruned.before_index)
        }
        Event::LedgerRepaired(repaired) => {
            let (what, offset, bytes) = (short(&repaired.what), repaired.offset, repaired.bytes);
            format!(
                "{what} (byte {offset}, {bytes} bytes){}",
                with_note(repaired.reason.as_deref())
            )
        }
        Event::CheckpointMade(made) => format!("{} events, root {}", made.size, brief(&made.root)),
        Event::KeyRotated(rotated) => format!("new key: {}", short(&rotated.new)),
        Event::TraceSpan(span) => {
            let micros = span.end.saturating_sub(span.start) / 1000;
            format!("{}, {}, {}", short(&span.name), moment::duration(micros), short(&span.status))
        }
    }
}

/// Describes the result of an attempt of a task.
fn attempt(task: &str, attempt: u64, result: &str) -> String {
    format!("{}, attempt {attempt}: {}", short(task), short(result))
}

/// Describes a slot of a schedule.
fn slot(schedule: &str, slot: u64) -> String {
    let time = moment::readable_seconds(slot.saturating_mul(1_000_000));
    format!("{}, slot {time}", short(schedule))
}

/// Describes an action on a box that removes its changes, with the changes that were not applied.
fn removal(name: &str, action: &str, unapplied: Option<&str>) -> String {
    let lost = unapplied.map_or_else(String::new, |lost| format!(", unapplied: {}", short(lost)));
    format!("{} {action}{lost}", short(name))
}

fn requirements(wants: &[String]) -> String {
    if wants.is_empty() { String::new() } else { format!(", requires {}", list(wants)) }
}

fn created(run: &RunCreated) -> String {
    let name = run.name.as_ref().map_or_else(String::new, |name| format!("{}, ", short(name)));
    let workspace = match &run.workspace {
        Some(path) => format!("in {}", short(path)),
        None => "without a workspace".to_owned(),
    };
    let (template, mode, net) = (short(&run.template), short(&run.mode), short(&run.net));
    format!("{name}template {template}, {mode}, network {net}, {workspace}")
}

fn in_force(layers: &RunLayers) -> String {
    let count = layers.in_force.len();
    match layers.missing.as_slice() {
        [] => format!("{count} layers in force"),
        missing => format!("{count} layers in force; missing: {}", list(missing)),
    }
}

fn ended(run: &RunEnded) -> String {
    let reason = short(&run.reason);
    let how = match (run.exit, run.signal) {
        (Some(code), _) => format!("{reason} with {code}"),
        (None, Some(signal)) => format!("{reason} (signal {signal})"),
        (None, None) => reason,
    };
    let output = |name: &str, body: &Option<Body>| match body {
        Some(body) => format!(", {name} {}", size(body.size())),
        None => String::new(),
    };
    let (out, err) = (output("stdout", &run.stdout), output("stderr", &run.stderr));
    format!("{how} after {}{out}{err}", moment::duration(run.wall_micros))
}

fn applied(done: &WorkspaceApplied) -> String {
    let WorkspaceApplied { taken, held_back, error } = done;
    format!("{taken} applied, {held_back} held back{}", with_note(error.as_deref()))
}

fn decided(request: &RequestDecided) -> String {
    let secrets = match request.secrets.as_slice() {
        [] => String::new(),
        secrets => format!(", with secret {}", list(secrets)),
    };
    let (verdict, method, scheme) =
        (short(&request.verdict), short(&request.method), short(&request.scheme));
    let (host, port, path) = (short(&request.host), request.port, short(&request.path));
    let reason = reason_and_rule(&request.reason, request.rule.as_deref());
    format!("{verdict} {method} {scheme}://{host}:{port}{path}{secrets}{reason}")
}

fn finished(request: &RequestFinished) -> String {
    let how = match (&request.error, request.status) {
        (Some(error), _) => short(error),
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "no response".to_owned(),
    };
    let (sent, received) = (size(request.sent_bytes), size(request.received_bytes));
    format!("{how}, sent {sent}, received {received}, {}", moment::duration(request.micros))
}

fn with_note(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!("; {}", short(text)))
}

fn unknown(fields: &Fields) -> String {
    let texts: Vec<String> =
        fields.iter().map(|(name, field)| format!("{name}={}", cut(value(field)))).collect();
    texts.join(" ")
}

fn reason_and_rule(reason: &str, rule: Option<&str>) -> String {
    let rule = rule.map_or_else(String::new, |rule| format!(", rule {}", short(rule)));
    if reason.is_empty() { rule } else { format!(" ({}{rule})", short(reason)) }
}

/// Returns the first 8 items, separated by commas, and the number of further items.
pub fn list(items: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut texts: Vec<String> = items.iter().take(SHOWN).map(short).collect();
    if items.len() > SHOWN {
        texts.push(format!("{} more", items.len() - SHOWN));
    }
    texts.join(", ")
}

fn files(number: u64) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{number} files") }
}

/// The maximum length of one field on a line, in bytes.
const SHORT: usize = 160;

/// Returns a text with control characters escaped, cut after 160 bytes.
pub fn short(text: impl AsRef<[u8]>) -> String {
    let bytes = text.as_ref();
    // Cut before escaping, so that no escape sequence is cut in two.
    let Some(start) = bytes.get(..SHORT).filter(|start| start.len() < bytes.len()) else {
        return display::safe(bytes);
    };
    let incomplete = start.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    let whole = start.get(..start.len() - incomplete).unwrap_or_default();
    format!("{}\u{2026}", display::safe(whole))
}

/// Cuts a text whose control characters are already escaped after 160 characters.
fn cut(text: String) -> String {
    match text.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests;
