//! The permissions of the tools of a `model` task. They follow the same rules as the permissions of agents.

use std::path::Path;

use belljar_box::Mask;
use belljar_model::permission::{Permission, Permissions};
use belljar_model::plan::{Executor, ModelTools};
use belljar_wire::ToolJob;

use super::Context;
use super::code::HEAP_PERCENT;
use crate::agents::masks;
use crate::error::EngineError;
use crate::supervisor::spec::Rules;

impl Context<'_> {
    /// Returns the tools of a task for its worker.
    pub(super) fn tool_job(
        &self,
        tools: &ModelTools,
        rules: &Rules,
    ) -> Result<ToolJob, EngineError> {
        let directory = tools.workspace.as_ref().map(|at| self.base.join(&at.directory));
        let permissions = self.permissions(tools, directory.as_deref(), &rules.template.name)?;
        let texts = |list: &[Permission]| {
            // The broker enforces the rules on hosts.
            let list = list.iter().filter(|rule| !matches!(rule, Permission::Net(_)));
            list.map(ToString::to_string).collect()
        };
        Ok(ToolJob {
            names: tools.names.iter().map(ToString::to_string).collect(),
            turns: tools.turns,
            memory: rules.template.limits.memory.as_u64() / 100 * HEAP_PERCENT,
            allow: texts(&permissions.allow),
            ask: texts(&permissions.ask),
            deny: texts(&permissions.deny),
            skips_all: permissions.skips_all(),
        })
    }

    /// Returns the masks of a box. The `deny` rules of a task with tools add to those of the operator.
    pub(super) fn masks_with_tools(
        &self,
        executor: &Executor,
        workspace: Option<&Path>,
        known: Vec<Mask>,
    ) -> Result<Vec<Mask>, EngineError> {
        let Executor::Model { tools: Some(tools), .. } = executor else { return Ok(known) };
        let Some(workspace) = workspace.filter(|_| !tools.deny.is_empty()) else {
            return Ok(known);
        };
        let permissions = self.permissions(tools, Some(workspace), self.plan.template())?;
        masks::find(&permissions, workspace)
    }

    /// Returns the rules of the operator, of the project and of the task.
    fn permissions(
        &self,
        tools: &ModelTools,
        workspace: Option<&Path>,
        template: &str,
    ) -> Result<Permissions, EngineError> {
        let (config, _) = self.state.load_config(workspace)?;
        let own = Permissions { deny: tools.deny.clone(), ..Permissions::default() };
        Ok(config.permissions(template).and(&own))
    }
}
