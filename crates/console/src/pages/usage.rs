//! What boxes and runs used: a plot over time, and the same data as a table.

use std::collections::BTreeMap;

use askama::Template;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use serde::Deserialize;

use super::html;
use crate::frame::Frame;
use crate::text::{bytes, duration, number, principal, segment};
use crate::{Api, PageRequest, Refusal, Text, path_with, read};

/// A report, as `GET /v1/usage` returns it.
#[derive(Debug, Deserialize)]
struct Report {
    items: Vec<Item>,
    incomplete: bool,
}

#[derive(Debug, Deserialize)]
struct Item {
    start: String,
    name: String,
    usage: Usage,
}

#[derive(Debug, Deserialize)]
struct Usage {
    calls: u64,
    tokens: u64,
    money: String,
    time: u64,
    bytes: u64,
}

/// The sum of usages. Money is in millionths of a US dollar.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sum {
    money: u64,
    tokens: u64,
    calls: u64,
    bytes: u64,
    time: u64,
}

impl Sum {
    fn add(&mut self, usage: &Usage) {
        self.money = self.money.saturating_add(micros(&usage.money));
        self.tokens = self.tokens.saturating_add(usage.tokens);
        self.calls = self.calls.saturating_add(usage.calls);
        self.bytes = self.bytes.saturating_add(usage.bytes);
        self.time = self.time.saturating_add(usage.time);
    }

    const fn of(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Money => self.money,
            Measure::Tokens => self.tokens,
            Measure::Calls => self.calls,
            Measure::Bytes => self.bytes,
        }
    }
}

/// Reads a decimal number of US dollars as millionths.
fn micros(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let (whole, fraction): (u64, u64) = (whole.parse().unwrap_or(0), fraction.parse().unwrap_or(0));
    whole.saturating_mul(1_000_000).saturating_add(fraction)
}

/// What the plot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Money,
    Tokens,
    Calls,
    Bytes,
}

const MEASURES: [(&str, &str, Measure); 4] = [
    ("money", "Money", Measure::Money),
    ("tokens", "Tokens", Measure::Tokens),
    ("calls", "Calls", Measure::Calls),
    ("bytes", "Bytes", Measure::Bytes),
];

impl Measure {
    fn show(self, value: u64) -> String {
        match self {
            Self::Money => dollars(value),
            Self::Tokens | Self::Calls => number(value),
            Self::Bytes => bytes(value),
        }
    }
}

/// Writes millionths of a US dollar with at least two digits after the point.
fn dollars(micros: u64) -> String {
    let fraction = format!("{:06}", micros % 1_000_000);
    let needed = fraction.trim_end_matches('0').len().max(2);
    let fraction = fraction.get(..needed).unwrap_or_default();
    format!("${}.{fraction}", number(micros / 1_000_000))
}

/// The interval of the plot, its name, its range and its number.
const STEPS: [(&str, &str); 3] = [("hour", "24 hours"), ("day", "30 days"), ("month", "12 months")];

const GROUPS: [(&str, &str); 6] = [
    ("all", "Time"),
    ("model", "Model"),
    ("principal", "Person"),
    ("box", "Box"),
    ("run", "Run"),
    ("secret", "Secret"),
];

/// Returns the starts of the intervals up to now, the oldest first.
fn starts(step: &str, now: u64) -> Vec<Zoned> {
    let now = Timestamp::from_millisecond(i64::try_from(now).unwrap_or(i64::MAX));
    let now = now.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC);
    let (first, count, span): (_, i64, fn(i64) -> Span) = match step {
        "hour" => (
            now.round(
                jiff::ZonedRound::new().smallest(jiff::Unit::Hour).mode(jiff::RoundMode::Trunc),
            ),
            24,
            |n| Span::new().hours(n),
        ),
        "month" => {
            (now.start_of_day().and_then(|day| day.first_of_month()), 12, |n| Span::new().months(n))
        }
        _ => (now.start_of_day(), 30, |n| Span::new().days(n)),
    };
    let Ok(last) = first else { return Vec::new() };
    (0..count).rev().filter_map(|back| last.checked_sub(span(back)).ok()).collect()
}

/// A bar of the plot.
struct Bar {
    x: f64,
    y: f64,
    height: f64,
    label: Option<String>,
    middle: f64,
    title: String,
}

