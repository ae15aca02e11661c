//! Files that something on the host would later execute or be steered by (threats C01 to C08).
//!
//! What a box writes stays in its box, until a person runs `git status`, opens the editor or types
//! `make`. The table says which names those are. `diff` marks them, `apply` leaves them out unless
//! they are named, and `direct` mode protects them whether or not they exist yet. Ordinary source code
//! is not in it: whoever runs a program runs what was reviewed. Nor is a file with an execute bit,
//! which only its inode shows.

mod fold;
mod table;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use fold::fold_component;
use table::GROUPS;

use crate::glob::matches_name;

/// One name to watch for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiskyRule {
    /// Components divided by `/`. `*` stands for anything within one, a last `**` for the directory
    /// itself and all that is in it.
    pub pattern: &'static str,
    /// What would happen on the host, for a person.
    pub why: &'static str,
    pub class: RiskClass,
    pub place: Place,
}

/// How soon the host would act on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RiskClass {
    /// Unasked, by opening, entering or looking at the directory: git, shells, editors, agents, CI.
    Steers,
    /// When a person builds, tests or installs.
    Builds,
}

/// Where in a workspace a pattern counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    Root,
    Anywhere,
}

/// What a protected name is, when it has to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    File,
    Dir,
}

/// A directory that git would take for a repository, with hooks and a configuration of its own.
static BARE_REPOSITORY: RiskyRule = RiskyRule {
    pattern: "HEAD",
    why: "a directory that git takes for a repository, with hooks and settings of its own",
    class: RiskClass::Steers,
    place: Place::Anywhere,
};

/// The table, one rule per pattern, in the order in which they are tried.
pub fn rules() -> &'static [RiskyRule] {
    static RULES: LazyLock<Vec<RiskyRule>> = LazyLock::new(|| {
        let expand = |group: &table::Group| {
            let table::Group { class, place, why, patterns } = *group;
            patterns.split_whitespace().map(move |pattern| RiskyRule { pattern, why, class, place })
        };
        GROUPS.iter().flat_map(expand).collect()
    });
    &RULES
}

/// The rule for a path relative to the workspace, if something on the host would act on it.
///
/// Compared as the least exact file system would: letter case, invisible characters, and spaces or
/// dots at the end of a name make no difference (threat C18).
pub fn classify(path: &[u8]) -> Option<&'static RiskyRule> {
    first_match(path, Rule::covers)
}

/// As [`classify`], for a symbolic link: one in the place of a directory on the way to a risky file,
/// such as `.github`, brings that file with it.
pub fn classify_link(path: &[u8]) -> Option<&'static RiskyRule> {
    first_match(path, |rule, rest| rule.covers(rest) || rule.lies_beneath(rest))
}

/// Whether a directory with these names in it is one that git would take for a bare repository
/// (threat C05). Then every file in it is risky, not only the one named by the rule.
pub fn bare_repository<'a>(
    names: impl IntoIterator<Item = &'a [u8]>,
) -> Option<&'static RiskyRule> {
    let (mut head, mut store) = (false, false);
    for name in names {
        match fold_component(name).as_slice() {
            b"head" => head = true,
            // As is_git_directory() in git's setup.c; one of them is enough here, since the other
            // may be there already or come with the next run.
            b"objects" | b"refs" | b"commondir" => store = true,
            _ => {}
        }
    }
    (head && store).then_some(&BARE_REPOSITORY)
}

/// The concrete paths that `direct` mode protects at the root of a workspace, there or not. Patterns
/// with a `*` have none. Nothing beneath a directory of the list is in the list again.
pub fn protected_at_root() -> impl Iterator<Item = (&'static str, Kind)> {
    static PATHS: LazyLock<Vec<(&str, Kind)>> = LazyLock::new(|| {
        let mut paths: Vec<_> = rules().iter().filter_map(concrete).collect();
        let dirs: Vec<String> = paths
            .iter()
            .filter(|(_, kind)| *kind == Kind::Dir)
            .map(|(path, _)| format!("{path}/"))
            .collect();
        paths.retain(|(path, _)| !dirs.iter().any(|dir| path.starts_with(dir)));
        paths
    });
    PATHS.iter().copied()
}

fn concrete(rule: &RiskyRule) -> Option<(&'static str, Kind)> {
    let (path, kind) = match rule.pattern.strip_suffix("/**") {
        Some(dir) => (dir, Kind::Dir),
        None => (rule.pattern, Kind::File),
    };
    (!path.contains('*')).then_some((path, kind))
}

/// A rule with its pattern taken apart.
struct Rule {
    rule: &'static RiskyRule,
    order: usize,
    components: Vec<String>,
    whole_tree: bool,
}

impl Rule {
    fn new((order, rule): (usize, &'static RiskyRule)) -> Self {
        let (path, whole_tree) = match rule.pattern.strip_suffix("/**") {
            Some(dir) => (dir, true),
            None => (rule.pattern, false),
        };
        let components = path.split('/').map(str::to_ascii_lowercase).collect();
        Self { rule, order, components, whole_tree }
    }

    /// Whether the end of a path, from where the rule could begin, is what the rule names.
    fn covers(&self, rest: &[Vec<u8>]) -> bool {
        let long_enough = if self.whole_tree {
            rest.len() >= self.components.len()
        } else {
            rest.len() == self.components.len()
        };
        long_enough && self.agrees(rest)
    }

    /// Whether the end of a path is a directory above what the rule names.
    fn lies_beneath(&self, rest: &[Vec<u8>]) -> bool {
        rest.len() < self.components.len() && self.agrees(rest)
    }

    fn agrees(&self, rest: &[Vec<u8>]) -> bool {
        let mut pairs = self.components.iter().zip(rest);
        pairs.all(|(pattern, name)| matches_name(pattern.as_bytes(), name))
    }
}

/// The rules by the first component of their patterns, so that a path is not held against all.
#[derive(Default)]
struct Index {
    literal: HashMap<Vec<u8>, Vec<Rule>>,
    /// For the last component of a path alone, as `*.mk`.
    last: Vec<Rule>,
    globs: Vec<Rule>,
}

fn index() -> &'static Index {
    static INDEX: LazyLock<Index> = LazyLock::new(|| {
        let mut index = Index::default();
        for rule in rules().iter().enumerate().map(Rule::new) {
            let list = match rule.components.as_slice() {
                [first, ..] if !first.contains('*') => {
                    index.literal.entry(first.clone().into_bytes()).or_default()
                }
                [_] if !rule.whole_tree => &mut index.last,
                _ => &mut index.globs,
            };
            list.push(rule);
        }
        index
    });
    &INDEX
}

fn first_match(
    path: &[u8],
    applies: impl Fn(&Rule, &[Vec<u8>]) -> bool,
) -> Option<&'static RiskyRule> {
    let index = index();
    let components: Vec<Vec<u8>> = path
        .split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
        .map(fold_component)
        .collect();
    let mut best: Option<&Rule> = None;
    let mut rest = components.as_slice();
    while let [first, beneath @ ..] = rest {
        let at_root = rest.len() == components.len();
        let named = index.literal.get(first.as_slice()).map_or(&[][..], Vec::as_slice);
        let last = if beneath.is_empty() { index.last.as_slice() } else { &[] };
        for rule in named.iter().chain(&index.globs).chain(last) {
            let placed = at_root || rule.rule.place == Place::Anywhere;
            let sooner = best.is_none_or(|best| rule.order < best.order);
            if placed && sooner && applies(rule, rest) {
                best = Some(rule);
            }
        }
        rest = beneath;
    }
    best.map(|rule| rule.rule)
}

#[cfg(test)]
mod tests;
