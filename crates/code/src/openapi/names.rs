//! How operations are called: `repos/list-for-org` is `repos.listForOrg`.

use std::collections::BTreeSet;

use crate::schema::identifier;

/// What every client has beside its operations.
const FIXED: [&str; 7] = ["fetch", "get", "post", "put", "patch", "delete", "head"];

/// The names that are taken, by group.
#[derive(Debug)]
pub(super) struct Taken(BTreeSet<(String, String)>);

/// A group, empty for none, and a name in it.
pub(super) type Called = (String, String);

impl Taken {
    pub(super) fn new() -> Self {
        Self(FIXED.iter().map(|name| (String::new(), (*name).to_owned())).collect())
    }

    /// A name that no other operation has.
    pub(super) fn claim(&mut self, (group, name): Called) -> Called {
        let is_free = |called: &Called| !self.0.contains(called);
        let candidates = std::iter::once(name.clone())
            .chain((2_usize..).map(|number| format!("{name}{number}")))
            .map(|name| (group.clone(), name));
        let called = candidates.into_iter().find(is_free).unwrap_or((group, name));
        self.0.insert(called.clone());
        called
    }
}

/// What an operation would like to be called.
pub(super) fn wish(id: Option<&str>, tag: Option<&str>, method: &str, path: &str) -> Called {
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

/// `GET /pets/{id}/toys` is `pets.getToysById`.
fn from_path(method: &str, path: &str) -> Called {
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

/// Words become one, each but the first with a capital.
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
        // A tag in capitals is one word.
        let is_shouted = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        match is_shouted && out.len() == 1 {
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
