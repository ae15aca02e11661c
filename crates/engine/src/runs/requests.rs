//! Counts the requests of the boxes of a run, from the ledger.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use belljar_ledger::{Event, Query, Reader};
use belljar_model::RunId;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::{each, read};
use crate::record::runs;
use crate::scope::Scoped;

/// The requests of a run to one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRequests {
    pub host: String,
    pub allowed: u64,
    /// The denied requests. The denied lookups of the name of the host count once for each box.
    pub denied: u64,
}

/// Returns the requests of all boxes of the run of a plan, in the order of the names of the hosts.
pub fn of_run(state: &Scoped, run: RunId) -> Result<Vec<HostRequests>, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let Some(reader) = reader else { return Ok(Vec::new()) };
    let mut boxes = BTreeSet::new();
    each_event(&reader, run, "task.started", &mut |event| {
        let Event::TaskStarted(task) = event else { return };
        boxes.extend(task.box_run);
    })?;
    each_event(&reader, run, "task.judged", &mut |event| {
        let Event::TaskJudged(task) = event else { return };
        boxes.extend(task.box_runs.into_iter().flatten());
    })?;
    let mut hosts: BTreeMap<String, HostRequests> = BTreeMap::new();
    for id in boxes.iter().filter_map(|id| id.parse().ok()) {
        each_event(&reader, id, "request.decided", &mut |event| {
            let Event::RequestDecided(request) = event else { return };
            let count = hosts.entry(request.host.clone()).or_default();
            count.host = request.host;
            match request.verdict.as_str() {
                "deny" => count.denied += 1,
                _ => count.allowed += 1,
            }
        })?;
        // A program that cannot resolve a name sends no request.
        let mut names = BTreeSet::new();
        each_event(&reader, id, "dns.decided", &mut |event| {
            if let Event::DnsDecided(lookup) = event
                && lookup.verdict == "deny"
            {
                names.insert(lookup.name.trim_end_matches('.').to_owned());
            }
        })?;
        for host in names {
            let count = hosts.entry(host.clone()).or_default();
            (count.host, count.denied) = (host, count.denied + 1);
        }
    }
    Ok(hosts.into_values().collect())
}

pub(super) fn each_event(
    reader: &Reader,
    run: RunId,
    kind: &str,
    show: &mut dyn FnMut(Event),
) -> Result<(), EngineError> {
    let query = Query { run: Some(run), kind: Some(kind.to_owned()), ..Query::default() };
    each(reader, query, &mut |row| {
        let entry = read(reader, row)?;
        // An event of a newer version is not counted.
        if let Ok(event) = Event::read(&entry.kind, &entry.fields) {
            show(event);
        }
        Ok(true)
    })
}
