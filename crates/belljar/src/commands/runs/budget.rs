//! `belljar runs budget`: the budget of the tenant, which holds for all its runs together.

use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::runs::budget::{Unit, UsedUp};
use belljar_engine::runs::machine::Moment;
use belljar_engine::runs::tenants::{self, TenantView};
use belljar_engine::scope::Scoped;
use belljar_model::tenant::Period;
use serde_json::{Map, Value as Json, json};

use super::rows;
use crate::cli::Cli;
use crate::exit::Outcome;
use crate::print;
use crate::scope::{self, host};

/// Runs `belljar runs budget`.
pub(crate) fn show(cli: &Cli, as_json: bool) -> Outcome {
    if cli.config.is_some() {
        // The driver outlives this command and reads the file at the default path.
        return Err(invalid("the budget is read from the default belljar.toml; omit --config"));
    }
    let state = scope::open(None)?;
    let (config, _) = state.load_config(None)?;
    let view = tenants::budget(&state, &config)?;
    if as_json {
        print::json(&view_json(&view)).kind(ErrorKind::Broken)?;
    } else {
        print::out(&page(&view)).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Returns the limits of the tenant that are used up.
pub(crate) fn used_up(state: &Scoped) -> Result<Vec<UsedUp>, EngineError> {
    // The file that the driver reads, also if this command got another one.
    let (config, _) = config::load_from(host(), None, None)?;
    if config.tenant_budget(&state.caller().tenant).is_none() {
        return Ok(Vec::new());
    }
    Ok(tenants::budget(state, &config)?.used_up())
}

/// The name of a unit in `belljar.toml`.
const fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "time",
        Unit::Calls | Unit::Tokens | Unit::Money | Unit::Bytes | Unit::Boxes => unit.name(),
    }
}

fn amount(unit: Unit, amount: u64) -> String {
    match unit {
        Unit::Money => rows::money(amount),
        Unit::Seconds => rows::duration(amount.saturating_mul(1000)),
        Unit::Calls | Unit::Tokens | Unit::Bytes | Unit::Boxes => amount.to_string(),
    }
}

fn seconds(at: Moment) -> String {
    moment::readable_seconds(at.0.saturating_mul(1_000_000))
}

/// Returns the budget as text, with one line per unit.
fn page(view: &TenantView) -> String {
    let period = match (view.period, view.since, view.renews) {
        (Period::Total, ..) | (_, None, _) | (_, _, None) => "all runs so far".to_owned(),
        (period, Some(since), Some(renews)) => {
            format!("{period} since {}, renewed at {}", seconds(since), seconds(renews))
        }
    };
    let mut text = format!("tenant {}: {period}\n", view.tenant);
    for unit in Unit::ALL {
        let used = amount(unit, view.used(unit));
        let dollars = if unit == Unit::Money { " USD" } else { "" };
        let limit = match view.limits.get(unit) {
            Some(limit) => format!(" of {}{dollars}", amount(unit, limit)),
            None => format!("{dollars}, no limit"),
        };
        let reserved = match (unit, view.reserved.get(unit)) {
            (Unit::Boxes, _) | (_, 0) => String::new(),
            (_, reserved) => format!(", {} reserved", amount(unit, reserved)),
        };
        text.push_str(&format!("  {:<6}  {used}{limit}{reserved}\n", name(unit)));
    }
    for used_up in view.used_up() {
        text.push_str(&format!("{used_up}\n"));
    }
    text
}

fn view_json(view: &TenantView) -> Json {
    let key = |unit: Unit| match unit {
        Unit::Money => "money_micro_usd",
        Unit::Calls | Unit::Tokens | Unit::Seconds | Unit::Bytes | Unit::Boxes => unit.name(),
    };
    let units: Map<String, Json> = Unit::ALL
        .into_iter()
        .map(|unit| {
            let values = json!({
                "limit": view.limits.get(unit),
                "used": view.used(unit),
                "reserved": view.reserved.get(unit),
                "remaining": view.remaining(unit),
            });
            (key(unit).to_owned(), values)
        })
        .collect();
    json!({
        "tenant": view.tenant.as_str(),
        "period": view.period.name(),
        "since": view.since.map(|at| at.0),
        "renews": view.renews.map(|at| at.0),
        "units": units,
        "used_up": view.used_up().iter().map(|it| it.unit.name()).collect::<Vec<_>>(),
    })
}
