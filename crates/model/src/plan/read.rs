//! The reader of plan files: converts the tree of a file to a [`Plan`] and collects all faults.
//!
//! A function that returns `None` has recorded a fault, or its value is missing. Missing and invalid
//! values both become the default, because a plan with a fault is never returned.

mod executor;
mod task;
mod tools;
mod values;

pub(super) use task::MAX_TIMEOUT;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use super::fault::{Collector, PlanFaults, quote};
use super::lines::{KeyLines, PlanLines};
use super::node::{self, Key, LineStarts, MAX_FILE, Node, NodeValue};
use super::{InputName, Plan, PlanInput, RunBudget, Task, TaskId};
use crate::config::nearest::nearest;
use crate::template::DEFAULT_TEMPLATE;

/// The maximum number of tasks, also after the expansion of `for_each`.
pub(super) const MAX_TASKS: usize = 10_000;

const ROOT: [&str; 2] = ["run", "task"];
const RUN: [&str; 5] = ["name", "template", "budget", "input", "answer"];
const INPUT: [&str; 3] = ["file", "text", "labels"];

impl Plan {
    /// The maximum size of a plan file in bytes.
    pub const MAX_FILE: usize = MAX_FILE;

    /// Parses a plan from TOML or JSON: by the extension of `file`, or else JSON if the text begins
    /// with `{`.
    ///
    /// `file` appears in faults, gives the plan its default name and is the base of relative paths in
    /// `box`. The references between tasks are checked by [`Plan::check`].
    pub fn parse(text: &str, file: &str) -> Result<Self, PlanFaults> {
        let mut faults = Collector::new(file);
        if text.len() > MAX_FILE {
            faults.add(1, || format!("the file is larger than {} MiB", MAX_FILE >> 20));
            return Err(faults.into_faults());
        }
        let starts = LineStarts::of(text);
        let Some(root) = node::read(text, file, &starts, &mut faults) else {
            return Err(faults.into_faults());
        };
        let is_json = node::is_json(text, file);
        let mut reader = Reader { text, file, is_json, starts, faults, context: String::new() };
        let plan = reader.plan(&root);
        reader.faults.finish(plan)
    }
}

/// Checks that a text is TOML or JSON, as [`Plan::parse`] reads it, without looking at its keys.
pub fn check_syntax(text: &str, file: &str) -> Result<(), PlanFaults> {
    let mut faults = Collector::new(file);
    let root = node::read(text, file, &LineStarts::of(text), &mut faults);
    if root.is_some() { Ok(()) } else { Err(faults.into_faults()) }
}

/// The state of reading one file.
struct Reader<'t> {
    text: &'t str,
    file: &'t str,
    is_json: bool,
    starts: LineStarts,
    faults: Collector,
    /// The beginning of each reason, for example the current task.
    context: String,
}

/// The entries of a table whose keys are all known, without those that are `null`.
struct Fields<'n>(Vec<(&'static str, &'n Key, &'n Node)>);

impl<'n> Fields<'n> {
    fn get(&self, key: &str) -> Option<&'n Node> {
        self.0.iter().find(|(name, _, _)| *name == key).map(|(_, _, node)| *node)
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

impl Reader<'_> {
    fn plan(&mut self, root: &Node) -> Plan {
        let mut lines = PlanLines { file: self.file.to_owned(), ..PlanLines::default() };
        let fields = self.fields("the file", root, &ROOT);
        let node = fields.as_ref().and_then(|fields| fields.get("task"));
        let tasks = node.map(|node| self.tasks(node, &mut lines)).unwrap_or_default();
        if self.faults.is_empty() && tasks.is_empty() {
            self.fault(0, "the plan has no tasks; write `[task.NAME]` with `do`");
        }
        let run = fields.as_ref().and_then(|fields| fields.get("run"));
        let plan = Plan {
            name: default_name(self.file),
            template: DEFAULT_TEMPLATE.to_owned(),
            budget: RunBudget::default(),
            inputs: BTreeMap::new(),
            answer: None,
            tasks,
            lines,
        };
        match run.and_then(|node| Some((node, self.fields("run", node, &RUN)?))) {
            Some((node, fields)) => self.run(plan, node, &fields),
            None => plan,
        }
    }

    fn run(&mut self, plan: Plan, node: &Node, fields: &Fields<'_>) -> Plan {
        let lines = PlanLines { run: self.key_lines(node.at.start, fields), ..plan.lines };
        let name = fields.get("name").and_then(|node| self.parsed::<TaskId>("name", node));
        let template = fields.get("template").and_then(|node| self.text("template", node));
        let budget = fields.get("budget").and_then(|node| self.budget(node, true));
        let inputs = fields.get("input").map(|node| self.inputs(node)).unwrap_or_default();
        Plan {
            name: name.map_or(plan.name, |name| name.to_string()),
            template: template.unwrap_or(plan.template),
            budget: budget.unwrap_or_default(),
            inputs,
            answer: fields.get("answer").and_then(|node| self.task_id("answer", node)),
            lines,
            ..plan
        }
    }

