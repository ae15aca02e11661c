//! The requests that boxes sent to the network: why each one was decided so, and a rule for one.

use askama::Template;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::html;
use super::policy::Policy;
use crate::frame::Frame;
use crate::text::{Moment, bytes, duration, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read, read_if_permitted};

/// A request, as `GET /v1/requests` returns it.
#[derive(Debug, Deserialize)]
struct Item {
    index: u64,
    time: String,
    #[serde(default, rename = "box")]
    box_name: Option<String>,
    #[serde(default)]
    by: Option<String>,
    method: String,
    scheme: String,
    host: String,
    port: u64,
    path: String,
    is_websocket: bool,
    verdict: String,
    rule: Option<Text>,
    reason: Text,
    secrets: Vec<Text>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    status: Option<u64>,
    sent_bytes: u64,
    received_bytes: u64,
    micros: u64,
    error: Option<Text>,
}

/// The keys of the filter that are parameters of the API. Other words are searched in all texts.
const KEYS: [&str; 4] = ["verdict", "host", "box", "method"];

/// A filter as the person wrote it, split into parameters of the API.
struct Filter {
    parameters: Vec<(&'static str, String)>,
}

impl Filter {
    fn parse(text: &str) -> Self {
        let (mut parameters, mut words) = (Vec::new(), Vec::new());
        for word in text.split_whitespace() {
            let term = word.split_once(':').and_then(|(key, value)| {
                let key = KEYS.into_iter().find(|known| *known == key)?;
                (!value.is_empty()).then(|| (key, value.to_owned()))
            });
            match term {
                Some(term) => parameters.push(term),
                None => words.push(word),
            }
        }
        parameters.push(("q", words.join(" ")));
        Self { parameters }
    }

