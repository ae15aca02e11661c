//! The reader for `do`: the executor of a task.

use std::path::PathBuf;
use std::time::Duration;

use super::super::node::{Key, Node, NodeValue};
use super::super::{Base, Executor};
use super::task::{DAY, MAX_TIMEOUT};
use super::values::local_id;
use super::{Fields, Reader};
use crate::answer::{AnswerTerms, OperatorOnly};

/// Each executor: its keys, of which the first one names it.
const EXECUTORS: [(&str, &[&str]); 6] = [
    ("command", &["command", "workspace", "overlay"]),
    ("code", &["code", "code_file"]),
    ("agent", &["agent", "repo", "base", "prompt", "prompt_file"]),
    (
        "model",
        &[
            "model",
            "escalate",
            "prompt",
            "prompt_file",
            "max_tokens",
            "overflow",
            "tools",
            "turns",
            "workspace",
            "overlay",
            "deny",
        ],
    ),
    (
        "approval",
        &["approval", "apply", "deadline", "clears", "deny_when", "approver", "two_people"],
    ),
    ("stub", &["stub", "delay", "fail"]),
];

/// The maximum number of tiers after the first one.
const MAX_ESCALATE: usize = 8;
/// The longest time that an approval waits.
const MAX_DEADLINE: Duration = Duration::from_secs(30 * DAY);
const DEFAULT_DEADLINE: Duration = Duration::from_secs(DAY);

