//! Checks the output that a person gives for a lost attempt.

use belljar_model::plan::OutputKind;

use super::executors::Context;
use super::machine::TaskRef;

impl Context<'_> {
    /// Returns why a content cannot be the output of a task.
    pub(super) fn check_output(&self, of: &TaskRef, content: &[u8]) -> Result<(), String> {
        let Some(task) = self.plan.task(&of.task) else {
            return Err("the plan has no such task".to_owned());
        };
        let limit = task.output.max;
        if content.len() as u64 > limit.as_u64() {
            return Err(format!("it is larger than {limit}, the limit of the plan"));
        }
        if task.output.kind == OutputKind::Branch {
            return Err("only an agent can make a branch; use --rerun or --failed".to_owned());
        }
        self.selections(of, content).map(drop)
    }
}
