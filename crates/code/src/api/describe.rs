//! Descriptions of services for models: a short overview, search results, and single operations.

use std::collections::BTreeMap;

use belljar_model::net::Method;
use belljar_model::plain::plain;

use super::{PRELUDE, Service, ServiceError};
use crate::openapi::{self, Operation};

/// The part of a service that a description covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiQuery {
    /// The service itself, and its operations or groups of operations.
    Overview,
    /// The operations of the service that contain all of these words.
    Search(String),
    /// One operation of the service by name, with its types.
    Operation(String),
}

/// The maximum number of operation signatures in the overview of a service. A larger service is
/// listed by groups.
const MAX_SHOWN: usize = 80;
/// The maximum number of operations in a search result.
const MAX_FOUND: usize = 40;
/// The maximum number of search results that are shown with their types.
const MAX_WHOLE: usize = 2;
/// The maximum number of characters shown from the operator's type file.
const MAX_TYPES: usize = 24 << 10;

impl Service {
    /// Returns the description of the service that a model receives.
    pub fn describe(&self, ask: &ApiQuery) -> Result<String, ServiceError> {
        let operations = self.document.as_ref().map(|it| it.operations()).unwrap_or_default();
        match ask {
            ApiQuery::Overview => Ok(self.overview(&operations)),
            ApiQuery::Search(words) => Ok(self.search_results(&operations, words)),
            ApiQuery::Operation(asked) => self.operation_details(&operations, asked),
        }
    }

    fn overview(&self, operations: &[Operation<'_>]) -> String {
        let api = &self.api;
        let (name, called) = (&api.name, api.name.identifier());
        let mut out = format!("# {name}\n\n");
        let mut add_line = |line: String| {
            out.push_str(&line);
            out.push('\n');
        };
        if let Some(description) = &api.description {
            add_line(format!("{}\n", plain(description).text));
        }
        if let Some(base) = &self.base {
            add_line(format!("Base address: {base}"));
        }
        let rules: Vec<String> = api.allow.iter().map(|rule| rule.what.to_string()).collect();
        add_line(format!("Reaches: {}", rules.join("; ")));
        if !api.restricted.is_empty() && !api.yolo {
            let methods: Vec<&str> = api.restricted.iter().map(Method::as_str).collect();
            add_line(format!("Refused methods: {}", methods.join(", ")));
        }
        if !self.auth.is_empty() {
            add_line("Credentials are added automatically; send none.".to_owned());
        }
        if let Some(reference) = &api.reference {
            add_line(format!("Reference: {}", plain(reference).text));
        }
        if !api.examples.is_empty() {
            add_line("\n## Examples\n".to_owned());
            for example in &api.examples {
                add_line(format!("```ts\n{}\n```", plain(example).text.trim_end()));
            }
        }
        add_line(String::new());
        if operations.is_empty() {
            add_line(format!("## Types of apis.{called}\n\n```ts\n{PRELUDE}```"));
        } else {
            add_line(self.operation_list(operations));
        }
        if let Some(types) = &self.types {
            let types = plain(types).text;
            let cut = types.char_indices().nth(MAX_TYPES).map_or(types.len(), |(at, _)| at);
            let types = types.get(..cut).unwrap_or_default().trim_end();
            add_line(format!("\n## Types\n\n```ts\n{types}\n```"));
        }
        out
    }

    fn operation_list(&self, operations: &[Operation<'_>]) -> String {
        let called = self.api.name.identifier();
        let mut out = format!(
            "## Operations\n\nCall `await apis.{called}.GROUP.NAME({{…}})`: one object with all \
             parameters and `body`; returns the parsed response, throws ApiError {{status, body, \
             headers}}. For anything else: `apis.{called}.get(path, {{query}})`, post, put, \
             patch, delete, head, fetch.\n\n"
        );
        if operations.len() <= MAX_SHOWN {
            for operation in operations {
                out.push_str(&format!("- {}\n", openapi::signature(operation)));
            }
            out.push_str("\nUse `operation` to see the types of one operation.\n");
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
            "\n{} operations. Use `search` to see signatures and `operation` to see the types of one operation.\n",
            operations.len()
        ));
        out
    }

    fn search_results(&self, operations: &[Operation<'_>], words: &str) -> String {
        let words: Vec<String> = words.split_whitespace().take(16).map(str::to_lowercase).collect();
        let mut found: Vec<(usize, &Operation<'_>)> = Vec::new();
        for operation in operations {
            let score = words.iter().try_fold(0, |sum, word| Some(sum + score(operation, word)?));
            found.extend(score.filter(|_| !words.is_empty()).map(|score| (score, operation)));
        }
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let name = &self.api.name;
        if found.is_empty() {
            return format!("No operation of {name} contains all of these words.\n");
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

    fn operation_details(
        &self,
        operations: &[Operation<'_>],
        asked: &str,
    ) -> Result<String, ServiceError> {
        let prefix = format!("apis.{}.", self.api.name.identifier());
        let wanted = asked.trim().trim_end_matches("()");
        let wanted = wanted.strip_prefix(&prefix).unwrap_or(wanted);
        let found = operations.iter().find(|it| it.full_name() == wanted);
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
                    operations.iter().filter(near).take(5).map(Operation::full_name).collect();
                let advice = match (near.is_empty(), operations.is_empty()) {
                    (false, _) => format!("did you mean {}?", near.join(", ")),
                    (true, true) => {
                        "the api has no OpenAPI document; use `get`, `post` and so on".to_owned()
                    }
                    (true, false) => "find its name with `search`".to_owned(),
                };
                let asked = plain(asked).text.chars().take(100).collect();
                Err(ServiceError::NoOperation { api: self.api.name.to_string(), asked, advice })
            }
        }
    }
}

/// Returns how well a word matches an operation, or `None` if it does not match.
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