impl Reader<'_> {
    /// Reads an executor, and returns it with the entries of its table.
    pub(super) fn executor<'n>(&mut self, node: &'n Node) -> Option<(Executor, Fields<'n>)> {
        let NodeValue::Table(entries) = &node.value else {
            self.wrong("do", node, "must be a table, for example `{ command = [\"true\"] }`");
            return None;
        };
        let is_named =
            |name: &str, key: &Key| key.text == name || (name == "code" && key.text == "code_file");
        let named = EXECUTORS.iter().filter(|(name, _)| {
            let is_set = |(key, node): &(Key, Node)| {
                is_named(name, key) && (!node.is_null() || *name == "stub")
            };
            entries.iter().any(is_set)
        });
        let named: Vec<&(&'static str, &'static [&'static str])> = named.collect();
        match named.as_slice() {
            [(name, known)] => {
                self.only_in_gates(name, entries)?;
                let fields = self.fields("do", node, known)?;
                Some((self.one(name, node, &fields)?, fields))
            }
            [] => {
                let names: Vec<&'static str> = EXECUTORS.iter().map(|(name, _)| *name).collect();
                let all: Vec<&'static str> =
                    EXECUTORS.iter().flat_map(|(_, keys)| *keys).copied().collect();
                drop(self.fields("do", node, &all));
                let what = format!("no executor; write one of {}", names.join(", "));
                self.wrong("do", node, what);
                None
            }
            [(first, _), (second, _), ..] => {
                let what = format!("two executors, `{first}` and `{second}`; a task has one");
                self.wrong("do", node, what);
                None
            }
        }
    }

    /// Returns `None` after a fault if another executor than an approval has a key for labels.
    fn only_in_gates(&mut self, name: &str, entries: &[(Key, Node)]) -> Option<()> {
        let reasons = [
            ("clears", "only an approval can clear labels, because a person decides"),
            (
                "deny_when",
                "only an approval has it in a plan; secrets and rules have `deny-when` in belljar.toml",
            ),
        ];
        let mut is_valid = true;
        let set = entries.iter().filter(|(_, node)| name != "approval" && !node.is_null());
        for (key, _) in set {
            if let Some((named, reason)) = reasons.iter().find(|(named, _)| *named == key.text) {
                self.fault(key.at.start, format!("`{named}`: {reason}"));
                is_valid = false;
            }
        }
        is_valid.then_some(())
    }

    fn one(&mut self, name: &str, node: &Node, fields: &Fields<'_>) -> Option<Executor> {
        match name {
            "command" => self.command(fields),
            "code" => {
                let source = self.text_or_file(node, fields, "code", "code_file")?;
                Some(Executor::Code { source })
            }
            "agent" => {
                let agent = fields.get("agent").and_then(|node| self.parsed("agent", node));
                let repo = match fields.get("repo") {
                    Some(node) => self.path("repo", node),
                    None => Some(PathBuf::from(".")),
                };
                let base = match fields.get("base") {
                    Some(node) => self.base(node),
                    None => Some(Base::Revision("HEAD".to_owned())),
                };
                let prompt = self.text_or_file(node, fields, "prompt", "prompt_file");
                Some(Executor::Agent { agent: agent?, repo: repo?, base: base?, prompt: prompt? })
            }
            "model" => {
                let tier = fields.get("model").and_then(|node| self.parsed("model", node));
                let escalate = fields.get("escalate").and_then(|node| {
                    self.list("escalate", node, MAX_ESCALATE, |reader, node| {
                        reader.parsed("escalate", node)
                    })
                });
                let max_tokens = fields
                    .get("max_tokens")
                    .and_then(|node| self.whole("max_tokens", node, 1, u64::MAX));
                let prompt = self.text_or_file(node, fields, "prompt", "prompt_file");
                let escalate = escalate.unwrap_or_default();
                let overflow =
                    fields.get("overflow").and_then(|node| self.parsed("overflow", node));
                let overflow = overflow.unwrap_or_default();
                let tools = self.tools(fields);
                let (tier, prompt) = (tier?, prompt?);
                Some(Executor::Model { tier, escalate, prompt, max_tokens, overflow, tools })
            }
            "approval" => self.approval(fields),
            _ => {
                let output = fields.get("stub").and_then(|node| self.data("stub", node));
                let delay = fields
                    .get("delay")
                    .and_then(|node| self.time("delay", node, Duration::ZERO, MAX_TIMEOUT));
                let fail = fields.get("fail").and_then(|node| self.prose("fail", node));
                Some(Executor::Stub { output: output?, delay: delay.unwrap_or_default(), fail })
            }
        }
    }

    fn command(&mut self, fields: &Fields<'_>) -> Option<Executor> {
        let argv = fields.get("command").and_then(|node| self.argv("command", node));
        let workspace = self.workspace(fields);
        Some(Executor::Command { argv: argv?, workspace })
    }

    fn approval(&mut self, fields: &Fields<'_>) -> Option<Executor> {
        let question = fields.get("approval").and_then(|node| self.prose("approval", node));
        let second = Duration::from_secs(1);
        let deadline = fields
            .get("deadline")
            .and_then(|node| self.time("deadline", node, second, MAX_DEADLINE));
        let clears = fields.get("clears").and_then(|node| self.labels("clears", node));
        let deny_when = fields.get("deny_when").and_then(|node| self.labels("deny_when", node));
        let approver = fields.get("approver");
        let approver = approver.and_then(|node| self.parsed::<OperatorOnly>("approver", node));
        let two_people = fields.get("two_people").and_then(|node| self.boolean("two_people", node));
        Some(Executor::Approval {
            question: question?,
            apply: fields.get("apply").and_then(|node| self.task_id("apply", node)),
            deadline: deadline.unwrap_or(DEFAULT_DEADLINE),
            clears: clears.unwrap_or_default(),
            deny_when: deny_when.unwrap_or_default(),
            answers: AnswerTerms {
                operator: approver.is_some(),
                two_people: two_people.unwrap_or(false),
            },
        })
    }

    fn base(&mut self, node: &Node) -> Option<Base> {
        let text = self.text("base", node)?;
        if let Some(id) = text.strip_prefix("task:") {
            return self.result("base", node, local_id(id)).map(Base::Task);
        }
        // git(1) would read a leading `-` as an option.
        let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
        if text.is_empty()
            || text.len() > 256
            || text.starts_with('-')
            || !text.chars().all(is_plain)
        {
            self.wrong("base", node, "must be a branch, a commit or `task:ID`");
            return None;
        }
        Some(Base::Revision(text))
    }
}
