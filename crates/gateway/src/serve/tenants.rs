//! The state that the server keeps for each tenant in memory. All of it can be derived again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_engine::record::checking::LedgerReport;
use belljar_engine::scope::{Engine, Scoped};
use belljar_model::caller::{Caller, TenantId};

use super::box_list::BoxList;
use super::feed::Feed;
use super::identity::Identity;
use super::jobs::JobSlot;
use super::ledgers::LedgerPool;
use super::problem::Problem;
use super::routes::boxes::screen::Keyboards;

/// The state of one tenant.
pub(crate) struct Tenant {
    /// The scope of the server for this tenant. Requests use the scope of their sender instead.
    pub(crate) scope: Scoped,
    pub(crate) boxes: BoxList,
    pub(crate) feed: Arc<Feed>,
    pub(crate) keyboards: Keyboards,
    pub(crate) ledgers: Arc<LedgerPool>,
    /// Verifications of the ledger.
    pub(crate) verifications: Arc<JobSlot<LedgerReport>>,
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
            feed: Arc::default(),
            keyboards: Keyboards::default(),
            ledgers: Arc::default(),
            verifications: Arc::default(),
        });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(who.tenant().clone()).or_insert(tenant)))
    }
}
