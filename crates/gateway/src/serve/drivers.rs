//! Keeps a driver running for each tenant with open runs or enabled schedules.
//!
//! A driver is a child of the process that starts it, in a session of its own: it continues when the server
//! stops or is killed, and the next server finds it by its lock. A driver that dies is started again here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_engine::record::feed::EventFeed;
use belljar_engine::runs::{driver, fence::DriverLock, resume};
use belljar_engine::scope::Scoped;
use belljar_engine::server::witness;
use belljar_model::caller::{Caller, TenantId};

use super::app::App;
use super::call::blocking;
use super::problem::Problem;

/// The state of a tenant that needs no driver: the length of its ledger and the time of its last change, and
/// the files of its schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Idle {
    ledger: Option<(u64, SystemTime)>,
    schedules: Option<SystemTime>,
    config: Option<SystemTime>,
}

type IdleTenants = HashMap<TenantId, Idle>;

/// Starts drivers that are missing until the server stops.
pub(super) async fn keep(app: &Arc<App>, interval: Duration) {
    let mut idle = IdleTenants::new();
    loop {
        idle = round(app, idle).await;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = app.stop.cancelled() => return,
        }
    }
}

/// Looks at all tenants. Returns those that need no driver.
async fn round(app: &Arc<App>, idle: IdleTenants) -> IdleTenants {
    let shared = Arc::clone(app);
    let looked = blocking(app, move || look(&shared, idle)).await;
    looked.unwrap_or_else(|_| {
        tracing::error!("the tenants cannot be listed, so no driver of runs is started");
        IdleTenants::new()
    })
}

fn look(app: &App, mut idle: IdleTenants) -> Result<IdleTenants, Problem> {
    for tenant in witness::tenants(&app.state)? {
        // A damaged tenant does not keep the others from being driven.
        let looked = app
            .engine
            .of(&Caller { tenant: tenant.clone(), ..app.owner.clone() })
            .map_err(Problem::from)
            .and_then(|state| look_at(&state, idle.get(&tenant)));
        match looked {
            Ok(Some(state)) => drop(idle.insert(tenant, state)),
            Ok(None) => drop(idle.remove(&tenant)),
            Err(problem) => {
                let detail = problem.detail();
                tracing::error!(%tenant, detail, "the driver of runs cannot be started");
                idle.remove(&tenant);
            }
        }
    }
    Ok(idle)
}

/// Starts the driver of a tenant if it needs one and has none. Returns the state of a tenant without work.
fn look_at(state: &Scoped, known: Option<&Idle>) -> Result<Option<Idle>, Problem> {
    if DriverLock::is_held(state.store()) {
        return Ok(None);
    }
    // Read first, so that a change during the look is noticed by the next one.
    let now = Idle::of(state);
    if known == Some(&now) || !resume::is_needed(state)? {
        return Ok(Some(now));
    }
    tracing::info!(tenant = %state.caller().tenant, "the driver of runs is started");
    driver::wake(state)?;
    Ok(None)
}

impl Idle {
    fn of(state: &Scoped) -> Self {
        let changed = |path: PathBuf| std::fs::metadata(path).and_then(|it| it.modified()).ok();
        let ledger = std::fs::metadata(EventFeed::log_file(state)).ok();
        let default = || state.host().config_file();
        let config = state.config_file().map(ToOwned::to_owned).or_else(default);
        Self {
            ledger: ledger.and_then(|it| Some((it.len(), it.modified().ok()?))),
            schedules: changed(state.store().layout().schedules()),
            config: config.and_then(changed),
        }
    }
}
