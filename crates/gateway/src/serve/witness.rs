//! Records a checkpoint of each tenant's ledger in the ledger `system` at intervals.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_engine::scope::Engine;
use belljar_engine::server::witness;
use belljar_model::caller::{Caller, TenantId};

use super::app::App;
use super::audit::system_tenant;
use super::call::blocking;
use super::problem::Problem;

/// Records checkpoints until the server stops, and once more then.
pub(super) async fn run(app: &Arc<App>, interval: Duration) {
    let mut recorded = HashMap::new();
    loop {
        recorded = round(app, recorded).await;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = app.stop.cancelled() => break,
        }
    }
    round(app, recorded).await;
}

/// Records the checkpoints of ledgers that have new events. Returns the sizes of all ledgers.
async fn round(app: &Arc<App>, recorded: HashMap<TenantId, u64>) -> HashMap<TenantId, u64> {
    let (engine, owner, kept) = (app.engine.clone(), app.owner.clone(), recorded.clone());
    match blocking(app, move || record(&engine, owner, recorded)).await {
        Ok(recorded) => recorded,
        Err(_) => {
            tracing::error!("the checkpoints of the ledgers cannot be recorded");
            kept
        }
    }
}

fn record(
    engine: &Engine,
    owner: Caller,
    mut recorded: HashMap<TenantId, u64>,
) -> Result<HashMap<TenantId, u64>, Problem> {
    let system = engine.of(&Caller { tenant: system_tenant(), ..owner })?;
    for tenant in witness::tenants(&system)? {
        // A damaged ledger does not keep the others from being recorded.
        match witness::record(&system, &tenant, recorded.get(&tenant).copied()) {
            Ok(Some(size)) => drop(recorded.insert(tenant, size)),
            Ok(None) => {}
            Err(_) => tracing::error!(%tenant, "the checkpoint of a ledger cannot be recorded"),
        }
    }
    Ok(recorded)
}
