//! A plan that was checked as a whole, in the form that is stored and committed to.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::check::Graph;
use super::{InputName, Plan, PlanInput, RunBudget, Task, TaskId};
use crate::template::Template;

/// The version of the stored form.
const FORMAT: u32 = 1;
/// The number of templates that are compared with a new one; tasks with the same template are usually
/// near each other.
const MAX_COMPARED: usize = 16;

/// A plan whose references, budgets and grants are correct. It never changes.
#[derive(Debug, Clone)]
pub struct CheckedPlan {
    content: Content,
    /// The positions of the tasks by their ids.
    index: HashMap<TaskId, usize>,
    graph: Graph,
}

/// The part of a checked plan that is stored; the rest follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    name: String,
    template: String,
    budget: RunBudget,
    inputs: BTreeMap<InputName, PlanInput>,
    answer: Option<TaskId>,
    tasks: Vec<Task>,
    /// The different templates of the boxes.
    templates: Vec<Template>,
    /// The position in `templates` for each task, or `None` for a task without a box.
    boxes: Vec<Option<usize>>,
}

/// The reason why a stored plan cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredPlanError {
    #[error("the stored plan is not valid JSON of a plan")]
    Malformed { source: serde_json::Error },
    #[error("the stored plan has format {found}; this version of Belljar reads format {FORMAT}")]
    Format { found: u32 },
    #[error("the tasks of the stored plan are incomplete or not in order")]
    Inconsistent,
}

impl PartialEq for CheckedPlan {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl CheckedPlan {
    /// Creates the plan from its checked parts; `templates` has one entry per task of `plan`.
    pub(super) fn new(plan: Plan, graph: &Graph, templates: Vec<Option<Template>>) -> Self {
        let (mut tasks, mut boxes): (Vec<Option<Task>>, Vec<Option<Template>>) =
            (plan.tasks.into_iter().map(Some).collect(), templates);
        let mut content = Content {
            format: FORMAT,
            name: plan.name,
            template: plan.template,
            budget: plan.budget,
            inputs: plan.inputs,
            answer: plan.answer,
            tasks: Vec::with_capacity(tasks.len()),
            templates: Vec::new(),
            boxes: Vec::with_capacity(tasks.len()),
        };
        for at in graph.order() {
            content.tasks.extend(tasks.get_mut(at).and_then(Option::take));
            let template = boxes.get_mut(at).and_then(Option::take);
            let place = template.map(|template| content.place_of(template));
            content.boxes.push(place);
        }
        Self::of(content)
    }

    fn of(content: Content) -> Self {
        let tasks = content.tasks.iter().enumerate();
        let index = tasks.map(|(at, task)| (task.id.clone(), at)).collect();
        Self { graph: Graph::of(&content.tasks), index, content }
    }

    /// Reads a plan from the text that [`CheckedPlan::canonical`] returned.
    ///
    /// The caller compares the text with its commitment first: budgets and grants are not checked again.
    pub fn stored(text: &str) -> Result<Self, StoredPlanError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let malformed = |source| StoredPlanError::Malformed { source };
        let Version { format } = serde_json::from_str(text).map_err(malformed)?;
        if format != FORMAT {
            return Err(StoredPlanError::Format { found: format });
        }
        let plan = Self::of(serde_json::from_str(text).map_err(malformed)?);
        plan.is_consistent().then_some(plan).ok_or(StoredPlanError::Inconsistent)
    }

    fn is_consistent(&self) -> bool {
        let Content { tasks, templates, boxes, .. } = &self.content;
        let edges = tasks.iter().flat_map(|task| task.data.iter().chain(&task.needs));
        let is_known = |source: &super::Source| match source {
            super::Source::Task(id) => self.index.contains_key(id),
            super::Source::Input(name) => self.content.inputs.contains_key(name),
        };
        let in_order = self.graph.order().into_iter().eq(0..tasks.len());
        in_order
            && self.index.len() == tasks.len()
            && boxes.len() == tasks.len()
            && boxes.iter().flatten().all(|place| *place < templates.len())
            && edges.map(|edge| &edge.from).all(is_known)
    }

    /// Returns the plan as JSON without whitespace and with sorted keys. Equal plans have equal texts.
    pub fn canonical(&self) -> String {
        // Serialization fails only for keys that are not text, which no type of a plan has.
        sorted(serde_json::to_value(&self.content).unwrap_or_default()).to_string()
    }

    pub fn name(&self) -> &str {
        &self.content.name
    }

    /// Returns the name of the operator's template.
    pub fn template(&self) -> &str {
        &self.content.template
    }

    pub const fn budget(&self) -> &RunBudget {
        &self.content.budget
    }

    pub const fn inputs(&self) -> &BTreeMap<InputName, PlanInput> {
        &self.content.inputs
    }

    pub const fn answer(&self) -> Option<&TaskId> {
        self.content.answer.as_ref()
    }

    /// Returns the tasks in topological order: each one follows those that it depends on.
    pub fn tasks(&self) -> &[Task] {
        &self.content.tasks
    }

    /// Returns the position of a task in [`CheckedPlan::tasks`].
    pub fn index(&self, id: &TaskId) -> Option<usize> {
        self.index.get(id).copied()
    }

    pub fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks().get(self.index(id)?)
    }

    /// Returns the positions of the tasks that the task at a position waits for, each once.
    pub fn dependencies(&self, task: usize) -> impl Iterator<Item = usize> {
        self.graph.dependencies(task)
    }

    /// Returns the positions of the tasks that wait for the task at a position, each once and sorted.
    pub fn dependents(&self, task: usize) -> &[usize] {
        self.graph.dependents(task)
    }

    /// Returns the template of the box of the task at a position, as the task tightened it. `None` for a
    /// task without a box.
    pub fn box_template(&self, task: usize) -> Option<&Template> {
        let place = self.content.boxes.get(task).copied().flatten()?;
        self.content.templates.get(place)
    }

    /// Returns the number of tasks with all instances of `for_each`; for lists that the run makes, their
    /// maximum.
    pub fn max_instances(&self) -> usize {
        self.tasks().iter().map(Task::max_instances).sum()
    }
}

impl Content {
    /// Returns the position of a template in `templates`, and adds it if it is not among the last ones.
    fn place_of(&mut self, template: Template) -> usize {
        let last = self.templates.iter().enumerate().rev().take(MAX_COMPARED);
        if let Some((place, _)) = last.into_iter().find(|(_, known)| **known == template) {
            return place;
        }
        self.templates.push(template);
        self.templates.len() - 1
    }
}

/// Returns a value whose objects have sorted keys, whatever order the map type keeps.
fn sorted(value: Json) -> Json {
    match value {
        Json::Array(values) => values.into_iter().map(sorted).collect(),
        Json::Object(object) => {
            let entries: BTreeMap<String, Json> =
                object.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Json::Object(entries.into_iter().collect())
        }
        value @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_)) => value,
    }
}
