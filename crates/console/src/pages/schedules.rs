//! Schedules: their next and last slots, and the form of one.

use askama::Template;
use serde::Deserialize;

use super::boxes::StateMark;
use super::html;
use crate::frame::Frame;
use crate::text::{Moment, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read, read_if_permitted};

/// The tenant whose schedules are sections of `belljar.toml`.
const LOCAL: &str = "local";

/// A schedule, as `GET /v1/schedules` returns it.
#[derive(Debug, Deserialize)]
struct Item {
    name: String,
    state: String,
    cron: Text,
    zone: Text,
    missed: Text,
    overlap: Text,
    maker: String,
    #[serde(default)]
    fault: Option<Text>,
    #[serde(default)]
    next: Option<String>,
    #[serde(default)]
    last: Option<Slot>,
}

#[derive(Debug, Deserialize)]
struct Slot {
    slot: String,
    run: String,
}

/// A schedule with its plan.
#[derive(Debug, Deserialize)]
struct Detail {
    name: String,
    cron: Text,
    zone: Text,
    missed: Text,
    overlap: Text,
    #[serde(default)]
    plan: Option<String>,
    #[serde(default)]
    file: Option<Text>,
    #[serde(default)]
    version: Option<Text>,
}

impl Detail {
    fn key(&self) -> String {
        segment(&self.name)
    }

    fn text(&self) -> Text {
        self.plan.as_deref().map(Text::block).unwrap_or_default()
    }
}

/// A row of the list.
struct Row {
    name: Text,
    key: String,
    state: StateMark,
    is_enabled: bool,
    about: Text,
    maker: Text,
    next: Option<Moment>,
    last: Option<(Moment, String)>,
}

impl StateMark {
    /// Returns the mark of the state of a schedule.
    fn of_schedule(state: &str) -> Self {
        let (class, icon) = match state {
            "enabled" => ("ok", "clock"),
            "paused" => ("off", "paused"),
            _ => ("bad", "attention"),
        };
        Self { word: Text::from(state), class, icon }
    }
}

impl Row {
    fn of(item: Item, now: u64) -> Self {
        let about = match item.fault {
            Some(fault) => fault,
            None => Text::from(format!(
                "{} {} · missed: {} · overlap: {}",
                item.cron, item.zone, item.missed, item.overlap
            )),
        };
        let last = item
            .last
            .map(|last| (Moment::of(&last.slot, now), format!("/runs/{}", segment(&last.run))));
        Self {
            name: Text::from(item.name.as_str()),
            key: segment(&item.name),
            is_enabled: item.state == "enabled",
            state: StateMark::of_schedule(&item.state),
            about,
            maker: principal(&item.maker),
            next: item.next.as_deref().map(|next| Moment::of(next, now)),
            last,
        }
    }
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct Schedules {
    frame: Frame,
    rows: Vec<Row>,
    open: Option<Detail>,
    /// Whether the schedules are sections of `belljar.toml`.
    is_local: bool,
    next: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Schedules").await?;
    let cursor = request.query("cursor");
    let path = path_with("/v1/schedules", &[("limit", "50"), ("cursor", cursor)]);
    let list: List<Item> = read(api, &path).await?;
    let next = list.next.map(|next| path_with("/schedules", &[("cursor", &next)]));
    let open = match request.query("schedule") {
        "" => None,
        name => read_if_permitted(api, &format!("/v1/schedules/{}", segment(name))).await?,
    };
    let rows = list.items.into_iter().map(|item| Row::of(item, request.now)).collect();
    let is_local = frame.me.tenant == LOCAL;
    html(&Schedules { frame, rows, open, is_local, next })
}
