//! Checkpoints of the ledgers of all tenants in the ledger `system`.
//!
//! A person who can write the files of a tenant could delete or truncate the tenant's ledger with its anchor.
//! The ledger `system` records the size and the root of every ledger from time to time, so the comparison
//! shows a ledger that is missing, shorter or different.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::Context as _;
use belljar_ledger::{Digest, Event, LedgerPaths, Query, Reader, ReaderError, TenantWitnessed};
use belljar_model::caller::TenantId;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::{self, reading};
use crate::scope::Scoped;
use crate::store::layout::Layout;

/// The name of the tenant whose ledger has the checkpoints of the others.
pub const SYSTEM: &str = "system";

/// The result of the comparison of a ledger with its newest recorded checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessReport {
    pub tenant: TenantId,
    pub verdict: WitnessVerdict,
}

/// What the comparison showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WitnessVerdict {
    /// The ledger starts with the recorded events. It has this many events now.
    Intact {
        recorded: u64,
        size: u64,
    },
    /// No checkpoint of this ledger was recorded yet.
    Unrecorded,
    Missing {
        recorded: u64,
    },
    Truncated {
        recorded: u64,
        size: u64,
    },
    /// The first events differ from the recorded ones.
    Rewritten {
        recorded: u64,
    },
    Unreadable {
        why: String,
    },
}

impl WitnessVerdict {
    /// Returns whether the ledger contradicts the record.
    pub const fn is_fault(&self) -> bool {
        match self {
            Self::Intact { .. } | Self::Unrecorded => false,
            Self::Missing { .. }
            | Self::Truncated { .. }
            | Self::Rewritten { .. }
            | Self::Unreadable { .. } => true,
        }
    }
}

/// Returns all tenants with a state directory, except `system`.
pub fn tenants(state: &Scoped) -> Result<Vec<TenantId>, EngineError> {
    let dir = Layout::directory(state.engine_home(), &TenantId::local()).join("tenants");
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(vec![TenantId::local()]);
        }
        entries => entries.context("cannot list the tenants").kind(ErrorKind::Broken)?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let tenants = names.filter(|name| name != SYSTEM).filter_map(|name| name.parse().ok());
    Ok(BTreeSet::from_iter(tenants.chain([TenantId::local()])).into_iter().collect())
}

/// Records the newest checkpoint of a tenant's ledger, unless it was recorded before. `system` is a scope of
/// the tenant `system`. Returns the size of the ledger; `None` if the tenant has no ledger.
pub fn record(
    system: &Scoped,
    tenant: &TenantId,
    last: Option<u64>,
) -> Result<Option<u64>, EngineError> {
    let Some(reader) = open(system, tenant).kind(ErrorKind::Broken)? else { return Ok(None) };
    let checkpoint = reader.checkpoint().context("cannot read the newest checkpoint of a ledger");
    let (checkpoint, note) = checkpoint.kind(ErrorKind::Broken)?;
    let size = checkpoint.size();
    if last == Some(size) {
        return Ok(last);
    }
    let (name, root) = (tenant.to_string(), checkpoint.root());
    record::fact(system, TenantWitnessed { tenant: name, size, root, note })?;
    Ok(Some(size))
}

/// Compares the ledgers of all tenants with the checkpoints in the ledger `system`.
pub fn compare(system: &Scoped) -> Result<Vec<WitnessReport>, EngineError> {
    let recorded = recorded(system)?;
    let known = recorded.keys().cloned().chain(tenants(system)?);
    let all: BTreeSet<TenantId> = known.collect();
    let report = |tenant: TenantId| {
        let verdict = verdict(system, &tenant, recorded.get(&tenant));
        WitnessReport { tenant, verdict }
    };
    Ok(all.into_iter().map(report).collect())
}

fn verdict(system: &Scoped, tenant: &TenantId, recorded: Option<&(u64, Digest)>) -> WitnessVerdict {
    let Some(&(recorded, root)) = recorded else { return WitnessVerdict::Unrecorded };
    let unreadable = |error: ReaderError| {
        let why = format!("{:#}", anyhow::Error::new(error));
        WitnessVerdict::Unreadable { why }
    };
    let reader = match open(system, tenant) {
        Ok(Some(reader)) => reader,
        Ok(None) => return WitnessVerdict::Missing { recorded },
        Err(error) => return unreadable(error),
    };
    let size = match reader.checkpoint() {
        Ok((checkpoint, _)) => checkpoint.size(),
        Err(error) => return unreadable(error),
    };
    if size < recorded {
        return WitnessVerdict::Truncated { recorded, size };
    }
    match reader.root_at(recorded) {
        Ok(found) if found == root => WitnessVerdict::Intact { recorded, size },
        Ok(_) => WitnessVerdict::Rewritten { recorded },
        Err(error) => unreadable(error),
    }
}

