//! Plans that clients send: their text, the contents of their inputs, and the paths of the host that they name.

use std::collections::BTreeMap;
use std::path::Path;

use belljar_engine::clones;
use belljar_engine::policy;
use belljar_engine::runs::{plans, submit};
use belljar_engine::scope::Scoped;
use belljar_model::Config;
use belljar_model::plan::{
    CheckedPlan, InputName, PathPurpose, Plan, PlanFaults, PlanPath, Text, check_syntax,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::identity::Identity;
use super::problem::{Problem, ProblemKind, of_state};
use super::rights;

/// The maximum length of a body with a plan.
pub(crate) const MAX_BODY: usize = 4 * 1024 * 1024;
/// The name of the text of a plan in faults. It is the name of a plan that has none.
const FILE: &str = "plan";
/// The maximum length of the content of an input in bytes, as of each text in a plan.
const MAX_INPUT: usize = 64 * 1024;
/// The maximum number of inputs of a request, as of a task.
const MAX_INPUTS: usize = 1000;

/// A plan with contents for its inputs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanRequest {
    /// The text of the plan, in TOML or JSON. All paths in it are absolute.
    #[schemars(length(min = 1, max = 4_194_304))]
    pub(crate) plan: String,
    /// Contents that replace those of inputs of the plan. The labels of the inputs stay.
    #[schemars(schema_with = "schema_of_inputs")]
    #[serde(default)]
    inputs: Option<BTreeMap<String, String>>,
}

fn schema_of_inputs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "propertyNames": { "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$" },
        "additionalProperties": { "type": "string", "maxLength": MAX_INPUT },
        "maxProperties": MAX_INPUTS,
    })
}

/// Why a plan is refused.
#[derive(Debug)]
pub(crate) enum PlanRefusal {
    /// The plan is invalid.
    Faults(PlanFaults),
    /// The plan is valid, but it cannot be carried out for the sender or in the current state.
    Other(Problem),
}

impl From<PlanFaults> for PlanRefusal {
    fn from(faults: PlanFaults) -> Self {
        Self::Faults(faults)
    }
}

impl From<Problem> for PlanRefusal {
    fn from(problem: Problem) -> Self {
        Self::Other(problem)
    }
}

impl From<PlanRefusal> for Problem {
    fn from(refusal: PlanRefusal) -> Self {
        match refusal {
            PlanRefusal::Faults(faults) => of_faults(&faults),
            PlanRefusal::Other(problem) => problem,
        }
    }
}

/// Returns the problem of an invalid plan, with the first fault.
pub(crate) fn of_faults(faults: &PlanFaults) -> Problem {
    let Some(first) = faults.list().first() else { return Problem::invalid("invalid plan") };
    let rest = faults.list().len().saturating_sub(1).saturating_add(faults.more());
    let more = match rest {
        0 => String::new(),
        rest => format!("; POST /v1/plans/check lists {rest} more"),
    };
    let detail = format!("line {} of the plan: {}{more}", first.line, first.reason);
    Problem::invalid(detail).field("/plan").line(first.line)
}

impl PlanRequest {
    /// Returns a request without inputs.
    pub(crate) const fn of_text(plan: String) -> Self {
        Self { plan, inputs: None }
    }

    /// Refuses a text that is neither TOML nor JSON.
    pub(crate) fn check_syntax(&self) -> Result<(), Problem> {
        check_syntax(&self.plan, FILE).map_err(|faults| of_faults(&faults))
    }

    /// Checks the plan with the configuration of the tenant and the rights of the sender. Blocks.
    pub(crate) fn check(
        &self,
        state: &Scoped,
        config: &Config,
        who: &Identity,
    ) -> Result<CheckedPlan, PlanRefusal> {
        let mut plan = Plan::parse(&self.plan, FILE)?;
        self.put_inputs(&mut plan)?;
        let paths = plan.paths();
        let is_relative = |path: &&PlanPath| !path.path.is_absolute();
        let relative = paths.iter().filter(is_relative).map(|path| {
            let PlanPath { of, purpose, line, .. } = path;
            (*line, format!("{of}: the path of the {} must be absolute", purpose.name()))
        });
        let relative = PlanFaults::of(FILE, relative);
        let ceiling = plans::ceiling_of(state.host(), config, &state.caller().tenant);
        let checked = plan.check(&ceiling.map_err(of_state)?);
        let checked = match (checked, relative) {
            (Ok(checked), None) => checked,
            (Ok(_), Some(faults)) | (Err(faults), None) => return Err(faults.into()),
            (Err(faults), Some(relative)) => return Err(faults.and(relative).into()),
        };
        submit::supported(&checked)
            .map_err(|error| PlanFaults::one(FILE, 1, format!("{error:#}")))?;
        check_paths(state, who, &paths)?;
        Ok(checked)
    }

    fn put_inputs(&self, plan: &mut Plan) -> Result<(), Problem> {
        let inputs = self.inputs.iter().flatten();
        for (name, content) in inputs {
            let at = |detail: &str| {
                let name = name.replace('~', "~0").replace('/', "~1");
                Problem::invalid(detail).field(format!("/inputs/{name}"))
            };
            if content.len() > MAX_INPUT {
                return Err(at("an input has at most 64 KiB"));
            }
            let known = name.parse::<InputName>().ok().and_then(|name| plan.inputs.get_mut(&name));
            let known = known.ok_or_else(|| at("the plan has no input with this name"))?;
            known.content = Text::Inline(content.clone());
        }
        Ok(())
    }
}

/// Checks that the sender may use all paths of the host that a plan names. Blocks.
///
/// Files are open to the user of the machine only: others send contents. A directory must be named without
/// symbolic links, because the plan keeps its path.
pub(crate) fn check_paths(
    state: &Scoped,
    who: &Identity,
    paths: &[PlanPath],
) -> Result<(), Problem> {
    if rights::is_user_of_the_machine(who) {
        return Ok(());
    }
    let listed = rights::listed_directories(state)?;
    for path in paths {
        let at = |problem: Problem| problem.field("/plan").line(path.line);
        if !path.purpose.is_directory() {
            let (of, noun) = (&path.of, path.purpose.name());
            let detail = format!(
                "{of}: the {noun} is a file of the host, which is not open to you; send its content"
            );
            return Err(at(Problem::new(ProblemKind::FORBIDDEN, detail)));
        }
        // The name decides first, so that the answer does not reveal which directories exist.
        rights::check_directory(who, &listed, &path.path).map_err(at)?;
        let found = resolved(state, path).map_err(at)?;
        rights::check_directory(who, &listed, &found).map_err(at)?;
        if found != path.path {
            let detail = format!("{}: name the directory without symbolic links", path.of);
            return Err(at(Problem::new(ProblemKind::FORBIDDEN, detail)));
        }
    }
    Ok(())
}

/// Returns a directory that a plan names, without symbolic links.
fn resolved(state: &Scoped, path: &PlanPath) -> Result<std::path::PathBuf, Problem> {
    let named: &Path = &path.path;
    Ok(match path.purpose {
        PathPurpose::Repository => {
            clones::find_source(state, named).map_err(of_state)?.path().to_owned()
        }
        PathPurpose::Workspace
        | PathPurpose::Overlay
        | PathPurpose::Input
        | PathPurpose::Prompt
        | PathPurpose::Program
        | PathPurpose::Schema => policy::open_workspace(state, named).map_err(of_state)?.path,
    })
}
