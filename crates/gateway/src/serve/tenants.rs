//! The state that the server keeps for each tenant in memory. All of it can be derived again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_engine::approvals::index::ApprovalIndex;
use belljar_engine::record::checking::LedgerReport;
use belljar_engine::runs::index::RunIndex;
use belljar_engine::scope::{Engine, Scoped};
use belljar_model::caller::{Caller, TenantId};

use super::box_list::BoxList;
use super::feed::Feed;
use super::identity::Identity;
use super::jobs::JobSlot;
use super::ledgers::LedgerPool;
use super::problem::Problem;
use super::quotas::BoxPlaces;
use super::routes::boxes::screen::Keyboards;

/// The state of one tenant.
pub(crate) struct Tenant {
    /// The scope of the server for this tenant. Requests use the scope of their sender instead.
    pub(crate) scope: Scoped,
    pub(crate) boxes: BoxList,
    /// The boxes that are starting, for the quotas.
    pub(crate) places: Arc<BoxPlaces>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) keyboards: Keyboards,
    pub(crate) ledgers: Arc<LedgerPool>,
    pub(crate) runs: RunIndex,
    pub(crate) approvals: ApprovalIndex,
    /// Verifications of the ledger.
    pub(crate) verifications: Arc<JobSlot<LedgerReport>>,
    /// Held while the policy or a secret of the tenant is changed.
    settings: Mutex<()>,
}

impl Tenant {
    /// Waits until no other request changes the policy or a secret of the tenant. Blocks.
    pub(crate) fn lock_settings(&self) -> MutexGuard<'_, ()> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of all tenants that sent a request.
#[derive(Default)]
pub(crate) struct Tenants {
    known: Mutex<HashMap<TenantId, Arc<Tenant>>>,
}

impl Tenants {
    /// Returns the state of the sender's tenant.
    pub(crate) fn of(&self, engine: &Engine, who: &Identity) -> Result<Arc<Tenant>, Problem> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = known.get(who.tenant()) {
            return Ok(Arc::clone(tenant));
        }
        drop(known);
        let caller = Caller { session: None, client: None, ..who.caller.clone() };
        let tenant = Arc::new(Tenant {
            scope: engine.of(&caller)?,
            boxes: BoxList::default(),
            places: Arc::default(),
            feed: Arc::default(),
            keyboards: Keyboards::default(),
            ledgers: Arc::default(),
            runs: RunIndex::default(),
            approvals: ApprovalIndex::default(),
            verifications: Arc::default(),
            settings: Mutex::default(),
        });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(who.tenant().clone()).or_insert(tenant)))
    }
}
