//! `belljar runs show` for a run that is not the run of a plan.

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::reading;
use belljar_engine::record::runs::{self, RecordedRun};
use belljar_engine::scope::Scoped;
use belljar_model::{Purpose, display};
use serde_json::json;

use crate::print;

/// Prints one page about a run of the ledger. Returns `None` if there is no such run.
pub(super) fn show(state: &Scoped, name: &str, as_json: bool) -> Result<Option<u8>, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let Some(reader) = reader else { return Ok(None) };
    let Ok(id) = reading::find_run(state.store(), &reader, "RUN", name) else { return Ok(None) };
    let Some(run) = runs::find(&reader, id)? else { return Ok(None) };
    if as_json {
        print::json(&json!({
            "run": run.id,
            "name": run.name,
            "purpose": run.purpose.map(Purpose::name),
            "created": run.created / 1_000_000,
            "template": run.template,
            "mode": run.mode,
            "workspace": run.workspace.map(|path| display::safe(path.as_os_str().as_encoded_bytes())),
            "outcome": run.end,
        }))
    } else {
        print::out(&page(&run))
    }
    .kind(ErrorKind::Broken)?;
    Ok(Some(0))
}

fn page(run: &RecordedRun) -> String {
    let RecordedRun { id, name, created, purpose, template, mode, workspace, end } = run;
    let workspace = workspace.as_ref();
    let pairs = [
        ("run", Some(id.to_string())),
        ("name", name.as_ref().map(display::safe)),
        ("purpose", purpose.map(|purpose| purpose.name().to_owned())),
        ("started", Some(moment::readable_seconds(*created))),
        ("ended", Some(end.as_ref().map_or_else(|| "no end on record".to_owned(), display::safe))),
        ("template", Some(display::safe(template))),
        ("mode", Some(display::safe(mode))),
        ("workspace", workspace.map(|path| display::safe(path.as_os_str().as_encoded_bytes()))),
    ];
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            text.push_str(&format!("{name:<9}  {value}\n"));
        }
    }
    text.push_str(&format!("belljar ledger log --run {id}\n"));
    text
}
