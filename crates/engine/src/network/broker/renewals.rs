//! Refresh tokens that their servers exchange: sealed by the broker, stored by the supervisor.
//!
//! The broker has the key and no files; here are the files and no key. What it sealed takes the place
//! of what it was given, and of nothing else.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use belljar_broker::record::Renewed;
use belljar_broker::vault::store::Store;
use belljar_ledger::{Actor, Draft, SecretRenewed};
use belljar_model::RunId;
use belljar_model::net::{Grant, Policy, SecretDecl, SecretKind, SecretName};

use crate::record::LedgerHandle;

/// The vault, for the refresh tokens of one box.
#[derive(Debug)]
pub(super) struct Renewals {
    store: Store,
    names: BTreeSet<SecretName>,
}

impl Renewals {
    pub(super) fn new(store: Store, policy: &Policy) -> Self {
        let renewed = |decl: &&SecretDecl| {
            matches!(decl.kind, SecretKind::OAuth2 { grant: Grant::RefreshToken, .. })
        };
        let names = policy.secrets.iter().filter(renewed).map(|decl| decl.name.clone()).collect();
        Self { store, names }
    }

    /// Stores what the broker sealed, on record first: where that is in the ledger.
    pub(super) fn store(
        &self,
        ledger: &LedgerHandle,
        run: RunId,
        renewed: &Renewed,
    ) -> anyhow::Result<u64> {
        let Renewed { name, sealed, replaces, .. } = renewed;
        if !self.names.contains(name) {
            bail!("this box has no such refresh token");
        }
        let prepared = self.store.prepare_sealed(name, sealed, *replaces)?;
        let event = SecretRenewed { name: name.to_string() };
        let draft = Draft::new(event).of_run(run).by(Actor::Broker);
        let recorded = ledger.record(draft).context("put it on record")?;
        prepared.place(&recorded)?;
        Ok(recorded.index())
    }
}
