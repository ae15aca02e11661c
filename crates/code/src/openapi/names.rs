//! Names of operations in programs: `repos/list-for-org` becomes `repos.listForOrg`.

use std::collections::BTreeSet;

use crate::schema::identifier;

/// The JavaScript methods that every client has in addition to its operations.
const FIXED: [&str; 7] = ["fetch", "get", "post", "put", "patch", "delete", "head"];

/// The names of operations that are already used, by group.
#[derive(Debug)]
pub(super) struct UsedNames(BTreeSet<(String, String)>);

/// The name of an operation: its group, which can be empty, and its name in this group.
pub(super) type OperationName = (String, String);

impl UsedNames {
    pub(super) fn new() -> Self {
        Self(FIXED.iter().map(|name| (String::new(), (*name).to_owned())).collect())
    }

    /// Reserves the name for an operation, with a number appended if the name is already used.
    pub(super) fn claim(&mut self, (group, name): OperationName) -> OperationName {
        let is_free = |name: &OperationName| !self.0.contains(name);
        let candidates = std::iter::once(name.clone())
            .chain((2_usize..).map(|number| format!("{name}{number}")))
            .map(|name| (group.clone(), name));
        let claimed = candidates.into_iter().find(is_free).unwrap_or((group, name));
        self.0.insert(claimed.clone());
        claimed
    }
}

/// Returns the name of an operation by its id, or by its method and path if it has no id.
pub(super) fn preferred_name(
    id: Option<&str>,
    tag: Option<&str>,
    method: &str,
    path: &str,
) -> OperationName {
    let id = id.filter(|id| id.chars().any(|c| c.is_ascii_alphanumeric()));
    let (group, name) = match id {
        Some(id) => match id.split_once('/').or_else(|| id.split_once('.')) {
            Some((group, name)) if !camel(group).is_empty() && !camel(name).is_empty() => {
                (camel(group), camel(name))
            }
            _ => (camel(tag.unwrap_or_default()), camel(id)),
        },
        None => from_path(method, path),
    };
    let group = match group.as_str() {
        "" => String::new(),
        group if FIXED.contains(&group) => format!("{group}_"),
        group => identifier(group),
    };
    (group, identifier(&name))
}

/// Derives an operation name from method and path: `GET /pets/{id}/toys` becomes
/// `pets.getToysById`.
fn from_path(method: &str, path: &str) -> OperationName {
    let is_parameter = |part: &&str| part.starts_with('{');
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut plain = parts.iter().copied().filter(|part| !is_parameter(part));
    let group = camel(plain.next().unwrap_or_default());
    let mut words = vec![method.to_ascii_lowercase()];
    words.extend(plain.map(str::to_owned));
    let parameters: Vec<&str> = parts.iter().copied().filter(is_parameter).collect();
    if !parameters.is_empty() {
        words.push("by".to_owned());
        words.extend(parameters.iter().map(|part| (*part).to_owned()));
    }
    (group, camel(&words.join(" ")))
}

/// Converts words to camel case: `list for org` becomes `listForOrg`.
pub(super) fn camel(text: &str) -> String {
    const MAX: usize = 60;
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'));
    let mut out = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        let mut letters = word.chars();
        let first = letters.next().unwrap_or_default();
        match out.is_empty() {
            true => out.push(first.to_ascii_lowercase()),
            false => out.push(first.to_ascii_uppercase()),
        }
        // A tag in capitals is one word: `PETS` becomes `pets`.
        let is_upper_case = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        match is_upper_case && out.len() == 1 {
            true => out.push_str(&letters.as_str().to_ascii_lowercase()),
            false => out.push_str(letters.as_str()),
        }
        if out.len() > MAX {
            break;
        }
    }
    out.truncate(MAX);
    out
}
