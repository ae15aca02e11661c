//! Stores renewed OAuth refresh tokens, which the broker encrypts and the supervisor writes to the vault.
//!
//! The broker has the key of the vault and no files. The supervisor has the files and no key. A renewed
//! token can replace only the token that the broker was given.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use belljar_broker::record::Renewed;
use belljar_broker::vault::store::Store;
use belljar_ledger::{Actor, Draft, SecretRenewed};
use belljar_model::RunId;
use belljar_model::net::{Grant, Policy, SecretDecl, SecretKind, SecretName};

use crate::record::LedgerHandle;

/// Writes renewed refresh tokens of one box to the vault.
#[derive(Debug)]
pub(super) struct Renewals {
    store: Store,
    names: BTreeSet<SecretName>,
}

impl Renewals {
    pub(super) fn new(store: Store, policy: &Policy) -> Self {
        let is_renewable = |decl: &&SecretDecl| {
            matches!(decl.kind, SecretKind::OAuth2 { grant: Grant::RefreshToken, .. })
        };
        let names =
            policy.secrets.iter().filter(is_renewable).map(|decl| decl.name.clone()).collect();
        Self { store, names }
    }

    /// Records the renewal in the ledger, stores the encrypted token, and returns the ledger index.
    pub(super) fn store(
        &self,
        ledger: &LedgerHandle,
        run: RunId,
        renewed: &Renewed,
    ) -> anyhow::Result<u64> {
        let Renewed { name, sealed, replaces, .. } = renewed;
        if !self.names.contains(name) {
            bail!("the box has no refresh token with this name");
        }
        let prepared = self.store.prepare_sealed(name, sealed, *replaces)?;
        let event = SecretRenewed { name: name.to_string() };
        let draft = Draft::new(event).of_run(run).by(Actor::Broker);
        let recorded = ledger.record(draft).context("cannot record the renewal in the ledger")?;
        prepared.place(&recorded)?;
        Ok(recorded.index())
    }
}
