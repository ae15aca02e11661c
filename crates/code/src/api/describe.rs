//! A service in words for a model: little at first, and more about what it asks for.

use std::collections::BTreeMap;

use belljar_model::net::Method;
use belljar_model::plain::plain;

use super::{PRELUDE, Service, ServiceError};
use crate::openapi::{self, Operation};

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What it is, and all operations if they are not too many.
    Overview,
    /// Operations in which these words are.
    Search(String),
    /// One operation with its types.
    Operation(String),
}

/// Signatures that an overview shows; above that, groups with their numbers.
const MAX_SHOWN: usize = 80;
/// Operations that a search shows.
const MAX_FOUND: usize = 40;
/// So few are shown with their types at once.
const MAX_WHOLE: usize = 2;
/// Of a file with types.
const MAX_TYPES: usize = 24 << 10;

impl Service {
    /// What a model is told about a service.
    pub fn describe(&self, ask: &Ask) -> Result<String, ServiceError> {
        let operations = self.document.as_ref().map(|it| it.operations()).unwrap_or_default();
        match ask {
            Ask::Overview => Ok(self.overview(&operations)),
            Ask::Search(words) => Ok(self.found(&operations, words)),
            Ask::Operation(asked) => self.whole(&operations, asked),
        }
    }

    fn overview(&self, operations: &[Operation<'_>]) -> String {
        let api = &self.api;
        let (name, called) = (&api.name, api.name.identifier());
        let mut out = format!("# {name}\n\n");
        let mut say = |line: String| {
            out.push_str(&line);
            out.push('\n');
        };
        if let Some(description) = &api.description {
            say(format!("{}\n", plain(description).text));
        }
        if let Some(base) = &self.base {
            say(format!("Base address: {base}"));
        }
        let rules: Vec<String> = api.allow.iter().map(|rule| rule.what.to_string()).collect();
        say(format!("Reaches: {}", rules.join("; ")));
        if !api.restricted.is_empty() && !api.yolo {
            let methods: Vec<&str> = api.restricted.iter().map(Method::as_str).collect();
            say(format!("Refused methods: {}", methods.join(", ")));
        }
        if !self.auth.is_empty() {
            say("Credentials are added by themselves; send none.".to_owned());
        }
        if let Some(reference) = &api.reference {
            say(format!("Reference: {}", plain(reference).text));
        }
        if !api.examples.is_empty() {
            say("\n## Examples\n".to_owned());
            for example in &api.examples {
                say(format!("```ts\n{}\n```", plain(example).text.trim_end()));
            }
        }
        say(String::new());
        if operations.is_empty() {
            say(format!("## Types of apis.{called}\n\n```ts\n{PRELUDE}```"));
        } else {
            say(self.listed(operations));
        }
        if let Some(types) = &self.types {
            let types = plain(types).text;
            let cut = types.char_indices().nth(MAX_TYPES).map_or(types.len(), |(at, _)| at);
            let types = types.get(..cut).unwrap_or_default().trim_end();
            say(format!("\n## Types\n\n```ts\n{types}\n```"));
        }
        out
    }

    fn listed(&self, operations: &[Operation<'_>]) -> String {
        let called = self.api.name.identifier();
        let mut out = format!(
            "## Operations\n\nCall `await apis.{called}.GROUP.NAME({{…}})`: one object with all \
             parameters and `body`; gives the parsed answer, throws ApiError {{status, body, \
             headers}}. For anything else: `apis.{called}.get(path, {{query}})`, post, put, \
             patch, delete, head, fetch.\n\n"
        );
        if operations.len() <= MAX_SHOWN {
            for operation in operations {
                out.push_str(&format!("- {}\n", openapi::signature(operation)));
            }
            out.push_str("\nAsk with `operation` for the types of one.\n");
            return out;
        }
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for operation in operations {
            groups.entry(&operation.group).or_default().push(&operation.name);
        }
        for (group, names) in groups {
            const FEW: usize = 12;
            let some: Vec<&str> = names.iter().copied().take(FEW).collect();
            let more = match names.len().saturating_sub(FEW) {
                0 => String::new(),
                more => format!(", … {more} more"),
            };
            let group = if group.is_empty() { "(no group)" } else { group };
            out.push_str(&format!("- {group}: {}{more}\n", some.join(", ")));
        }
        out.push_str(&format!(
            "\n{} operations. Ask with `search` for signatures, with `operation` for the types of one.\n",
            operations.len()
        ));
        out
    }

    fn found(&self, operations: &[Operation<'_>], words: &str) -> String {
        let words: Vec<String> = words.split_whitespace().take(16).map(str::to_lowercase).collect();
        let mut found: Vec<(usize, &Operation<'_>)> = Vec::new();
        for operation in operations {
            let score = words.iter().try_fold(0, |sum, word| Some(sum + score(operation, word)?));
            found.extend(score.filter(|_| !words.is_empty()).map(|score| (score, operation)));
        }
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let name = &self.api.name;
        if found.is_empty() {
            return format!("No operation of {name} has all of these words.\n");
        }
        let whole = self.document.as_ref().filter(|_| found.len() <= MAX_WHOLE);
        let mut out = String::new();
        for (_, operation) in found.iter().take(MAX_FOUND) {
            out.push_str(&format!("- {}\n", openapi::signature(operation)));
        }
        if found.len() > MAX_FOUND {
            out.push_str(&format!("… and {} more; use more words.\n", found.len() - MAX_FOUND));
        }
        for (_, operation) in found.iter().filter(|_| whole.is_some()) {
            out.extend(whole.map(|it| format!("\n```ts\n{}```\n", openapi::one(it, operation))));
        }
        out
    }

    fn whole(&self, operations: &[Operation<'_>], asked: &str) -> Result<String, ServiceError> {
        let prefix = format!("apis.{}.", self.api.name.identifier());
        let wanted = asked.trim().trim_end_matches("()");
        let wanted = wanted.strip_prefix(&prefix).unwrap_or(wanted);
        let found = operations.iter().find(|it| it.called() == wanted);
        match (found, &self.document) {
            (Some(operation), Some(document)) => {
                let line = openapi::signature(operation);
                Ok(format!("{line}\n\n```ts\n{}```\n", openapi::one(document, operation)))
            }
            _ => {
                let near = |it: &&Operation<'_>| {
                    it.name.eq_ignore_ascii_case(wanted.rsplit('.').next().unwrap_or(wanted))
                };
                let near: Vec<String> =
                    operations.iter().filter(near).take(5).map(Operation::called).collect();
                let advice = match (near.is_empty(), operations.is_empty()) {
                    (false, _) => format!("there is {}", near.join(", ")),
                    (true, true) => {
                        "it has no OpenAPI document; use get, post and so on".to_owned()
                    }
                    (true, false) => "ask with `search`".to_owned(),
                };
                let asked = plain(asked).text.chars().take(100).collect();
                Err(ServiceError::NoOperation { api: self.api.name.to_string(), asked, advice })
            }
        }
    }
}

/// How well a word fits an operation; none if it does not.
fn score(operation: &Operation<'_>, word: &str) -> Option<usize> {
    let has = |text: &str| text.to_lowercase().contains(word);
    let words = [operation.summary, operation.description];
    match () {
        () if operation.name.eq_ignore_ascii_case(word) => Some(8),
        () if has(&operation.name) => Some(5),
        () if has(&operation.group) => Some(4),
        () if has(operation.path) || operation.method.eq_ignore_ascii_case(word) => Some(3),
        () if words.iter().flatten().any(|text| has(text)) => Some(1),
        () => None,
    }
}