/// A plot, in units of its drawing.
struct Plot {
    bars: Vec<Bar>,
    width: f64,
    lines: Vec<(f64, String)>,
    about: String,
}

const LEFT: f64 = 64.0;
const WIDTH: f64 = 660.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 168.0;

impl Plot {
    fn new(sums: &[(String, Sum)], measure: Measure, name: &str) -> Option<Self> {
        let values: Vec<u64> = sums.iter().map(|(_, sum)| sum.of(measure)).collect();
        let highest = values.iter().copied().max().filter(|highest| *highest > 0)?;
        let share = |value: u64| to_float(value) / to_float(highest);
        let step = (WIDTH - LEFT) / to_float(u64::try_from(sums.len()).unwrap_or(1).max(1));
        let (mut x, mut bars) = (LEFT, Vec::new());
        let every = sums.len().div_ceil(7).max(1);
        for (index, ((label, _), value)) in sums.iter().zip(&values).enumerate() {
            let height = share(*value) * (BOTTOM - TOP);
            bars.push(Bar {
                x: x + step * 0.12,
                y: BOTTOM - height,
                height,
                label: index.is_multiple_of(every).then(|| label.clone()),
                middle: x + step / 2.0,
                title: format!("{label}: {}", measure.show(*value)),
            });
            x += step;
        }
        let lines = [0, highest / 2, highest];
        let lines =
            lines.into_iter().map(|it| (BOTTOM - share(it) * (BOTTOM - TOP), measure.show(it)));
        let about = format!("{name}. The highest value is {}.", measure.show(highest));
        Some(Self { bars, width: step * 0.76, lines: lines.collect(), about })
    }
}

/// Converts a number for a drawing, where its last digits do not matter.
#[expect(clippy::cast_precision_loss, reason = "a drawing does not show the last digits")]
const fn to_float(value: u64) -> f64 {
    value as f64
}

/// A row of the table.
struct Row {
    name: Text,
    path: Option<String>,
    money: String,
    tokens: String,
    calls: String,
    bytes: String,
    time: String,
}

impl Row {
    fn of(by: &str, name: &str, sum: &Sum) -> Self {
        let path = match by {
            "run" => Some(format!("/runs/{}", segment(name))),
            "box" => Some(format!("/boxes/{}", segment(name))),
            _ => None,
        };
        let shown = match by {
            "principal" => principal(name),
            _ if name.is_empty() => Text::from("without a name"),
            _ => Text::from(name),
        };
        Self {
            name: shown,
            path,
            money: dollars(sum.money),
            tokens: number(sum.tokens),
            calls: number(sum.calls),
            bytes: bytes(sum.bytes),
            time: duration(sum.time),
        }
    }
}

/// A filter of the page, as a link.
struct Choice {
    name: &'static str,
    path: String,
    is_current: bool,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    frame: Frame,
    measures: Vec<Choice>,
    steps: Vec<Choice>,
    groups: Vec<Choice>,
    measure: &'static str,
    group: &'static str,
    plot: Option<Plot>,
    rows: Vec<Row>,
    more: usize,
    incomplete: bool,
    total: String,
}

/// The number of rows of the table.
const ROWS: usize = 200;

