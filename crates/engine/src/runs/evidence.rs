//! Decides from the ledger whether a lost attempt of a task can have had an effect.
//!
//! The broker sends a request only after its decision is on disk, and a program starts only after its run
//! is on disk. So the events of a box run name everything that the program can have done outside of its
//! box. [`judge`] is pure. It knows the events without effect; every other event is a possible effect.

use anyhow::Context as _;
use belljar_ledger::{
    Entry, Event, LedgerPaths, Query, Reader, ReaderError, RequestDecided, RunCreated,
};
use belljar_model::plan::TierProvider;
use belljar_model::{RunId, display};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::{each, read};
use crate::scope::Scoped;

/// Whether a lost attempt can have had an effect outside of its box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The attempt had no effect. It can be repeated.
    NoEffect,
    /// The attempt may have had an effect. A person decides what happens.
    MaybeEffect {
        /// A description of the first possible effect.
        first: String,
    },
}

impl Evidence {
    fn maybe(first: impl Into<String>) -> Self {
        Self::MaybeEffect { first: first.into() }
    }
}

/// A server of language models that the operator's configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelHost {
    /// The host name or address, as the ledger records it.
    pub host: String,
    pub port: u16,
}

/// Reads the events of a box run and judges them. A run that the ledger does not have was never started.
pub fn of_run(state: &Scoped, run: RunId, models: &[ModelHost]) -> Result<Evidence, EngineError> {
    let reader = match Reader::open(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => return Ok(Evidence::NoEffect),
        opened => opened.context("cannot read the ledger").kind(ErrorKind::Broken)?,
    };
    if let Some(damage) = reader.damage() {
        let text = format!("cannot judge box run {run}, because the ledger is damaged: {damage}");
        return Err(EngineError::message(ErrorKind::Damaged, text));
    }
    let mut evidence = Evidence::NoEffect;
    let query = Query { run: Some(run), ..Query::default() };
    each(&reader, query, &mut |row| {
        if let Some(first) = effect(&read(&reader, row)?, models) {
            evidence = Evidence::maybe(first);
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok(evidence)
}

/// Judges the events of a box run, in their order.
pub fn judge<'a>(events: impl IntoIterator<Item = &'a Entry>, models: &[ModelHost]) -> Evidence {
    let first = events.into_iter().find_map(|entry| effect(entry, models));
    first.map_or(Evidence::NoEffect, Evidence::maybe)
}

/// Describes the effect that an event allows, if it allows one.
fn effect(entry: &Entry, models: &[ModelHost]) -> Option<String> {
    let Ok(event) = Event::read(&entry.kind, &entry.fields) else {
        return Some(format!("an event that this version of Belljar cannot judge: {}", entry.kind));
    };
    // These events describe the box, or something that was recorded with a request.
    let is_harmless = matches!(
        event,
        Event::RunLayers(_)
            | Event::RunWeakened(_)
            | Event::RunExec(_)
            | Event::BoxExec(_)
            | Event::RunLimit(_)
            | Event::RunEnded(_)
            | Event::RunFailed(_)
            | Event::WorkspaceChanged(_)
            | Event::WorkspaceApplied(_)
            | Event::WorkspaceDiscarded(_)
            | Event::PolicyLoaded(_)
            | Event::DnsDecided(_)
            | Event::RequestFinished(_)
            | Event::SecretUsed(_)
            | Event::SecretMasked(_)
            | Event::AlarmRaised(_)
            | Event::BudgetSpent(_)
            | Event::ModelCalled(_)
            | Event::ApprovalAsked(_)
            | Event::ApprovalGiven(_)
            | Event::ApprovalRefused(_)
            | Event::NetworkChanged(_)
            | Event::AttentionSettled(_)
    );
    if let Event::RunCreated(created) = &event {
        of_created(created)
    } else if let Event::RequestDecided(request) = &event {
        of_request(request, models)
    } else if is_harmless {
        None
    } else {
        Some(format!("the event {}", event.kind()))
    }
}

/// Describes how the files of the host can have been changed.
fn of_created(created: &RunCreated) -> Option<String> {
    if let Some([path, ..]) = created.writable.as_deref() {
        return Some(line(&format!("the box could write to files of the host at {path}")));
    }
    (created.mode == "direct").then(|| "the box had a workspace in the mode `direct`".to_owned())
}

/// Describes the effect of a request, unless the request was denied or only reads.
fn of_request(request: &RequestDecided, models: &[ModelHost]) -> Option<String> {
    let RequestDecided { method, scheme, host, port, path, verdict, upgrade, .. } = request;
    if verdict == "deny" {
        return None;
    }
    let is_http = matches!(scheme.as_str(), "http" | "https") && verdict == "allow";
    let reads = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS") && upgrade.is_none();
    let is_model = method == "POST" && is_completion(host, *port, path, models);
    if is_http && (reads || is_model) {
        return None;
    }
    let upgrade = upgrade.as_deref().map(|name| format!(" as {name}")).unwrap_or_default();
    let port = match (scheme.as_str(), port) {
        ("https", 443) | ("http", 80) => String::new(),
        (_, port) => format!(":{port}"),
    };
    Some(line(&format!("{method} {host}{port}{path}{upgrade}")))
}

/// The paths of completions at the known providers of language models.
const COMPLETIONS: [(TierProvider, &[&str]); 2] = [
    (TierProvider::Anthropic, &["/v1/messages", "/v1/messages/count_tokens"]),
    (TierProvider::OpenAiChat, &["/v1/chat/completions", "/v1/responses"]),
];

/// The methods of Gemini that only compute, at the end of a path.
const GEMINI: [&str; 3] = [":generateContent", ":streamGenerateContent", ":countTokens"];

/// Returns whether a POST request only asks a language model for a completion.
fn is_completion(host: &str, port: u64, path: &str, models: &[ModelHost]) -> bool {
    let is_own = models.iter().any(|model| model.host == host && u64::from(model.port) == port);
    let is_known = |provider: TierProvider| provider.default_host() == host && port == 443;
    let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    if is_own && ends(&["/v1/messages", "/chat/completions", "/responses"]) {
        return true; // the path of the operator's own server can have any prefix
    }
    let mut paths = COMPLETIONS.iter().filter(|(provider, _)| is_known(*provider));
    match host {
        "generativelanguage.googleapis.com" if port == 443 => {
            path.contains("/models/") && GEMINI.iter().any(|end| path.ends_with(end))
        }
        _ => paths.any(|(_, paths)| paths.contains(&path)),
    }
}

/// Returns a text without control characters, in one line.
fn line(text: &str) -> String {
    display::safe_line(text).to_string()
}

#[cfg(test)]
mod tests {
    use belljar_ledger::{
        Actor, AlarmRaised, Body, Digest, DnsDecided, Fields, Moment, RequestFinished, RunExec,
        SecretUsed, TrashEmptied, WorkspaceApplying,
    };

    use super::*;

    fn entry(event: impl Into<Event>) -> Entry {
        let event = event.into();
        of_kind(event.kind(), event.fields())
    }

    fn of_kind(kind: &str, fields: Fields) -> Entry {
        Entry {
            kind: kind.to_owned(),
            run: Some(RunId::new(1, 1)),
            sequence: 1,
            previous: Some(Digest::of(&[])),
            actor: Actor::Broker,
            cause: None,
            moment: Moment { time: 0, uptime: 0, boot: [0; 16] },
            fields,
        }
    }

    fn created(mode: &str, writable: &[&str]) -> RunCreated {
        let writable: Vec<String> = writable.iter().map(ToString::to_string).collect();
        RunCreated {
            name: None,
            template: "default".into(),
            mode: mode.into(),
            net: "rules".into(),
            policy: Digest::of(&[]),
            workspace: None,
            record: "hashes".into(),
            command: Body::hash_of(b"true").unwrap(),
            environment: Vec::new(),
            limits: Vec::new(),
            purpose: Some("task".into()),
            principal: None,
            tenant: None,
            session: None,
            writable: (!writable.is_empty()).then_some(writable),
        }
    }

    fn request(method: &str, scheme: &str, host: &str, path: &str) -> RequestDecided {
        RequestDecided {
            method: method.into(),
            scheme: scheme.into(),
            host: host.into(),
            port: if scheme == "http" { 80 } else { 443 },
            path: path.into(),
            verdict: "allow".into(),
            rule: None,
            reason: String::new(),
            secrets: Vec::new(),
            body: None,
            upgrade: None,
        }
    }

    fn first(entry: Entry) -> Option<String> {
        let models = [ModelHost { host: "127.0.0.1".into(), port: 80 }];
        match judge(&[entry], &models) {
            Evidence::NoEffect => None,
            Evidence::MaybeEffect { first } => Some(first),
        }
    }

    #[test]
    fn requests_that_read_and_completions_have_no_effect() {
        let anthropic = "api.anthropic.com";
        let google = "generativelanguage.googleapis.com";
        let harmless = [
            request("GET", "https", "example.com", "/x"),
            request("HEAD", "http", "example.com", "/x"),
            request("OPTIONS", "https", "example.com", "/x"),
            request("POST", "https", anthropic, "/v1/messages"),
            request("POST", "https", "api.openai.com", "/v1/chat/completions"),
            request("POST", "https", "api.openai.com", "/v1/responses"),
            request("POST", "https", google, "/v1beta/models/gemini:generateContent"),
            request("POST", "http", "127.0.0.1", "/v1/chat/completions"),
            RequestDecided { verdict: "deny".into(), ..request("POST", "https", "a.example", "/") },
        ];
        for harmless in harmless {
            assert_eq!(first(entry(harmless.clone())), None, "{harmless:?}");
        }
    }

    #[test]
    fn h11_every_other_request_may_have_had_an_effect() {
        let websocket = Some("websocket".to_owned());
        let harmful = [
            (request("POST", "https", "api.example.com", "/v1/x"), "POST api.example.com/v1/x"),
            (request("PUT", "https", "a.example", "/"), "PUT a.example/"),
            (request("PATCH", "https", "a.example", "/"), "PATCH a.example/"),
            (request("DELETE", "https", "a.example", "/"), "DELETE a.example/"),
            (request("PROPFIND", "https", "a.example", "/"), "PROPFIND a.example/"),
            (request("get", "https", "a.example", "/"), "get a.example/"),
            (request("TCP", "tcp", "db.example", ""), "TCP db.example:443"),
            (request("TLS", "https", "a.example", ""), "TLS a.example"),
            (request("GET", "tcp", "a.example", "/"), "GET a.example:443/"),
            (
                RequestDecided {
                    upgrade: websocket,
                    ..request("GET", "https", "a.example", "/ws")
                },
                "GET a.example/ws as websocket",
            ),
            (
                RequestDecided {
                    verdict: "reserved".into(),
                    ..request("GET", "https", "a.example", "/")
                },
                "GET a.example/",
            ),
            (
                request("POST", "https", "api.anthropic.com", "/v1/files"),
                "POST api.anthropic.com/v1/files",
            ),
            (
                request("POST", "http", "api.anthropic.com", "/v1/messages"),
                "POST api.anthropic.com/v1/messages",
            ),
            (
                request("POST", "https", "api.openai.com", "/v1/files"),
                "POST api.openai.com/v1/files",
            ),
            (
                request("PUT", "https", "api.openai.com", "/v1/responses"),
                "PUT api.openai.com/v1/responses",
            ),
            (request("POST", "https", "127.0.0.1", "/v1/responses"), "POST 127.0.0.1/v1/responses"),
            (request("POST", "http", "127.0.0.1", "/v1/delete"), "POST 127.0.0.1/v1/delete"),
        ];
        for (harmful, expected) in harmful {
            assert_eq!(first(entry(harmful.clone())).as_deref(), Some(expected), "{harmful:?}");
        }
    }

    #[test]
    fn h11_box_that_can_write_to_the_host_may_have_had_an_effect() {
        assert_eq!(first(entry(created("overlay", &[]))), None, "control");
        assert_eq!(first(entry(created("read-only", &[]))), None, "control");
        let text = first(entry(created("overlay", &["/mnt/shared"]))).unwrap();
        assert!(text.contains("/mnt/shared"), "{text}");
        assert!(first(entry(created("direct", &[]))).is_some());
        assert!(first(entry(WorkspaceApplying::new(1))).is_some());
    }

    #[test]
    fn events_about_the_box_have_no_effect_and_unknown_events_may_have_one() {
        let finished = RequestFinished {
            status: Some(200),
            sent_bytes: 1,
            received_bytes: 1,
            micros: 1,
            body: None,
            error: None,
        };
        let dns = DnsDecided {
            name: "a.example".into(),
            query: "A".into(),
            verdict: "allow".into(),
            rule: None,
            reason: String::new(),
        };
        let harmless: [Event; 5] = [
            RunExec { program: b"true".to_vec() }.into(),
            finished.into(),
            dns.into(),
            SecretUsed { name: "s".into(), slot: "header".into(), host: "h".into() }.into(),
            AlarmRaised { alarm: "a".into(), detail: String::new() }.into(),
        ];
        for event in harmless {
            assert_eq!(first(entry(event.clone())), None, "{event:?}");
        }
        assert!(first(of_kind("request.reserved", Fields::default())).is_some());
        assert!(first(of_kind("request.decided", Fields::default())).is_some(), "missing fields");
        assert!(first(entry(TrashEmptied { trash: Vec::new() })).is_some());
    }

    #[test]
    fn judge_names_the_first_effect_and_hides_control_characters() {
        let events = [
            entry(created("overlay", &[])),
            entry(request("GET", "https", "a.example", "/")),
            entry(request("POST", "https", "first.example", "/\u{1b}[2J")),
            entry(request("POST", "https", "second.example", "/")),
        ];
        let Evidence::MaybeEffect { first } = judge(&events, &[]) else { panic!("no effect") };
        assert!(first.starts_with("POST first.example/"), "{first}");
        assert!(!first.contains('\u{1b}'), "{first:?}");
        assert_eq!(judge(&events[..2], &[]), Evidence::NoEffect, "control");
        assert_eq!(judge([], &[]), Evidence::NoEffect, "a run without events never started");
    }
}
