//! The principals whose runs a sender may use.
//!
//! A run that a schedule started has the schedule as its principal. It belongs to the principal that made the
//! schedule.

use std::collections::BTreeSet;

use belljar_engine::runs::schedules::stored;
use belljar_engine::scope::Scoped;
use belljar_model::caller::{Principal, PrincipalKind};

use super::call::Owned;
use super::problem::Problem;

/// The principals whose runs a sender may use; `None` for those of everybody.
#[derive(Debug, Clone)]
pub(crate) struct Makers(Option<BTreeSet<Principal>>);

impl Makers {
    /// Returns the sender's principals with the schedules that they made. Blocks.
    pub(crate) fn read(state: &Scoped, owned: &Owned) -> Result<Self, Problem> {
        let Some(mut principals) = owned.principals() else { return Ok(Self(None)) };
        // A removed schedule keeps its maker. The schedules of the tenant `local` belong to its owner, who may
        // use everything.
        let schedules = stored::all(state)?.into_iter();
        let own = schedules.filter(|schedule| principals.contains(&schedule.maker));
        let names = own.map(|schedule| schedule.name);
        let own: Vec<Principal> = names
            .filter_map(|name| Principal::new(PrincipalKind::Schedule, name.as_str()).ok())
            .collect();
        principals.extend(own);
        Ok(Self(Some(principals)))
    }

    /// Returns whether the sender may use the runs of a principal. `None` stands for an unknown one.
    pub(crate) fn include(&self, maker: Option<&Principal>) -> bool {
        match &self.0 {
            None => true,
            Some(principals) => maker.is_some_and(|maker| principals.contains(maker)),
        }
    }

    /// Returns whether the sender may use the runs of a principal, as the ledger has it.
    pub(crate) fn include_text(&self, maker: &str) -> bool {
        self.include(maker.parse().ok().as_ref())
    }

    /// Returns the principals; `None` for those of everybody.
    pub(crate) fn into_set(self) -> Option<BTreeSet<Principal>> {
        self.0
    }
}
