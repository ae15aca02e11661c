//! The page of one box: its screen or log, facts, rules, requests and snapshots.

use askama::Template;
use serde::Deserialize;

use super::boxes::{BoxItem, StateMark};
use super::html;
use crate::frame::Frame;
use crate::text::{Moment, bytes, duration, number, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, assets, path_with, read, read_if_permitted};

/// A box, as `GET /v1/boxes/{box}` returns it.
#[derive(Debug, Deserialize)]
struct Detail {
    #[serde(flatten)]
    item: BoxItem,
    terminal: bool,
    live: Option<Live>,
    rules: Option<Rules>,
    snapshots: Vec<Snapshot>,
}

#[derive(Debug, Deserialize)]
struct Live {
    since: String,
    last_output: Option<String>,
    questions: usize,
    network_down: bool,
    health: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct Rules {
    mode: Text,
    net: String,
    allow: Vec<Text>,
    deny: Vec<Text>,
    ask: Vec<Text>,
    secrets: Vec<Text>,
    memory: u64,
    cpus: Text,
    pids: u64,
    disk: u64,
    timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Snapshot {
    tag: Text,
    created: String,
}

/// A request of the box, as `GET /v1/requests` returns it.
#[derive(Debug, Deserialize)]
struct Request {
    time: String,
    method: Text,
    host: Text,
    port: u64,
    path: Text,
    verdict: String,
    reason: Text,
}

/// A name and a value.
struct Fact {
    name: &'static str,
    value: Text,
    title: String,
}

struct RequestRow {
    time: Moment,
    is_allowed: bool,
    method: Text,
    target: Text,
    reason: Text,
}

struct SnapshotRow {
    tag: Text,
    created: Moment,
}

/// A rule of the network with what it does.
struct RuleRow {
    rule: Text,
    effect: &'static str,
    class: &'static str,
}

/// What a person can do with a box in its state.
struct Acts {
    can_start: bool,
    can_stop: bool,
    can_pause: bool,
    can_resume: bool,
    is_pending: bool,
}

impl Acts {
    fn of(item: &BoxItem) -> Self {
        let is_any = |states: &[&str]| states.contains(&&*item.state);
        Self {
            can_start: is_any(&["stopped", "new", "interrupted"]),
            can_stop: is_any(&["running", "paused"]),
            can_pause: is_any(&["running"]),
            can_resume: is_any(&["paused"]),
            is_pending: item.run.as_ref().is_some_and(|run| run.pending),
        }
    }
}

#[derive(Template)]
#[template(path = "box.html")]
struct BoxPage {
    frame: Frame,
    /// The path of the box below `/boxes/` and `/v1/boxes/`.
    key: String,
    name: Text,
    state: StateMark,
    acts: Acts,
    has_screen: bool,
    nonce: String,
    log: Option<Text>,
    questions: usize,
    is_cut_off: bool,
    facts: Vec<Fact>,
    limits: Vec<Fact>,
    net: Option<String>,
    rules: Vec<RuleRow>,
    requests: Vec<RequestRow>,
    snapshots: Vec<SnapshotRow>,
    version: &'static str,
}

/// The number of lines and the number of bytes of a log that a page shows.
const LOG_LINES: &str = "400";
const MAX_LOG: usize = 48 * 1024;

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, request.param("box")).await?;
    let key = segment(request.param("box"));
    let detail: Detail = read(api, &format!("/v1/boxes/{key}")).await?;
    let acts = Acts::of(&detail.item);
    let has_screen = detail.terminal && acts.can_stop && frame.me.may_use();
    let log = if has_screen { None } else { log(api, &key).await? };
    let path = path_with("/v1/requests", &[("limit", "8"), ("box", request.param("box"))]);
    let requests: Option<List<Request>> = read_if_permitted(api, &path).await?;
    let requests = requests.map(|list| list.items).unwrap_or_default().into_iter();
    let snapshots = detail.snapshots.iter().map(|it| SnapshotRow {
        tag: it.tag.clone(),
        created: Moment::of(&it.created, request.now),
    });
    html(&BoxPage {
        frame,
        key,
        name: Text::from(request.param("box")),
        state: StateMark::of_box(&detail.item.state, detail.item.problem.as_ref()),
        acts,
        has_screen,
        nonce: request.nonce.clone(),
        log,
        questions: detail.live.as_ref().map_or(0, |live| live.questions),
        is_cut_off: detail.live.as_ref().is_some_and(|live| live.network_down),
        facts: facts(&detail, request.now),
        limits: detail.rules.as_ref().map(limits).unwrap_or_default(),
        net: detail.rules.as_ref().map(|rules| rules.net.clone()),
        rules: detail.rules.as_ref().map(rule_rows).unwrap_or_default(),
        requests: requests.map(|it| RequestRow::of(it, request.now)).collect(),
        snapshots: snapshots.collect(),
        version: assets::version(),
    })
}

