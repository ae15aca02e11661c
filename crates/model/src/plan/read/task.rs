//! The reader for one task.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::lines::{KeyLines, TaskLines};
use super::super::node::{Key, Node, NodeValue};
use super::super::{
    Check, Edge, Executor, ForEach, OnCrash, OutputKind, OutputSpec, Source, Task, TaskId, Test,
    When,
};
use super::values::local_id;
use super::{Fields, Reader};
use crate::config::parse::{ParsedOverrides, overrides};
use crate::net::json_pointer;
use crate::size::ByteSize;
use crate::template::Overrides;

pub(super) const DAY: u64 = 24 * 60 * 60; // seconds

/// The longest timeout of a box, and the longest delay of a stub.
pub(in super::super) const MAX_TIMEOUT: Duration = Duration::from_secs(7 * DAY);
/// The maximum number of data edges of a task.
const MAX_DATA: usize = 1_000;
/// The maximum number of order edges of a task: all other tasks.
const MAX_NEEDS: usize = super::MAX_TASKS;
/// The maximum number of items of `for_each`.
const MAX_ITEMS: u32 = 1_000;
const MAX_ATTEMPTS: u64 = 10;
const MAX_CHECKS: usize = 8;
const MAX_DONE: usize = 100;
/// The longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5 * 60);
const DEFAULT_BACKOFF: Duration = Duration::from_secs(2);
const MAX_OUTPUT: ByteSize = ByteSize::mib(64);

const TASK: [&str; 14] = [
    "do", "data", "needs", "output", "when", "for_each", "attempts", "backoff", "on_crash", "done",
    "check", "box", "budget", "labels",
];
const OUTPUT: [&str; 3] = ["type", "schema", "max"];
const WHEN: [&str; 5] = ["of", "at", "equals", "in", "exists"];
const FOR_EACH: [&str; 4] = ["values", "of", "at", "max"];
const CHECK: [&str; 6] = ["schema", "command", "model", "verify", "prompt", "prompt_file"];

