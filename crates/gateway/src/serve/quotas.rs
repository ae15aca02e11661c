//! Quotas of tenants and limits of tokens: the boxes that may run at once, and the runs that may be open.
//!
//! The quotas are those of the operator's file, which is read again when it changes. A file that cannot be
//! read keeps the quotas of the last file that could.
//!
//! **Invariant:** a [`Place`] is held while a box starts, so two starts cannot both use the last place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_engine::config::ConfigFingerprint;
use belljar_engine::error::EngineError;
use belljar_engine::scope::Scoped;
use belljar_model::Config;
use belljar_model::boxes::BoxName;
use belljar_model::caller::{Principal, TenantId};
use belljar_model::quota::{Quota, RunLimits};

use super::identity::Identity;
use super::problem::{Problem, ProblemKind};
use super::tenants::Tenant;

/// The time after which a client can try again, in seconds.
const RETRY: u64 = 30;

/// The quotas of all tenants.
pub(crate) struct Quotas(Mutex<Known>);

/// The operator's file as it was last read.
struct Known {
    fingerprint: ConfigFingerprint,
    config: Config,
}

impl Quotas {
    /// Reads the operator's file.
    pub(crate) fn new(state: &Scoped) -> Result<Self, EngineError> {
        let fingerprint = state.config_fingerprint(None);
        let config = state.load_operator_config()?;
        Ok(Self(Mutex::new(Known { fingerprint, config })))
    }

    /// Returns the quotas of a tenant. Reads the operator's file if it has changed.
    pub(crate) fn of(&self, state: &Scoped, tenant: &TenantId) -> Quota {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = state.config_fingerprint(None);
        if known.fingerprint != fingerprint {
            match state.load_operator_config() {
                Ok(config) => known.config = config,
                Err(_) => tracing::warn!("the configuration is invalid; the quotas stay the same"),
            }
            known.fingerprint = fingerprint;
        }
        known.config.quota(tenant)
    }

    /// Returns the limits of a sender for new runs.
    pub(crate) fn run_limits(&self, state: &Scoped, who: &Identity) -> RunLimits {
        let Quota { runs, runs_per_principal, boxes: _, boxes_per_principal: _ } =
            self.of(state, who.tenant());
        RunLimits { runs, runs_per_principal, money_per_day: who.limits.money_per_day }
    }
}

/// Returns the number of boxes of a sender that may run at once.
pub(crate) fn own_boxes(quota: Quota, who: &Identity) -> Option<u32> {
    match (quota.boxes_per_principal, who.limits.boxes) {
        (Some(quota), Some(own)) => Some(quota.min(own)),
        (quota, own) => quota.or(own),
    }
}

/// The boxes of a tenant that are starting.
#[derive(Default)]
pub(crate) struct BoxPlaces(Mutex<Vec<(BoxName, Principal)>>);

/// The permission to start a box. The place is free again when the value is dropped; then the box runs, or
/// its start has failed.
#[must_use]
pub(crate) struct Place(Option<(Arc<BoxPlaces>, BoxName)>);

impl BoxPlaces {
    fn starting(&self) -> MutexGuard<'_, Vec<(BoxName, Principal)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((places, name)) = self.0.take() else { return };
        let mut starting = places.starting();
        if let Some(at) = starting.iter().position(|(known, _)| *known == name) {
            starting.swap_remove(at);
        }
    }
}

/// Checks that the sender may start a box that this principal made, and takes its place. Blocks.
pub(crate) fn take_place(
    tenant: &Tenant,
    quota: Quota,
    who: &Identity,
    (name, maker): (&BoxName, &Principal),
) -> Result<Place, Problem> {
    if who.limits.boxes.is_some() && *maker != who.caller.principal {
        let detail = "a token with a limit of boxes can start only boxes that it made";
        return Err(Problem::new(ProblemKind::FORBIDDEN, detail));
    }
    let own = if *maker == who.caller.principal {
        own_boxes(quota, who)
    } else {
        quota.boxes_per_principal
    };
    if quota.boxes.is_none() && own.is_none() {
        return Ok(Place(None));
    }
    // Held until the place is taken, so that starts are counted one after the other.
    let mut starting = tenant.places.starting();
    let mut up: BTreeMap<BoxName, Principal> = tenant.boxes.running(&tenant.scope)?;
    up.extend(starting.iter().cloned());
    // A box that is up already is resumed and needs no further place.
    up.remove(name);
    let of_maker = up.values().filter(|it| *it == maker).count();
    check(up.len(), quota.boxes, "the tenant has")?;
    check(of_maker, own, "the principal that made this box has")?;
    starting.push((name.clone(), maker.clone()));
    Ok(Place(Some((Arc::clone(&tenant.places), name.clone()))))
}

/// Refuses another box when as many run as may.
fn check(count: usize, max: Option<u32>, whose: &str) -> Result<(), Problem> {
    let Some(max) = max.filter(|max| count >= usize::try_from(*max).unwrap_or(usize::MAX)) else {
        return Ok(());
    };
    let detail = format!("{whose} {count} running boxes, and {max} are permitted; stop one first");
    Err(Problem::new(ProblemKind::LIMIT, detail).retry_after(RETRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_below_the_limit_is_permitted_and_the_limit_itself_is_refused() {
        check(1, Some(2), "").unwrap();
        check(100, None, "").unwrap();
        for (count, max) in [(2, 2), (3, 2), (0, 0)] {
            let problem = check(count, Some(max), "the tenant has").unwrap_err();
            assert_eq!(problem.kind, ProblemKind::LIMIT, "{count} {max}");
        }
    }

    #[test]
    fn place_is_free_again_when_it_is_dropped() {
        let places = Arc::new(BoxPlaces::default());
        let (name, maker): (BoxName, Principal) =
            ("a-box".parse().unwrap(), "user:1".parse().unwrap());
        for _ in 0..2 {
            places.starting().push((name.clone(), maker.clone()));
        }
        drop(Place(Some((Arc::clone(&places), name))));
        assert_eq!(places.starting().len(), 1, "the other start of the same box keeps its place");
    }
}