    /// Returns the address of a page of the list in the API.
    fn path(&self, cursor: &str) -> String {
        let given = self.parameters.iter().map(|(name, value)| (*name, value.as_str()));
        let all: Vec<(&str, &str)> =
            [("limit", "50"), ("cursor", cursor)].into_iter().chain(given).collect();
        path_with("/v1/requests", &all)
    }
}

/// A row of the list.
struct Row {
    index: u64,
    path: String,
    time: Moment,
    mark: Mark,
    box_name: Option<Text>,
    box_path: String,
    method: Text,
    host: Text,
    rest: Text,
    rule: Text,
    status: String,
    took: String,
    is_selected: bool,
}

/// How a verdict is shown.
struct Mark {
    word: Text,
    class: &'static str,
    icon: &'static str,
}

impl Mark {
    fn of(verdict: &str) -> Self {
        let (class, icon) = match verdict {
            "allow" => ("ok", "ok"),
            "deny" => ("bad", "no"),
            _ => ("warn", "ask"),
        };
        Self { word: Text::from(verdict), class, icon }
    }
}

impl Row {
    fn of(item: &Item, q: &str, selected: Option<u64>, now: u64) -> Self {
        let index = item.index.to_string();
        let took = item.outcome.as_ref().map(|it| duration(it.micros / 1000));
        let status = item.outcome.as_ref().and_then(|it| it.status);
        let mut rule: Vec<String> = match (&item.rule, &*item.verdict) {
            (Some(rule), "allow") => vec![rule.to_string()],
            (Some(_) | None, _) => vec![item.reason.to_string()],
        };
        rule.extend(item.secrets.iter().map(|name| format!("secret {name}")));
        Self {
            index: item.index,
            path: path_with("/requests", &[("q", q), ("event", &index)]),
            time: Moment::of(&item.time, now),
            mark: Mark::of(&item.verdict),
            box_name: item.box_name.as_deref().map(Text::from),
            box_path: box_path(item),
            method: Text::from(item.method.as_str()),
            host: Text::from(item.host.as_str()),
            rest: Text::from(rest(item)),
            rule: Text::from(rule.join(" · ")),
            status: status.map_or_else(|| "–".to_owned(), |status| status.to_string()),
            took: took.unwrap_or_else(|| "–".to_owned()),
            is_selected: selected == Some(item.index),
        }
    }
}

fn box_path(item: &Item) -> String {
    item.box_name.as_deref().map_or_else(String::new, |name| format!("/boxes/{}", segment(name)))
}

/// Returns what follows the host: the port, unless it is that of the scheme, and the path.
fn rest(item: &Item) -> String {
    let is_usual = matches!((&*item.scheme, item.port), ("https", 443) | ("http", 80));
    let port = if is_usual { String::new() } else { format!(":{}", item.port) };
    format!("{port}{}", item.path)
}

/// One request with everything that is known about it.
struct Detail {
    row: Row,
    scheme: Text,
    by: Text,
    nearest: Option<Text>,
    rule: Option<Text>,
    reason: Text,
    secrets: Vec<Text>,
    outcome: Option<Outcome>,
    sent: String,
    received: String,
    is_denied: bool,
    like_this: String,
    ledger: String,
    /// The body of a request that explains the decision of the current policy.
    question: Option<String>,
}

impl Detail {
    fn of(item: Item, q: &str, now: u64) -> Self {
        let row = Row::of(&item, q, None, now);
        let is_denied = item.verdict == "deny";
        let question = question(&item);
        let (nearest, rule) = if is_denied { (item.rule, None) } else { (None, item.rule) };
        let outcome = item.outcome.as_ref();
        Self {
            scheme: Text::from(item.scheme.as_str()),
            by: principal(item.by.as_deref().unwrap_or("unknown")),
            sent: bytes(outcome.map_or(0, |it| it.sent_bytes)),
            received: bytes(outcome.map_or(0, |it| it.received_bytes)),
            like_this: path_with("/requests", &[("q", &format!("host:{}", item.host))]),
            ledger: format!("/ledger?event={}", item.index),
            row,
            nearest,
            rule,
            reason: item.reason,
            secrets: item.secrets,
            outcome: item.outcome,
            is_denied,
            question,
        }
    }
}

/// Returns the body of `POST /v1/policy/explain`. `None` if no rule can describe the request.
fn question(item: &Item) -> Option<String> {
    let scheme = match (&*item.scheme, item.is_websocket) {
        ("https", true) => "wss",
        ("http", true) => "ws",
        ("https" | "http" | "tcp", false) => &item.scheme,
        _ => return None,
    };
    let mut question = json!({ "host": item.host, "port": item.port, "scheme": scheme });
    let body = question.as_object_mut()?;
    if scheme != "tcp" {
        body.insert("method".to_owned(), json!(item.method));
        body.insert("path".to_owned(), json!(item.path));
    }
    if let Some(name) = &item.box_name {
        body.insert("box".to_owned(), json!(name));
    }
    Some(question.to_string())
}

/// A filter of the list, as a link.
struct Choice {
    name: &'static str,
    path: String,
    is_current: bool,
}

const CHOICES: [(&str, &str); 3] =
    [("All", ""), ("Denied", "verdict:deny"), ("Allowed", "verdict:allow")];

#[derive(Template)]
#[template(path = "requests.html")]
struct Requests {
    frame: Frame,
    rows: Vec<Row>,
    choices: Vec<Choice>,
    q: Text,
    next: Option<String>,
    detail: Option<Detail>,
    /// Whether the wanted request does not exist, or the person may not see it.
    is_unknown: bool,
    policy: Policy,
    list: String,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Requests").await?;
    let (q, cursor, event) = (request.query("q"), request.query("cursor"), request.query("event"));
    let filter = Filter::parse(q);
    let list: List<Item> = read(api, &filter.path(cursor)).await?;
    let next = list.next.map(|next| path_with("/requests", &[("q", q), ("cursor", &next)]));
    let selected = event.parse().ok();
    let rows = list.items.iter().map(|item| Row::of(item, q, selected, request.now)).collect();
    let found = match selected {
        Some(index) => find(api, list.items, index).await?,
        None => None,
    };
    let policy: Option<Policy> = match found {
        Some(_) => read_if_permitted(api, "/v1/policy").await?,
        None => None,
    };
    let choice = |(name, query): (&'static str, &'static str)| Choice {
        name,
        path: path_with("/requests", &[("q", query)]),
        is_current: query == q,
    };
    html(&Requests {
        frame,
        rows,
        choices: CHOICES.into_iter().map(choice).collect(),
        q: Text::from(q),
        next,
        is_unknown: found.is_none() && !event.is_empty(),
        detail: found.map(|item| Detail::of(item, q, request.now)),
        policy: policy.unwrap_or_default(),
        list: path_with("/requests", &[("q", q)]),
    })
}

/// An event, as `GET /v1/ledger/events/{event}` returns it.
#[derive(Deserialize)]
struct Event {
    time: String,
}

/// Finds a request in the list, or else at the time of its event.
async fn find(api: &impl Api, listed: Vec<Item>, index: u64) -> Result<Option<Item>, Refusal> {
    if let Some(item) = listed.into_iter().find(|item| item.index == index) {
        return Ok(Some(item));
    }
    let path = format!("/v1/ledger/events/{index}");
    let Some(Event { time }) = read_if_permitted(api, &path).await? else { return Ok(None) };
    let Ok(time) = time.parse::<Timestamp>() else { return Ok(None) };
    let after = time.saturating_add(SignedDuration::from_millis(1)).unwrap_or(time);
    let (from, to) = (format!("{time:.3}"), format!("{after:.3}"));
    let path = path_with("/v1/requests", &[("limit", "200"), ("from", &from), ("to", &to)]);
    let list: List<Item> = read(api, &path).await?;
    Ok(list.items.into_iter().find(|item| item.index == index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_of_the_filter_are_parameters_and_the_rest_is_searched() {
        let path = Filter::parse("verdict:deny box:a b:c x& host:").path("");
        assert_eq!(path, "/v1/requests?limit=50&verdict=deny&box=a&q=b%3Ac%20x%26%20host%3A");
        assert_eq!(Filter::parse(" ").path("1"), "/v1/requests?limit=50&cursor=1");
    }

    #[test]
    fn question_about_a_tcp_connection_has_no_method() {
        let item = |scheme: &str| -> Item {
            serde_json::from_value(json!({
                "index": 1, "time": "", "method": "GET", "scheme": scheme, "host": "h", "port": 5,
                "path": "/", "is_websocket": false, "verdict": "deny", "rule": null, "reason": "",
                "secrets": [], "outcome": null,
            }))
            .unwrap()
        };
        let tcp = question(&item("tcp")).unwrap();
        assert_eq!(tcp, r#"{"host":"h","port":5,"scheme":"tcp"}"#);
        assert!(question(&item("https")).unwrap().contains(r#""method":"GET""#));
        assert_eq!(question(&item("dns")), None);
        assert_eq!(rest(&item("https")), ":5/");
    }
}