impl Reader<'_> {
    pub(super) fn task(&mut self, id: TaskId, key: &Key, node: &Node) -> Option<(Task, TaskLines)> {
        let fields = self.fields(&key.text, node, &TASK)?;
        let mut lines =
            TaskLines { keys: self.key_lines(key.at.start, &fields), ..TaskLines::default() };
        let executor = match fields.get("do") {
            Some(node) => self.executor(node),
            None => {
                self.fault(key.at.start, "`do` is missing; it names what carries out the task");
                None
            }
        };
        if let Some((_, of_executor)) = &executor {
            lines.keys.keys.extend(self.key_lines(0, of_executor).keys);
        }
        let executor = executor.map(|(executor, _)| executor);
        let kind = executor.as_ref().map_or(OutputKind::Text, default_output);
        let (data, of_data) = self.edges("data", &fields, MAX_DATA);
        let (needs, of_needs) = self.edges("needs", &fields, MAX_NEEDS);
        (lines.data, lines.needs) = (of_data, of_needs);
        let (checks, of_checks) = self.checks(&fields);
        lines.checks = of_checks;
        let overrides = fields.get("box").map(|node| self.overrides(node, &mut lines.overrides));
        let output = fields.get("output").and_then(|node| self.output(node, kind));
        let attempts =
            fields.get("attempts").and_then(|node| self.whole("attempts", node, 1, MAX_ATTEMPTS));
        let backoff = fields
            .get("backoff")
            .and_then(|node| self.time("backoff", node, Duration::ZERO, MAX_BACKOFF));
        let done = fields.get("done").and_then(|node| {
            self.list("done", node, MAX_DONE, |reader, node| reader.prose("done", node))
        });
        let task = Task {
            id,
            data,
            needs,
            output: output.unwrap_or_else(|| default_spec(kind)),
            when: fields.get("when").and_then(|node| self.when(node)),
            for_each: fields.get("for_each").and_then(|node| self.for_each(node)),
            attempts: attempts.and_then(|it| u32::try_from(it).ok()).unwrap_or(1),
            backoff: backoff.unwrap_or(DEFAULT_BACKOFF),
            on_crash: fields
                .get("on_crash")
                .and_then(|node| self.on_crash(node))
                .unwrap_or(OnCrash::Evidence),
            done: done.unwrap_or_default(),
            checks,
            overrides: overrides.unwrap_or_default(),
            budget: fields
                .get("budget")
                .and_then(|node| self.budget(node, false))
                .unwrap_or_default(),
            labels: fields
                .get("labels")
                .and_then(|node| self.labels("labels", node))
                .unwrap_or_default(),
            executor: executor?,
        };
        Some((task, lines))
    }

    /// Reads `data` or `needs`, and returns the edges with their lines.
    fn edges(&mut self, key: &str, fields: &Fields<'_>, max: usize) -> (Vec<Edge>, Vec<usize>) {
        let Some(node) = fields.get(key) else { return (Vec::new(), Vec::new()) };
        let mut seen = BTreeSet::new();
        let edges = self.list(key, node, max, |reader, node| {
            let text = reader.text(key, node)?;
            let edge = reader.result(key, node, edge(&text, key == "data"))?;
            if !seen.insert(edge.from.clone()) {
                reader.wrong(key, node, "named twice");
            }
            Some((edge, reader.starts.line(node.at.start)))
        });
        edges.unwrap_or_default().into_iter().unzip()
    }

    fn output(&mut self, node: &Node, default: OutputKind) -> Option<OutputSpec> {
        if matches!(node.value, NodeValue::Text(_)) {
            return Some(OutputSpec { kind: self.kind("output", node)?, ..default_spec(default) });
        }
        let fields = self.fields("output", node, &OUTPUT)?;
        let kind = match fields.get("type") {
            Some(node) => self.kind("type", node)?,
            None => default,
        };
        let schema = fields.get("schema").and_then(|node| self.path("schema", node));
        if let (Some(node), true) = (fields.get("schema"), kind != OutputKind::Json) {
            self.wrong("schema", node, "only possible with `type = \"json\"`");
        }
        let max = fields.get("max").and_then(|node| {
            let max = self.size("max", node)?;
            if max > MAX_OUTPUT {
                self.wrong("max", node, format!("must be at most {MAX_OUTPUT}"));
            }
            Some(max)
        });
        let max = max.unwrap_or(default_spec(kind).max);
        Some(OutputSpec { kind, schema, max })
    }

    fn kind(&mut self, key: &str, node: &Node) -> Option<OutputKind> {
        let kinds = [
            ("text", OutputKind::Text),
            ("json", OutputKind::Json),
            ("bytes", OutputKind::Bytes),
            ("branch", OutputKind::Branch),
            ("choice", OutputKind::Choice),
        ];
        self.word(key, node, &kinds)
    }

    fn on_crash(&mut self, node: &Node) -> Option<OnCrash> {
        let choices =
            [("evidence", OnCrash::Evidence), ("rerun", OnCrash::Rerun), ("ask", OnCrash::Ask)];
        self.word("on_crash", node, &choices)
    }

    /// Reads one of some words.
    fn word<T: Copy>(&mut self, key: &str, node: &Node, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key, node)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(key, node, format!("must be one of {}", words.join(", ")));
        }
        found
    }

    fn when(&mut self, node: &Node) -> Option<When> {
        let fields = self.fields("when", node, &WHEN)?;
        let equals = fields.get("equals").map(|node| self.data("equals", node).map(Test::Equals));
        let any_of = fields.get("in").map(|node| {
            let list = self.list("in", node, 1_000, |reader, node| reader.data("in", node));
            list.map(Test::In)
        });
        let exists =
            fields.get("exists").map(|node| self.boolean("exists", node).map(Test::Exists));
        let mut tests: Vec<Option<Test>> = [equals, any_of, exists].into_iter().flatten().collect();
        if tests.len() != 1 {
            self.wrong("when", node, "write exactly one of `equals`, `in` and `exists`");
            return None;
        }
        let (of, at) = self.reference("when", node, &fields)?;
        Some(When { of, at, test: tests.pop().flatten()? })
    }

    /// Reads `of` and `at`: a place in the output of a task.
    fn reference(
        &mut self,
        key: &str,
        node: &Node,
        fields: &Fields<'_>,
    ) -> Option<(TaskId, String)> {
        let at = fields.get("at").map(|node| {
            let text = self.text("at", node)?;
            match text.is_empty() {
                true => Some(text),
                false => self.result("at", node, json_pointer(&text)),
            }
        });
        let Some(of) = fields.get("of") else {
            self.wrong(key, node, "`of` is missing; it names the task whose output counts");
            return None;
        };
        let of = self.task_id("of", of);
        // Without `at`, the whole output counts.
        Some((of?, at.unwrap_or_else(|| Some(String::new()))?))
    }

    fn for_each(&mut self, node: &Node) -> Option<ForEach> {
        let fields = self.fields("for_each", node, &FOR_EACH)?;
        let Some(values) = fields.get("values") else {
            let max = fields.get("max").map(|node| self.whole("max", node, 1, MAX_ITEMS.into()));
            let max = max.unwrap_or(Some(MAX_ITEMS.into()));
            let (of, at) = self.reference("for_each", node, &fields)?;
            return Some(ForEach::Output { of, at, max: u32::try_from(max?).ok()? });
        };
        if fields.has("of") || fields.has("at") || fields.has("max") {
            self.wrong("for_each", node, "`values` cannot be combined with `of`, `at` and `max`");
            return None;
        }
        let max = usize::try_from(MAX_ITEMS).unwrap_or(usize::MAX);
        let values =
            self.list("values", values, max, |reader, node| reader.data("values", node))?;
        if values.is_empty() && self.faults.is_empty() {
            self.wrong("for_each", node, "`values` is empty");
        }
        Some(ForEach::Values(values))
    }

    /// Reads the checks, and returns them with their lines.
    fn checks(&mut self, fields: &Fields<'_>) -> (Vec<Check>, Vec<usize>) {
        let Some(node) = fields.get("check") else { return (Vec::new(), Vec::new()) };
        let checks = self.list("check", node, MAX_CHECKS, |reader, node| {
            Some((reader.check(node)?, reader.starts.line(node.at.start)))
        });
        checks.unwrap_or_default().into_iter().unzip()
    }

    fn check(&mut self, node: &Node) -> Option<Check> {
        let fields = self.fields("check", node, &CHECK)?;
        let kinds = ["schema", "command", "model", "verify"];
        let named: Vec<&str> = kinds.into_iter().filter(|kind| fields.has(kind)).collect();
        let [kind] = named.as_slice() else {
            let reason = "write exactly one of `schema`, `command`, `model` and `verify`";
            self.wrong("check", node, reason);
            return None;
        };
        if *kind != "model" && (fields.has("prompt") || fields.has("prompt_file")) {
            self.wrong("check", node, "only a check by a model has a prompt");
            return None;
        }
        let value = fields.get(kind)?;
        match *kind {
            "schema" => self.path(kind, value).map(Check::Schema),
            "command" => self.argv(kind, value).map(Check::Command),
            "verify" => self.argv(kind, value).map(Check::Verify),
            _ => {
                let tier = self.parsed(kind, value);
                let prompt = self.text_or_file(node, &fields, "prompt", "prompt_file");
                Some(Check::Model { tier: tier?, prompt: prompt? })
            }
        }
    }

    fn overrides(&mut self, node: &Node, lines: &mut KeyLines) -> Overrides {
        if !matches!(node.value, NodeValue::Table(_)) {
            self.wrong("box", node, "must be a table with keys of a template");
            return Overrides::default();
        }
        let Some(value) = node.toml(self.text) else {
            self.wrong("box", node, "must not contain `null` or a date");
            return Overrides::default();
        };
        let file = match self.file {
            "-" => PathBuf::new(),
            file => Path::new(file).to_owned(),
        };
        let ParsedOverrides { overrides, keys, faults } = overrides(self.text, &file, &value);
        for (at, fault) in faults {
            self.fault(at, format!("`box`: {fault}"));
        }
        lines.heading = self.starts.line(node.at.start);
        lines.keys = keys.into_iter().map(|(key, at)| (key, self.starts.line(at))).collect();
        if overrides.timeout.is_some_and(|timeout| timeout.0.is_none_or(|it| it > MAX_TIMEOUT)) {
            let days = MAX_TIMEOUT.as_secs() / DAY;
            let line = lines.line("timeout");
            let context = &self.context;
            self.faults.add(line, || format!("{context}`timeout` of `box`: at most {days}d"));
        }
        overrides
    }
}

