//! The attack suite of the embedding program. This crate does not link the suite.

use std::fmt;
use std::sync::Arc;

use belljar_engine::doctor::AttackResult;
use belljar_engine::error::EngineError;

/// Runs the attacks with these ids, or all attacks if there is no id. The second argument is called when an
/// attack has ended.
type RunAttacks =
    dyn Fn(&[String], &(dyn Fn() + Sync)) -> Result<Vec<AttackResult>, EngineError> + Send + Sync;

/// The attack suite.
#[derive(Clone)]
pub struct Prover {
    ids: Vec<&'static str>,
    run: Arc<RunAttacks>,
}

impl Prover {
    /// Creates a prover. `ids` are the ids of all attacks.
    pub fn new(
        ids: Vec<&'static str>,
        run: impl Fn(&[String], &(dyn Fn() + Sync)) -> Result<Vec<AttackResult>, EngineError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { ids, run: Arc::new(run) }
    }

    /// Returns the ids of all attacks.
    pub(crate) fn ids(&self) -> &[&'static str] {
        &self.ids
    }

    pub(crate) fn run(
        &self,
        only: &[String],
        ended: &(dyn Fn() + Sync),
    ) -> Result<Vec<AttackResult>, EngineError> {
        (self.run)(only, ended)
    }
}

impl fmt::Debug for Prover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prover").field("ids", &self.ids).finish_non_exhaustive()
    }
}