    fn inputs(&mut self, node: &Node) -> BTreeMap<InputName, PlanInput> {
        let mut inputs = BTreeMap::new();
        for (key, node) in self.entries("input", node) {
            let Some(name) = self.name::<InputName>("input", key) else { continue };
            let outer = std::mem::replace(&mut self.context, format!("input `{name}`: "));
            if let Some(fields) = self.fields(&key.text, node, &INPUT) {
                let content = self.text_or_file(node, &fields, "text", "file");
                let labels = fields.get("labels").and_then(|node| self.labels("labels", node));
                let labels = labels.unwrap_or_default();
                inputs.extend(content.map(|content| (name, PlanInput { content, labels })));
            }
            self.context = outer;
        }
        inputs
    }

    fn tasks(&mut self, node: &Node, lines: &mut PlanLines) -> Vec<Task> {
        let entries = self.entries("task", node);
        if entries.len() > MAX_TASKS {
            let count = entries.len();
            self.fault(node.at.start, format!("{count} tasks; at most {MAX_TASKS} are possible"));
            return Vec::new();
        }
        let mut tasks = Vec::new();
        for (key, node) in entries {
            let Some(id) = self.name::<TaskId>("task", key) else { continue };
            self.context = format!("task `{id}`: ");
            if let Some((task, of_task)) = self.task(id, key, node) {
                tasks.push(task);
                lines.tasks.push(of_task);
            }
            self.context.clear();
        }
        tasks
    }

    /// Parses the key of a table whose keys the user chooses.
    fn name<T: std::str::FromStr<Err: Display>>(&mut self, section: &str, key: &Key) -> Option<T> {
        match key.text.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                let text = quote(&key.text);
                self.fault(key.at.start, format!("{section} `{text}`: {error}"));
                None
            }
        }
    }

    /// Returns the entries of a table whose keys the user chooses.
    fn entries<'n>(&mut self, name: &str, node: &'n Node) -> Vec<(&'n Key, &'n Node)> {
        let NodeValue::Table(entries) = &node.value else {
            self.wrong(name, node, "must be a table");
            return Vec::new();
        };
        let entries = entries.iter().filter(|(_, node)| !node.is_null());
        entries.map(|(key, node)| (key, node)).collect()
    }

    /// Returns the entries of a table, and records its unknown keys as faults.
    fn fields<'n>(
        &mut self,
        name: &str,
        node: &'n Node,
        known: &[&'static str],
    ) -> Option<Fields<'n>> {
        let NodeValue::Table(entries) = &node.value else {
            self.wrong(name, node, "must be a table");
            return None;
        };
        let mut fields = Vec::new();
        for (key, node) in entries {
            match known.iter().find(|name| **name == key.text) {
                // `null` is data for these keys, and a missing value for all others.
                Some(name) if !node.is_null() || matches!(*name, "stub" | "equals") => {
                    fields.push((*name, key, node));
                }
                Some(_) => {}
                None => self.unknown(key, known),
            }
        }
        Some(Fields(fields))
    }

    fn unknown(&mut self, key: &Key, known: &[&'static str]) {
        let (context, line) = (&self.context, self.starts.line(key.at.start));
        self.faults.add(line, || {
            let text = quote(&key.text);
            let hint = match nearest(&key.text, known) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("the keys are {}", known.join(", ")),
            };
            format!("{context}unknown key `{text}`; {hint}")
        });
    }

    fn key_lines(&self, heading: usize, fields: &Fields<'_>) -> KeyLines {
        let line =
            |(name, key, _): &(&'static str, &Key, &Node)| (*name, self.starts.line(key.at.start));
        KeyLines { heading: self.starts.line(heading), keys: fields.0.iter().map(line).collect() }
    }

    /// Records that the value of a key is wrong, with a quote of the value.
    fn wrong(&mut self, key: &str, node: &Node, what: impl Display) {
        let value = self.quote(node.at.clone());
        let text = if matches!(node.value, NodeValue::Table(_)) && !value.starts_with('{') {
            format!("`{key}`: {what}")
        } else if self.is_json {
            format!("`\"{key}\": {value}`: {what}")
        } else {
            format!("`{key} = {value}`: {what}")
        };
        self.fault(node.at.start, text);
    }

    fn fault(&mut self, at: usize, reason: impl Display) {
        let (context, line) = (&self.context, self.starts.line(at));
        self.faults.add(line, || format!("{context}{reason}"));
    }

    fn quote(&self, at: Range<usize>) -> String {
        quote(self.text.get(at).unwrap_or_default())
    }
}

/// Returns the name of a file without its extension, as the name of a plan.
fn default_name(file: &str) -> String {
    let stem = std::path::Path::new(file).file_stem().and_then(|stem| stem.to_str());
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_') => c,
        _ => '-',
    };
    let name: String = stem.unwrap_or_default().chars().map(plain).take(63).collect();
    let name = name.trim_start_matches(['-', '_']).trim_end_matches('-');
    if name.is_empty() { "plan".to_owned() } else { name.to_owned() }
}
