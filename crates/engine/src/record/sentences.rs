//! An event in words, on one line.
//!
//! Pure. Whatever a box, a server or a file name could have chosen comes out in a form that only
//! draws, and so short that one event cannot push the others off the screen.

use belljar_ledger::{
    Body, Digest, Entry, Event, Fields, RequestDecided, RequestFinished, RunCreated, RunEnded,
    RunLayers, Value, WorkspaceApplied,
};
use belljar_model::display;

use crate::moment;

/// The essence of an event. Its kind is said elsewhere on the line.
pub fn words(entry: &Entry) -> String {
    match Event::read(&entry.kind, &entry.fields) {
        Ok(event) => known(&event),
        // A newer version wrote it, or somebody who is not Belljar.
        Err(_) => unknown(&entry.fields),
    }
}

/// A value whole, in one safe line.
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

/// A number of bytes for people.
pub fn size(bytes: u64) -> String {
    let mut told = format!("{bytes} B");
    for (unit, shift) in
        [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50), ("EiB", 60)]
    {
        if bytes >> shift == 0 {
            break;
        }
        let tenths = (u128::from(bytes) * 10) >> shift;
        told = format!("{}.{} {unit}", tenths / 10, tenths % 10);
    }
    told
}

/// The first digits of a hash: enough for a person, and for `get`.
pub fn brief(hash: &Digest) -> String {
    hash.to_string().chars().take(12).collect()
}

fn known(event: &Event) -> String {
    match event {
        Event::RunCreated(run) => created(run),
        Event::RunLayers(layers) => in_force(layers),
        Event::RunWeakened(weakened) => format!("without {}", short(&weakened.layer)),
        Event::RunExec(exec) => short(&exec.program),
        Event::BoxExec(exec) => format!("{} for user {}", short(&exec.program), exec.uid),
        Event::RunLimit(limit) => format!("over the limit of {}", short(&limit.limit)),
        Event::RunEnded(run) => ended(run),
        Event::RunFailed(failed) => short(&failed.error),
        Event::WorkspaceChanged(changed) => format!("{} changed", files(changed.files)),
        Event::WorkspaceApplying(applying) => format!("{} to take over", files(applying.files)),
        Event::WorkspaceApplied(done) => applied(done),
        Event::WorkspaceDiscarded(_) => "changes thrown away".to_owned(),
        Event::PolicyLoaded(policy) => {
            format!("{} {} ({})", short(&policy.scope), short(&policy.file), brief(&policy.hash))
        }
        Event::DoctorChecked(doctor) => {
            let what = if doctor.proved { "proved" } else { "examined" };
            format!("{what}: {} good, {} not", doctor.passed, doctor.failed)
        }
        Event::DnsDecided(dns) => {
            let why = why(&dns.reason, dns.rule.as_deref());
            format!("{} {} {}{why}", short(&dns.verdict), short(&dns.query), short(&dns.name))
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
        Event::SecretSet(secret) => format!("{} for {}", short(&secret.name), list(&secret.hosts)),
        Event::SecretRenewed(secret) => short(&secret.name),
        Event::SecretRemoved(secret) => short(&secret.name),
        Event::SkillSaved(skill) => {
            let (name, state, by) = (short(&skill.name), short(&skill.state), short(&skill.by));
            format!("{name} {} {state}, by {by}{}", brief(&skill.version), wants(&skill.wants))
        }
        Event::SkillApproved(skill) => {
            let name = short(&skill.name);
            format!("{name} {}{}", brief(&skill.version), wants(&skill.wants))
        }
        Event::SkillRemoved(skill) => match skill.forgotten {
            true => format!("{} with its approvals", short(&skill.name)),
            false => short(&skill.name),
        },
        Event::BoxRemoved(it) => lost(&it.name, "removed", it.unapplied.as_deref()),
        Event::BoxDiscarded(it) => lost(&it.name, "discarded", it.unapplied.as_deref()),
        Event::BoxRestored(it) => format!("{} ({})", short(&it.name), short(&it.what)),
        Event::BoxSnapshot(it) => format!("{}@{}", short(&it.name), short(&it.tag)),
        Event::BoxReset(it) => {
            let to =
                it.tag.as_deref().map_or_else(String::new, |tag| format!(" to {}", short(tag)));
            lost(&it.name, &format!("reset{to}"), it.unapplied.as_deref())
        }
        Event::BoxForked(it) => {
            let tag = it.tag.as_deref().map_or_else(String::new, |tag| format!("@{}", short(tag)));
            format!("{} from {}{tag}", short(&it.name), short(&it.from))
        }
        Event::TrashEmptied(it) => list(&it.trash),
        Event::ApiAdded(api) => format!("{} for {}", short(&api.name), list(&api.allow)),
        Event::AlarmRaised(alarm) => format!("{}: {}", short(&alarm.alarm), short(&alarm.detail)),
        Event::BudgetSpent(budget) => {
            let (name, unit) = (short(&budget.budget), short(&budget.unit));
            format!("{name}: {} {unit}, {} in all", budget.amount, budget.total)
        }
        Event::ApprovalAsked(asked) => short(&asked.what),
        Event::ApprovalGiven(given) => format!("{} by {}", short(&given.verdict), short(&given.by)),
        Event::ApprovalRefused(refused) => match refused.why.as_str() {
            "operator" => match &refused.by {
                Some(by) => format!("the operator said no: {}", short(by)),
                None => "the operator said no".to_owned(),
            },
            "timeout" => "nobody answered in time".to_owned(),
            "gone" => "whoever asked gave up".to_owned(),
            "rules" => "the rules changed".to_owned(),
            "nobody" => "nobody can be asked".to_owned(),
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
                counts.map(|(count, what)| format!("{count} to {what}")).collect();
            let rules = if counts.is_empty() { "no rules".to_owned() } else { counts.join(", ") };
            format!("{}, {rules} ({})", short(&network.net), brief(&network.policy))
        }
        Event::AttentionSettled(settled) => short(&settled.reason),
        Event::LedgerCreated(created) => {
            format!("by version {}{}", short(&created.version), also(created.reason.as_deref()))
        }
        Event::LedgerRedacted(redacted) => match redacted.bodies.len() {
            1 => format!("1 body dropped: {}", short(&redacted.reason)),
            many => format!("{many} bodies dropped: {}", short(&redacted.reason)),
        },
        Event::LedgerPruned(pruned) => {
            let before = moment::readable(pruned.before_time);
            format!("bodies of events before {} dropped ({before})", pruned.before_index)
        }
        Event::LedgerRepaired(repaired) => {
            let (what, offset, bytes) = (short(&repaired.what), repaired.offset, repaired.bytes);
            format!("{what} (byte {offset}, {bytes} bytes){}", also(repaired.reason.as_deref()))
        }
        Event::CheckpointMade(made) => format!("{} events, root {}", made.size, brief(&made.root)),
        Event::KeyRotated(rotated) => format!("now {}", short(&rotated.new)),
        Event::TraceSpan(span) => {
            let micros = span.end.saturating_sub(span.start) / 1000;
            format!("{}, {}, {}", short(&span.name), moment::duration(micros), short(&span.status))
        }
    }
}

fn lost(name: &str, what: &str, unapplied: Option<&str>) -> String {
    let held = unapplied.map_or_else(String::new, |held| format!(", with {}", short(held)));
    format!("{} {what}{held}", short(name))
}

fn wants(wants: &[String]) -> String {
    if wants.is_empty() { String::new() } else { format!(", wants {}", list(wants)) }
}

fn created(run: &RunCreated) -> String {
    let name = run.name.as_ref().map_or_else(String::new, |name| format!("{}, ", short(name)));
    let place = match &run.workspace {
        Some(path) => format!("in {}", short(path)),
        None => "without a workspace".to_owned(),
    };
    let (template, mode, net) = (short(&run.template), short(&run.mode), short(&run.net));
    format!("{name}template {template}, {mode}, network {net}, {place}")
}

fn in_force(layers: &RunLayers) -> String {
    let count = layers.in_force.len();
    match layers.missing.as_slice() {
        [] => format!("{count} layers in force"),
        missing => format!("{count} layers in force, not {}", list(missing)),
    }
}

fn ended(run: &RunEnded) -> String {
    let reason = short(&run.reason);
    let how = match (run.exit, run.signal) {
        (Some(code), _) => format!("{reason} with {code}"),
        (None, Some(signal)) => format!("{reason} by signal {signal}"),
        (None, None) => reason,
    };
    let wrote = |name: &str, body: &Option<Body>| match body {
        Some(body) => format!(", {name} {}", size(body.size())),
        None => String::new(),
    };
    let (out, err) = (wrote("stdout", &run.stdout), wrote("stderr", &run.stderr));
    format!("{how} after {}{out}{err}", moment::duration(run.wall_micros))
}

fn applied(done: &WorkspaceApplied) -> String {
    let WorkspaceApplied { taken, held_back, error } = done;
    format!("{taken} taken over, {held_back} held back{}", also(error.as_deref()))
}

fn decided(request: &RequestDecided) -> String {
    let secrets = match request.secrets.as_slice() {
        [] => String::new(),
        secrets => format!(", with secret {}", list(secrets)),
    };
    let (verdict, method, scheme) =
        (short(&request.verdict), short(&request.method), short(&request.scheme));
    let (host, port, path) = (short(&request.host), request.port, short(&request.path));
    let why = why(&request.reason, request.rule.as_deref());
    format!("{verdict} {method} {scheme}://{host}:{port}{path}{secrets}{why}")
}

fn finished(request: &RequestFinished) -> String {
    let how = match (&request.error, request.status) {
        (Some(error), _) => short(error),
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "no answer".to_owned(),
    };
    let (sent, received) = (size(request.sent_bytes), size(request.received_bytes));
    format!("{how}, sent {sent}, got {received}, {}", moment::duration(request.micros))
}

fn also(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!("; {}", short(text)))
}