/// Returns the newest part of the log. `None` if the person may not read it.
async fn log(api: &impl Api, key: &str) -> Result<Option<Text>, Refusal> {
    let path = path_with(&format!("/v1/boxes/{key}/log"), &[("tail", LOG_LINES)]);
    let text: Option<String> = read_if_permitted(api, &path).await?;
    Ok(text.map(|text| Text::content(newest(&text, MAX_LOG))))
}

/// Returns the last bytes of a text, from the start of a character.
fn newest(text: &str, max: usize) -> &str {
    let start = text.len().saturating_sub(max);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at));
    start.and_then(|start| text.get(start..)).unwrap_or_default()
}

impl RequestRow {
    fn of(request: Request, now: u64) -> Self {
        let port = match request.port {
            80 | 443 => String::new(),
            port => format!(":{port}"),
        };
        Self {
            time: Moment::of(&request.time, now),
            is_allowed: request.verdict == "allow",
            method: request.method,
            target: Text::from(format!("{}{port}{}", request.host, request.path)),
            reason: request.reason,
        }
    }
}

fn fact(name: &'static str, value: impl Into<Text>) -> Fact {
    Fact { name, value: value.into(), title: String::new() }
}

fn moment(name: &'static str, time: &str, now: u64) -> Fact {
    let moment = Moment::of(time, now);
    Fact { name, value: Text::from(moment.distance), title: moment.exact }
}

fn facts(detail: &Detail, now: u64) -> Vec<Fact> {
    let item = &detail.item;
    let mut facts = Vec::new();
    facts.extend(item.maker.as_ref().map(|maker| fact("Made by", principal(maker))));
    facts.extend(item.agent.clone().map(|agent| fact("Agent", agent)));
    facts.push(match &item.workspace {
        Some(ground) => fact("Workspace", format!("{} {}", ground.kind, ground.path)),
        None => fact("Workspace", "none"),
    });
    facts.extend(item.template.clone().map(|template| fact("Template", template)));
    if let Some(live) = &detail.live {
        facts.push(moment("Runs since", &live.since, now));
        facts.extend(live.last_output.as_ref().map(|time| moment("Last output", time, now)));
        facts.extend(live.health.clone().map(|health| fact("Health", health)));
    }
    if let Some(run) = &item.run {
        let words: Vec<&str> = run.program.iter().map(Text::as_str).collect();
        facts.push(fact("Program", words.join(" ")));
        facts.extend(run.end.as_ref().map(|end| fact("Ended with", end.text())));
    }
    facts.extend(item.problem.clone().map(|problem| fact("Problem", problem)));
    facts
}

fn limits(rules: &Rules) -> Vec<Fact> {
    vec![
        fact("Memory", bytes(rules.memory)),
        fact("Processors", rules.cpus.clone()),
        fact("Processes", number(rules.pids)),
        fact("Disk", bytes(rules.disk)),
        fact("Time", rules.timeout.map_or_else(|| "no limit".to_owned(), duration)),
        fact("Files", rules.mode.clone()),
    ]
}

fn rule_rows(rules: &Rules) -> Vec<RuleRow> {
    let all = [
        (&rules.deny, "deny", "bad"),
        (&rules.ask, "ask first", "warn"),
        (&rules.allow, "allow", "ok"),
        (&rules.secrets, "secret", ""),
    ];
    let rows = all.into_iter().flat_map(|(list, effect, class)| {
        list.iter().map(move |rule| RuleRow { rule: rule.clone(), effect, class })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_part_starts_at_a_character() {
        assert_eq!(newest("abc", 9), "abc");
        assert_eq!(newest("aéb", 2), "b");
        assert_eq!(newest("aéb", 3), "éb");
    }
}
