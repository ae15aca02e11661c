//! The route of usage: what boxes and runs used in a range of time.

use std::collections::BTreeMap;

use axum::response::Response;
use belljar_engine::runs::budget::{Amounts, Unit};
use belljar_engine::runs::index::{RunIndex, RunKind, RunSearch, RunSummary};
use belljar_engine::runs::machine::Moment;
use belljar_engine::runs::usage::{self, Observed, UsageBy, UsageQuery, UsageRow, UsageStep};
use belljar_engine::scope::Scoped;
use belljar_model::display;
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::account::time;
use super::runs::view::UsageView;
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::makers::Makers;
use crate::serve::problem::Problem;
use crate::serve::store::Millis;

/// The length of the range by default.
const DEFAULT_RANGE: Millis = 30 * 24 * 60 * 60 * 1000;
/// The last time that a request can name: the end of the year 9999.
const MAX_TIME: Millis = 253_402_300_799_999;
/// The maximum number of runs that the usage by run or by box adds up.
const MAX_RUNS: usize = 100_000;
/// The number of runs that are read at once.
const PAGE: usize = 1000;

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::get("/v1/usage", Access::For(Act::SeeUsage))
            .about("Adds up what boxes and runs used, in intervals of UTC")
            .query::<UsageParameters>()
            .returns::<UsageReport>(StatusCode::OK),
        get,
    )
}

/// What a usage is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grouping {
    /// What brokers and supervisors observed, in the hour of the observation.
    Observed(UsageBy),
    /// The usage of whole runs, in the interval in which they were accepted.
    Runs(RunGroup),
}

/// The group of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunGroup {
    Run,
    /// The starts of a named box.
    Box,
}

const GROUPINGS: [(&str, Grouping); 6] = [
    ("all", Grouping::Observed(UsageBy::All)),
    ("principal", Grouping::Observed(UsageBy::Principal)),
    ("model", Grouping::Observed(UsageBy::Model)),
    ("secret", Grouping::Observed(UsageBy::Secret)),
    ("run", Grouping::Runs(RunGroup::Run)),
    ("box", Grouping::Runs(RunGroup::Box)),
];

const STEPS: [(&str, UsageStep); 4] = [
    ("hour", UsageStep::Hour),
    ("day", UsageStep::Day),
    ("month", UsageStep::Month),
    ("total", UsageStep::Total),
];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UsageParameters {
    /// The groups: `all` (default), `principal`, `model` or `secret`, as observed in each hour; or `run` or
    /// `box`, in the interval in which the run began.
    #[schemars(schema_with = "schema_of_by")]
    #[serde(default)]
    by: Option<String>,
    /// The start of the range in milliseconds since 1970; 30 days before its end by default.
    #[schemars(range(max = 253_402_300_799_999_u64))]
    from: Option<u64>,
    /// The end of the range in milliseconds since 1970; now by default. The hours at both ends count as a whole.
    #[schemars(range(max = 253_402_300_799_999_u64))]
    to: Option<u64>,
    /// The length of the intervals: `hour`, `day` (default), `month`, or `total` for one interval.
    #[schemars(schema_with = "schema_of_step")]
    #[serde(default)]
    step: Option<String>,
}

fn schema_of_by(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": GROUPINGS.map(|(name, _)| name) })
}

fn schema_of_step(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": STEPS.map(|(name, _)| name) })
}

/// The usage in a range of time.
#[derive(Serialize, JsonSchema)]
struct UsageReport {
    by: &'static str,
    step: &'static str,
    from: String,
    to: String,
    /// In the order of time and name.
    items: Vec<UsageItem>,
    /// Whether the range has more than this report, so that a shorter one is needed.
    incomplete: bool,
}

/// The usage of a group in an interval.
#[derive(Serialize, JsonSchema)]
struct UsageItem {
    /// The start of the interval.
    start: String,
    /// The principal, the model, the secret, the run or the box; empty for all together.
    name: String,
    usage: UsageView,
}

impl UsageItem {
    fn of(row: &UsageRow) -> Self {
        Self {
            start: time(row.start.0),
            name: display::safe_line(&row.name),
            usage: UsageView::of_observed(&row.observed),
        }
    }
}

