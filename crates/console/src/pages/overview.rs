//! The first page: what needs the person, first to expire first, what works now, and the record.

use askama::Template;
use serde::Deserialize;

use super::boxes::{BoxItem, BoxRow};
use super::html;
use crate::frame::Frame;
use crate::text::{Moment, number, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, read, read_if_permitted};

/// A question, as `GET /v1/approvals` returns it.
#[derive(Debug, Deserialize)]
struct Approval {
    id: String,
    kind: String,
    asker: Text,
    text: Text,
    #[serde(default)]
    deadline: Option<String>,
}

/// A run, as `GET /v1/runs` returns it.
#[derive(Debug, Deserialize)]
struct Run {
    id: String,
    name: Text,
    state: String,
    #[serde(default)]
    reason: Option<Text>,
    maker: String,
    accepted: String,
}

/// Something that waits for the person.
struct Need {
    class: &'static str,
    icon: &'static str,
    title: Text,
    about: Text,
    deadline: Option<String>,
    since: Option<Moment>,
    path: String,
    act: &'static str,
}

/// A request that a box made, as `GET /v1/requests` returns it.
#[derive(Debug, Deserialize)]
struct Request {
    host: Text,
    verdict: Text,
    #[serde(default, rename = "box")]
    box_name: Option<Text>,
}

/// A limit and what is used of it.
struct Meter {
    name: &'static str,
    percent: u64,
    text: Text,
}

#[derive(Debug, Default, Deserialize)]
struct Account {
    #[serde(default)]
    budgets: Option<Budgets>,
}

#[derive(Debug, Default, Deserialize)]
struct Budgets {
    #[serde(default)]
    boxes: Option<Count>,
    #[serde(default)]
    tenant_boxes: Option<Count>,
    #[serde(default)]
    runs: Option<Count>,
    #[serde(default)]
    tenant_runs: Option<Count>,
}

#[derive(Debug, Deserialize)]
struct Count {
    used: u64,
    max: u64,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    needs: Vec<Need>,
    boxes: Vec<BoxRow>,
    denied: Option<Vec<Request>>,
    meters: Vec<Meter>,
    events: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Overview").await?;
    let boxes: List<BoxItem> = read(api, "/v1/boxes?limit=50").await?;
    let (busy, rest): (Vec<BoxItem>, Vec<BoxItem>) =
        boxes.items.into_iter().partition(|item| matches!(&*item.state, "running" | "paused"));
    let mut needs = questions(api).await?;
    needs.extend(attention(api, request).await?);
    needs.extend(busy.iter().chain(&rest).filter_map(|item| to_review(item, request.now)));
    let denied: Option<List<Request>> =
        read_if_permitted(api, "/v1/requests?limit=5&verdict=deny").await?;
    let checkpoint = "/v1/ledger/events?limit=1";
    let last: Option<List<Event>> = read_if_permitted(api, checkpoint).await?;
    let events = last.and_then(|it| it.items.first().map(|event| number(event.index + 1)));
    let meters = meters(&read::<Account>(api, "/v1/me").await?);
    let boxes = busy.into_iter().map(|item| BoxRow::of(item, request.now)).collect();
    html(&Overview { frame, needs, boxes, denied: denied.map(|it| it.items), meters, events })
}

#[derive(Debug, Deserialize)]
struct Event {
    index: u64,
}

/// Returns the open questions, the first to expire first.
async fn questions(api: &impl Api) -> Result<Vec<Need>, Refusal> {
    let open: Option<List<Approval>> =
        read_if_permitted(api, "/v1/approvals?limit=20&q=state:open").await?;
    let needs = open.into_iter().flat_map(|list| list.items).map(|approval| Need {
        class: "warn",
        icon: "ask",
        title: match &*approval.kind {
            "gate" => Text::from(format!("Gate of {}", approval.asker)),
            _ => Text::from(format!("{} asks", approval.asker)),
        },
        about: approval.text,
        deadline: approval.deadline,
        since: None,
        path: format!("/approvals/{}", segment(&approval.id)),
        act: "Review",
    });
    Ok(needs.collect())
}

/// Returns the runs that cannot go on without a decision.
async fn attention(api: &impl Api, request: &PageRequest) -> Result<Vec<Need>, Refusal> {
    let runs: Option<List<Run>> =
        read_if_permitted(api, "/v1/runs?limit=10&q=kind:plan%20state:attention").await?;
    let needs = runs.into_iter().flat_map(|list| list.items).map(|run| Need {
        class: "bad",
        icon: "alarm",
        title: Text::from(format!("Unknown outcome in {}", run.name)),
        about: match run.reason {
            Some(reason) => reason,
            None => Text::from(format!("{} · started by {}", run.state, principal(&run.maker))),
        },
        deadline: None,
        since: Some(Moment::of(&run.accepted, request.now)),
        path: format!("/runs/{}", segment(&run.id)),
        act: "Settle",
    });
    Ok(needs.collect())
}

fn to_review(item: &BoxItem, now: u64) -> Option<Need> {
    let run = item.run.as_ref().filter(|run| run.pending && item.state != "running")?;
    Some(Need {
        class: "on",
        icon: "eye",
        title: Text::from(format!("{} waits for review", item.name)),
        about: item.workspace.as_ref().map_or_else(Text::default, |it| it.path.clone()),
        deadline: None,
        since: Some(Moment::of(&run.started, now)),
        path: format!("/boxes/{}/review", segment(&item.name)),
        act: "Review",
    })
}

fn meters(account: &Account) -> Vec<Meter> {
    let Some(budgets) = &account.budgets else { return Vec::new() };
    let all = [
        ("Your boxes", &budgets.boxes),
        ("All boxes", &budgets.tenant_boxes),
        ("Your runs", &budgets.runs),
        ("All runs", &budgets.tenant_runs),
    ];
    let limited = all.into_iter().filter_map(|(name, count)| Some((name, count.as_ref()?)));
    let meter = |(name, count): (&'static str, &Count)| Meter {
        name,
        percent: (count.used * 100).checked_div(count.max).unwrap_or(100).min(100),
        text: Text::from(format!("{} of {}", count.used, count.max)),
    };
    limited.map(meter).collect()
}