fn unknown(fields: &Fields) -> String {
    let told: Vec<String> =
        fields.iter().map(|(name, field)| format!("{name}={}", cut(value(field)))).collect();
    told.join(" ")
}

fn why(reason: &str, rule: Option<&str>) -> String {
    let rule = rule.map_or_else(String::new, |rule| format!(", rule {}", short(rule)));
    if reason.is_empty() { rule } else { format!(" ({}{rule})", short(reason)) }
}

/// The first of many, safe.
pub fn list(items: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut told: Vec<String> = items.iter().take(SHOWN).map(short).collect();
    if items.len() > SHOWN {
        told.push(format!("{} more", items.len() - SHOWN));
    }
    told.join(", ")
}

fn files(number: u64) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{number} files") }
}

/// So much of one field is enough on a line.
const SHORT: usize = 160;

/// The beginning of a text, safe.
pub fn short(text: impl AsRef<[u8]>) -> String {
    let bytes = text.as_ref();
    // Cut first: an escape that was cut in two would be no escape any more.
    let Some(start) = bytes.get(..SHORT).filter(|start| start.len() < bytes.len()) else {
        return display::safe(bytes);
    };
    let half = start.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    let whole = start.get(..start.len() - half).unwrap_or_default();
    format!("{}\u{2026}", display::safe(whole))
}

/// The beginning of a text that is safe already.
fn cut(text: String) -> String {
    match text.char_indices().nth(SHORT) {
        Some((place, _)) => format!("{}\u{2026}", text.get(..place).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests;