/// Returns the known value of a parameter of the query, or the default.
fn known<const N: usize>(
    all: [(&'static str, &'static str); N],
    given: &str,
    default: &'static str,
) -> &'static str {
    all.into_iter().map(|(key, _)| key).find(|key| *key == given).unwrap_or(default)
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Usage").await?;
    let step = known(STEPS, request.query("step"), "day");
    let by = known(GROUPS, request.query("by"), "all");
    let wanted = MEASURES.into_iter().find(|(key, ..)| *key == request.query("show"));
    let (show, measure_name, measure) = wanted.unwrap_or(("money", "Money", Measure::Money));
    let starts = starts(step, request.now);
    let from = starts.first().map_or(0, |first| first.timestamp().as_millisecond()).to_string();
    let query = [("by", by), ("step", step), ("from", &*from)];
    let report: Report = read(api, &path_with("/v1/usage", &query)).await?;
    let (in_time, by_name) = sums(&report.items, &starts, step);
    let path = |step, by, show| path_with("/usage", &[("step", step), ("by", by), ("show", show)]);
    let choice = |name, path, is_current| Choice { name, path, is_current };
    let table: Vec<(&str, Sum)> = match by {
        "all" => in_time.iter().rev().map(|(label, sum)| (label.as_str(), *sum)).collect(),
        _ => sorted(&by_name, measure),
    };
    let is_used = |(_, sum): &&(&str, Sum)| *sum != Sum::default();
    let rows: Vec<Row> =
        table.iter().filter(is_used).map(|(name, sum)| Row::of(by, name, sum)).collect();
    let total = in_time.iter().fold(0, |all: u64, (_, sum)| all.saturating_add(sum.of(measure)));
    html(&UsagePage {
        frame,
        measures: MEASURES
            .into_iter()
            .map(|(key, name, _)| choice(name, path(step, by, key), key == show))
            .collect(),
        steps: STEPS
            .into_iter()
            .map(|(key, name)| choice(name, path(key, by, show), key == step))
            .collect(),
        groups: GROUPS
            .into_iter()
            .map(|(key, name)| choice(name, path(step, key, show), key == by))
            .collect(),
        measure: measure_name,
        group: GROUPS.into_iter().find(|(key, _)| *key == by).map_or("", |(_, name)| name),
        plot: Plot::new(&in_time, measure, measure_name),
        more: rows.len().saturating_sub(ROWS),
        rows: rows.into_iter().take(ROWS).collect(),
        incomplete: report.incomplete,
        total: measure.show(total),
    })
}

type InTime = Vec<(String, Sum)>;

/// Adds the usage up by interval, also for those without usage, and by name.
fn sums<'a>(items: &'a [Item], starts: &[Zoned], step: &str) -> (InTime, BTreeMap<&'a str, Sum>) {
    let (mut in_time, mut by_name) =
        (BTreeMap::<Timestamp, Sum>::new(), BTreeMap::<&str, Sum>::new());
    for start in starts {
        in_time.insert(start.timestamp(), Sum::default());
    }
    for item in items {
        by_name.entry(&item.name).or_default().add(&item.usage);
        if let Ok(start) = item.start.parse::<Timestamp>() {
            in_time.entry(start).or_default().add(&item.usage);
        }
    }
    let form = match step {
        "hour" => "%H:%M",
        "month" => "%b %Y",
        _ => "%-d %b",
    };
    let label = |(start, sum): (Timestamp, Sum)| (start.strftime(form).to_string(), sum);
    (in_time.into_iter().map(label).collect(), by_name)
}

/// Returns the sums, the highest first.
fn sorted<'a>(by_name: &BTreeMap<&'a str, Sum>, measure: Measure) -> Vec<(&'a str, Sum)> {
    let mut all: Vec<(&str, Sum)> = by_name.iter().map(|(name, sum)| (*name, *sum)).collect();
    all.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.of(measure), sum.tokens, sum.time)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact() {
        let read = ["0.00", "1.5", "12.000001", "x"].map(micros);
        assert_eq!(read, [0, 1_500_000, 12_000_001, 0]);
        let shown = [0, 1_500_000, 1_234_000_001].map(dollars);
        assert_eq!(shown, ["$0.00", "$1.50", "$1,234.000001"]);
    }

    #[test]
    fn plot_has_a_bar_for_each_interval_also_without_usage() {
        let now = 1_795_127_400_000; // 2026-11-19 22:30 UTC
        let days = starts("day", now);
        assert_eq!(
            (days.len(), days[29].strftime("%F %T").to_string()),
            (30, "2026-11-19 00:00:00".to_owned())
        );
        assert_eq!(starts("hour", now)[23].strftime("%T").to_string(), "22:00:00");
        assert_eq!(starts("month", now)[0].strftime("%F").to_string(), "2025-12-01");
        let usage = Usage { calls: 2, tokens: 0, money: "0.1".into(), time: 0, bytes: 0 };
        let item = Item { start: "2026-11-18T00:00:00Z".into(), name: "m".into(), usage };
        let items = [item];
        let (in_time, by_name) = sums(&items, &days, "day");
        assert_eq!((in_time.len(), in_time[28].1.calls, by_name["m"].money), (30, 2, 100_000));
        let plot = Plot::new(&in_time, Measure::Calls, "Calls").unwrap();
        assert!((plot.bars[28].height - (BOTTOM - TOP)).abs() < 0.01);
        assert!(Plot::new(&in_time, Measure::Bytes, "Bytes").is_none());
    }
}
