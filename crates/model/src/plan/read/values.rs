//! Readers for single values of a plan: texts, numbers, times, sizes, lists and data.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value as Json;

use super::super::node::{MAX_TEXT, Node, NodeValue};
use super::super::{Label, RunBudget, TaskId, Text};
use super::{Fields, Reader};
use crate::net::{Budget, SecretName};
use crate::size::ByteSize;
use crate::spec::Argv;
use crate::time::Timeout;

const BUDGET: [&str; 7] = ["calls", "tokens", "money", "time", "bytes", "boxes", "secrets"];
const SECRET_BUDGET: [&str; 4] = ["requests", "bytes", "tokens", "money"];

impl Reader<'_> {
    pub(super) fn text(&mut self, key: &str, node: &Node) -> Option<String> {
        let NodeValue::Text(text) = &node.value else {
            self.wrong(key, node, "must be a text");
            return None;
        };
        if text.len() > MAX_TEXT {
            self.wrong(key, node, too_long());
            return None;
        }
        Some(text.clone())
    }

    /// Reads a text that people see, which must not be empty.
    pub(super) fn prose(&mut self, key: &str, node: &Node) -> Option<String> {
        let text = self.text(key, node)?;
        if text.trim().is_empty() {
            self.wrong(key, node, "the text is empty");
            return None;
        }
        Some(text)
    }

    /// Reads a value that has a text form; a number is read by its digits.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &str, node: &Node) -> Option<T> {
        let text = self.digits_or_text(key, node)?;
        self.result(key, node, text.parse())
    }

    fn digits_or_text(&mut self, key: &str, node: &Node) -> Option<String> {
        match node.number() {
            Some(number) => Some(number.to_string()),
            None => self.text(key, node),
        }
    }

    pub(super) fn result<T, E: Display>(
        &mut self,
        key: &str,
        node: &Node,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong(key, node, error);
                None
            }
        }
    }

    pub(super) fn task_id(&mut self, key: &str, node: &Node) -> Option<TaskId> {
        let text = self.text(key, node)?;
        self.result(key, node, local_id(&text))
    }

    /// Reads a size, which can have a space before its unit.
    pub(super) fn size(&mut self, key: &str, node: &Node) -> Option<ByteSize> {
        let text = self.digits_or_text(key, node)?.replace(' ', "");
        self.result(key, node, text.parse())
    }

    pub(super) fn whole(&mut self, key: &str, node: &Node, min: u64, max: u64) -> Option<u64> {
        let number = node.number().and_then(serde_json::Number::as_u64);
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            let what = match max {
                u64::MAX => format!("must be a whole number of at least {min}"),
                max => format!("must be a whole number from {min} to {max}"),
            };
            self.wrong(key, node, what);
        }
        number
    }

    pub(super) fn boolean(&mut self, key: &str, node: &Node) -> Option<bool> {
        let NodeValue::Boolean(value) = &node.value else {
            self.wrong(key, node, "must be true or false");
            return None;
        };
        Some(*value)
    }

    /// Reads a time from `min` to `max`, for example `90s`.
    pub(super) fn time(
        &mut self,
        key: &str,
        node: &Node,
        min: Duration,
        max: Duration,
    ) -> Option<Duration> {
        let text = self.digits_or_text(key, node)?;
        let time = match text.replace(' ', "").as_str() {
            "0" | "0s" | "0ms" if min.is_zero() => Duration::ZERO,
            text => match self.result(key, node, text.parse::<Timeout>())? {
                Timeout(Some(time)) => time,
                Timeout(None) => {
                    self.wrong(key, node, "a limit is needed here; write for example \"10m\"");
                    return None;
                }
            },
        };
        if time < min || time > max {
            let (min, max) = (Timeout(Some(min)), Timeout(Some(max)));
            let what = match min.0 {
                Some(Duration::ZERO) | None => format!("must be at most {max}"),
                Some(_) => format!("must be from {min} to {max}"),
            };
            self.wrong(key, node, what);
            return None;
        }
        Some(time)
    }

    pub(super) fn path(&mut self, key: &str, node: &Node) -> Option<PathBuf> {
        let text = self.text(key, node)?;
        if text.is_empty() || text.contains('\0') || text.len() > 4096 {
            self.wrong(key, node, "must be the path of a file or a directory");
            return None;
        }
        Some(PathBuf::from(text))
    }

    /// Reads a list; invalid elements are recorded and omitted.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        node: &Node,
        max: usize,
        mut each: impl FnMut(&mut Self, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let NodeValue::List(nodes) = &node.value else {
            self.wrong(key, node, "must be a list");
            return None;
        };
        if nodes.len() > max {
            self.wrong(key, node, format!("{} entries; at most {max} are possible", nodes.len()));
            return None;
        }
        Some(nodes.iter().filter_map(|node| each(self, node)).collect())
    }

    pub(super) fn labels(&mut self, key: &str, node: &Node) -> Option<Vec<Label>> {
        self.list(key, node, 64, |reader, node| reader.parsed(key, node))
    }

    pub(super) fn argv(&mut self, key: &str, node: &Node) -> Option<Argv> {
        let NodeValue::List(nodes) = &node.value else {
            let what = "must be a list of the program and its arguments; no shell runs it";
            self.wrong(key, node, what);
            return None;
        };
        let words = self.list(key, node, usize::MAX, |reader, node| reader.text(key, node))?;
        if words.len() < nodes.len() {
            return None;
        }
        if words.first().is_some_and(String::is_empty) {
            self.wrong(key, node, "the name of the program is empty");
            return None;
        }
        self.result(key, node, Argv::new(words))
    }

    /// Reads data: any value of JSON, at most 64 KiB long.
    pub(super) fn data(&mut self, key: &str, node: &Node) -> Option<Json> {
        let data = match node.json() {
            Ok(data) => data,
            Err(at) => {
                self.fault(at, format!("`{key}`: JSON has no dates; write the date as a text"));
                return None;
            }
        };
        if data.to_string().len() > MAX_TEXT {
            self.wrong(key, node, too_long());
            return None;
        }
        Some(data)
    }

    /// Reads a text from one of two keys: the text itself, or the file that contains it.
    pub(super) fn text_or_file(
        &mut self,
        node: &Node,
        fields: &Fields<'_>,
        inline: &str,
        file: &str,
    ) -> Option<Text> {
        match (fields.get(inline), fields.get(file)) {
            (Some(node), None) => self.text(inline, node).map(Text::Inline),
            (None, Some(node)) => self.path(file, node).map(Text::File),
            (Some(_), Some(node)) => {
                self.wrong(file, node, format!("`{inline}` is already given; remove one of them"));
                None
            }
            (None, None) => {
                self.fault(node.at.start, format!("`{inline}` or `{file}` is missing"));
                None
            }
        }
    }

    /// Reads the budget of a run or of a task.
    pub(super) fn budget(&mut self, node: &Node, is_run: bool) -> Option<RunBudget> {
        let fields = self.fields("budget", node, &BUDGET)?;
        let mut number =
            |key, min| fields.get(key).and_then(|node| self.whole(key, node, min, u64::MAX));
        let (calls, tokens) = (number("calls", 0), number("tokens", 0));
        let boxes = match fields.get("boxes") {
            Some(node) if !is_run => {
                self.wrong("boxes", node, "only the budget of the run can have `boxes`");
                None
            }
            Some(node) => self.whole("boxes", node, 1, u64::from(u32::MAX)),
            None => None,
        };
        let ever = Duration::from_secs(u64::MAX);
        let shortest = Duration::from_millis(1);
        let secrets = fields.get("secrets").map(|node| self.entries("secrets", node));
        let mut of_secrets = std::collections::BTreeMap::new();
        for (key, node) in secrets.unwrap_or_default() {
            let Some(name) = self.name::<SecretName>("secret", key) else { continue };
            of_secrets.extend(self.secret_budget(node).map(|budget| (name, budget)));
        }
        Some(RunBudget {
            calls,
            tokens,
            money: fields.get("money").and_then(|node| self.parsed("money", node)),
            time: fields.get("time").and_then(|node| self.time("time", node, shortest, ever)),
            bytes: fields.get("bytes").and_then(|node| self.size("bytes", node)),
            boxes: boxes.and_then(|boxes| u32::try_from(boxes).ok()),
            secrets: of_secrets,
        })
    }

    fn secret_budget(&mut self, node: &Node) -> Option<Budget> {
        let fields = self.fields("secrets", node, &SECRET_BUDGET)?;
        let mut number = |key| fields.get(key).and_then(|node| self.whole(key, node, 0, u64::MAX));
        let (requests, tokens) = (number("requests"), number("tokens"));
        Some(Budget {
            requests,
            tokens,
            bytes: fields.get("bytes").and_then(|node| self.size("bytes", node)),
            money: fields.get("money").and_then(|node| self.parsed("money", node)),
        })
    }
}

/// Parses the id of a task of this plan. The message for an instance or for a task of another run says
/// that only whole tasks of the plan can be named.
pub(super) fn local_id(text: &str) -> Result<TaskId, String> {
    if text.contains(['/', ':', '.']) {
        return Err("a plan can name its own tasks only, by their ids".to_owned());
    }
    if let Some((id, _)) = text.split_once('[') {
        let id = super::super::fault::quote(id);
        return Err(format!("an instance cannot be named; write the id of the task, `{id}`"));
    }
    text.parse().map_err(|error: super::super::IdError| error.to_string())
}

fn too_long() -> String {
    format!("longer than {} KiB; write it into a file", MAX_TEXT >> 10)
}
