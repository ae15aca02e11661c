//! Open ledgers of a tenant, which requests take in turns. Opening a large ledger takes longer than reading
//! a page of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_engine::record::browse::LedgerBrowser;
use belljar_engine::scope::Scoped;

use super::problem::Problem;

/// The maximum number of unused open ledgers that are kept.
const MAX_IDLE: usize = 4;

/// The open ledgers of one tenant.
#[derive(Default)]
pub(crate) struct LedgerPool {
    idle: Mutex<Vec<LedgerBrowser>>,
}

impl LedgerPool {
    /// Calls a function with the ledger of the scope's tenant. Returns `None` if there is no ledger. Blocks.
    pub(crate) fn read<T>(
        &self,
        scope: &Scoped,
        work: impl FnOnce(&mut LedgerBrowser) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        // A ledger that failed is dropped, so that the next request opens it again.
        let taken = self.idle().pop().filter(LedgerBrowser::is_current);
        let opened = match taken {
            Some(mut browser) => browser.refresh().is_ok().then_some(browser),
            None => None,
        };
        let mut browser = match opened {
            Some(browser) => browser,
            None => match LedgerBrowser::open(scope)? {
                Some(browser) => browser,
                None => return Ok(None),
            },
        };
        let result = work(&mut browser)?;
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(browser);
        }
        Ok(Some(result))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<LedgerBrowser>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