/// Parses an edge: `id`, `id?` or `input.name`.
fn edge(text: &str, is_data: bool) -> Result<Edge, String> {
    let (name, optional) = match text.strip_suffix('?') {
        Some(name) => (name, true),
        None => (text, false),
    };
    let Some(input) = name.strip_prefix("input.") else {
        return Ok(Edge { from: Source::Task(local_id(name)?), optional });
    };
    if optional {
        return Err("an input always exists; remove the `?`".to_owned());
    }
    if !is_data {
        return Err("an input is data; write it into `data`".to_owned());
    }
    let name = input.parse().map_err(|error: super::super::IdError| error.to_string())?;
    Ok(Edge { from: Source::Input(name), optional })
}

/// Returns the type of output that an executor has without `output`.
fn default_output(executor: &Executor) -> OutputKind {
    match executor {
        Executor::Agent { .. } => OutputKind::Branch,
        Executor::Code { .. } => OutputKind::Json,
        Executor::Stub { output, .. } if !output.is_string() => OutputKind::Json,
        Executor::Command { .. }
        | Executor::Model { .. }
        | Executor::Approval { .. }
        | Executor::Stub { .. } => OutputKind::Text,
    }
}

const fn default_spec(kind: OutputKind) -> OutputSpec {
    OutputSpec { kind, schema: None, max: ByteSize::mib(1) }
}