/// Returns the newest recorded checkpoint of each tenant.
fn recorded(system: &Scoped) -> Result<BTreeMap<TenantId, (u64, Digest)>, EngineError> {
    let mut found = BTreeMap::new();
    let opened = Reader::open(&LedgerPaths::under(system.home()));
    let reader = match opened {
        Err(ReaderError::None { .. }) => return Ok(found),
        opened => opened.context("cannot read the ledger `system`").kind(ErrorKind::Broken)?,
    };
    let query = Query { kind: Some("tenant.checkpoint".to_owned()), ..Query::default() };
    reading::each(&reader, query, &mut |row| {
        let entry = reading::read(&reader, row)?;
        if let Ok(Event::TenantWitnessed(event)) = Event::read(&entry.kind, &entry.fields)
            && let Ok(tenant) = event.tenant.parse()
        {
            found.insert(tenant, (event.size, event.root));
        }
        Ok(true)
    })?;
    Ok(found)
}

fn open(system: &Scoped, tenant: &TenantId) -> Result<Option<Reader>, ReaderError> {
    let home = Layout::directory(system.engine_home(), tenant);
    match Reader::open_uncounted(&LedgerPaths::under(&home)) {
        Err(ReaderError::None { .. }) => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scope::of_test;
    use crate::server::{AccessChange, record_access_change};

    fn add_event(state: &Scoped) {
        let tenant = &state.caller().tenant;
        let change =
            AccessChange { act: "login", subject: "x", tenant, from: "test", details: &[] };
        record_access_change(state, &change).unwrap();
    }

    fn copy_tree(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => copy_tree(&entry.path(), &to),
                false => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
    }

    fn only_verdict(system: &Scoped) -> WitnessVerdict {
        let reports = compare(system).unwrap();
        let [report] = reports.as_slice() else { panic!("{reports:?}") };
        report.verdict.clone()
    }

    /// Returns the scopes of the tenants `local` and `system` in one state directory.
    fn scopes(home: &Path) -> (Scoped, Scoped) {
        let local = of_test(home);
        let caller =
            belljar_model::Caller { tenant: SYSTEM.parse().unwrap(), ..local.caller().clone() };
        let system = crate::scope::of_test_caller(home, caller);
        (local, system)
    }

    #[test]
    fn h02_deleted_truncated_or_replaced_ledger_contradicts_its_recorded_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let (local, system) = scopes(dir.path());
        assert_eq!(record(&system, &TenantId::local(), None).unwrap(), None, "no ledger yet");
        add_event(&local);
        assert_eq!(only_verdict(&system), WitnessVerdict::Unrecorded);
        let first = record(&system, &TenantId::local(), None).unwrap().unwrap();
        let events = || recorded(&system).unwrap().len();
        assert_eq!(events(), 1);
        assert_eq!(record(&system, &TenantId::local(), Some(first)).unwrap(), Some(first));
        let copy = |from: &Path, suffix: &str| {
            for name in ["ledger", "anchor"] {
                copy_tree(&from.join(name), &dir.path().join(format!("{name}{suffix}")));
            }
        };
        copy(dir.path(), ".short");
        add_event(&local);
        let recorded = record(&system, &TenantId::local(), Some(first)).unwrap().unwrap();
        assert!(recorded > first);
        add_event(&local);
        let intact = WitnessVerdict::Intact { recorded, size: recorded + 1 };
        assert_eq!(only_verdict(&system), intact, "control");
        let replace = |by: &str| {
            for name in ["ledger", "anchor"] {
                let to = dir.path().join(name);
                if to.exists() {
                    fs::remove_dir_all(&to).unwrap();
                }
                let from = dir.path().join(format!("{name}{by}"));
                if from.exists() {
                    fs::rename(from, to).unwrap();
                }
            }
        };
        replace(".short");
        assert_eq!(only_verdict(&system), WitnessVerdict::Truncated { recorded, size: first });
        replace(".none");
        assert_eq!(only_verdict(&system), WitnessVerdict::Missing { recorded });
        let elsewhere = tempfile::tempdir().unwrap();
        let other = of_test(elsewhere.path());
        (0..recorded + 2).for_each(|_| add_event(&other));
        copy(elsewhere.path(), "");
        assert_eq!(only_verdict(&system), WitnessVerdict::Rewritten { recorded });
    }
}