/// Returns the value with a name.
fn named<T: Copy>(
    known: &[(&'static str, T)],
    text: Option<&str>,
    default: &str,
    field: &str,
) -> Result<(&'static str, T), Problem> {
    let text = text.unwrap_or(default);
    let found = known.iter().find(|(name, _)| *name == text).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let detail = format!("`{field}` must be one of {}", names.join(", "));
        Problem::invalid(detail).field(format!("/{field}"))
    })
}

async fn get(call: Call) -> Result<Response, Problem> {
    let UsageParameters { by, from, to, step } = call.query()?;
    let (by, grouping) = named(&GROUPINGS, by.as_deref(), "all", "by")?;
    let (step_name, step) = named(&STEPS, step.as_deref(), "day", "step")?;
    for (field, value) in [("from", from), ("to", to)] {
        if value.is_some_and(|value| value > MAX_TIME) {
            let detail = format!("`{field}` must be at most {MAX_TIME}");
            return Err(Problem::invalid(detail).field(format!("/{field}")));
        }
    }
    let to = to.unwrap_or_else(|| call.app.now());
    let from = from.unwrap_or_else(|| to.saturating_sub(DEFAULT_RANGE));
    let (state, owned, tenant) = (call.scope()?, call.owned()?, call.tenant()?);
    let report = blocking(&call.app, move || {
        let makers = Makers::read(&state, &owned)?.into_set();
        let observed_by = match grouping {
            Grouping::Observed(by) => by,
            Grouping::Runs(_) => UsageBy::All,
        };
        let query =
            UsageQuery { by: observed_by, step, from: Moment(from), to: Moment(to), makers };
        let (start, end) = query.range();
        let found = match grouping {
            // An empty range has no hours; the engine would return those of its end.
            _ if from >= to => Some(Vec::new()),
            Grouping::Observed(_) => observed(&state, &tenant.runs, &query)?,
            Grouping::Runs(group) => of_runs(&state, &tenant.runs, &query, group)?,
        };
        let (from, to) = (time(start.0), time(end.0));
        let incomplete = found.is_none();
        let items = found.unwrap_or_default().iter().map(UsageItem::of).collect();
        Ok(UsageReport { by, step: step_name, from, to, items, incomplete })
    })
    .await?;
    json_response(StatusCode::OK, &report)
}

/// Returns what was observed; `None` if the range has too many hours.
fn observed(
    state: &Scoped,
    index: &RunIndex,
    query: &UsageQuery,
) -> Result<Option<Vec<UsageRow>>, Problem> {
    use belljar_engine::error::ErrorKind;
    match usage::usage(state, index, query) {
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Adds up the usage of the runs that were accepted in the range; `None` if it has too many runs.
fn of_runs(
    state: &Scoped,
    index: &RunIndex,
    query: &UsageQuery,
    group: RunGroup,
) -> Result<Option<Vec<UsageRow>>, Problem> {
    let mut search = RunSearch {
        makers: query.makers.clone(),
        terms: Vec::new(),
        texts: Vec::new(),
        accepted: Some(query.range()),
        after: None,
        limit: PAGE,
    };
    let (mut sums, mut count) = (BTreeMap::<(Moment, String), Observed>::new(), 0);
    loop {
        let page = index.page(state, &search)?;
        count += page.runs.len();
        if count > MAX_RUNS {
            return Ok(None);
        }
        for run in &page.runs {
            if let Some(name) = name_of(run, group) {
                let sum = sums.entry((query.start(run.accepted), name)).or_default();
                *sum = sum.plus(of_amounts(&run.spent));
            }
        }
        if page.next.is_none() {
            break;
        }
        search.after = page.next;
    }
    let row = |((start, name), observed)| UsageRow { start, name, observed };
    Ok(Some(sums.into_iter().map(row).collect()))
}

/// Returns the name of the group of a run; `None` if it is in no group.
fn name_of(run: &RunSummary, group: RunGroup) -> Option<String> {
    match (group, run.kind) {
        (RunGroup::Run, _) => Some(run.run.to_string()),
        (RunGroup::Box, RunKind::Box) => Some(run.name.clone()),
        (RunGroup::Box, RunKind::Plan | RunKind::Run | RunKind::Call) => None,
    }
}

fn of_amounts(amounts: &Amounts) -> Observed {
    Observed {
        calls: amounts.get(Unit::Calls),
        tokens: amounts.get(Unit::Tokens),
        money: amounts.get(Unit::Money),
        micros: amounts.get(Unit::Seconds).saturating_mul(1_000_000),
        bytes: amounts.get(Unit::Bytes),
    }
}
