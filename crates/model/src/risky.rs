//! Files that the host could later execute, or that configure its tools (threats C01 to C08).
//!
//! A file written by a box is harmless until the user runs `git status`, opens the editor or types
//! `make`. The table lists the names of such files. `diff` marks them, `apply` leaves them out unless
//! they are named, and `direct` mode protects them whether or not they exist yet. A list never ends, so
//! `direct` mode applies only files that [`is_inert`] knows. Ordinary source code
//! is not listed: the user reviews it before running it. Files with an execute bit are not listed
//! either, because only the inode shows the bit.

mod fold;
mod inert;
mod table;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use fold::fold_component;
pub use inert::is_inert;
use table::GROUPS;

use crate::glob::matches_name;

/// One pattern of risky paths with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiskyRule {
    /// The path pattern: components separated by `/`. `*` matches any text within one component; a
    /// final `**` matches the directory itself and everything in it.
    pub pattern: &'static str,
    /// The reason why the path is risky on the host, as a text for users.
    pub why: &'static str,
    pub class: RiskClass,
    pub place: RulePlace,
}

/// How soon the host would execute a file or use it as configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RiskClass {
    /// The host executes the file automatically when the directory is opened, entered or listed:
    /// git, shells, editors, agents, CI.
    Automatic,
    /// The host executes the file when the user builds, tests or installs.
    OnBuild,
}

/// The directories of a workspace in which a pattern applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RulePlace {
    Root,
    Anywhere,
}

/// The file type of a protected path, for creating it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathKind {
    File,
    Dir,
}

/// The rule for a directory that git treats as a bare repository, with its own hooks and settings.
static BARE_REPOSITORY: RiskyRule = RiskyRule {
    pattern: "HEAD",
    why: "a directory that git treats as a repository, with its own hooks and settings",
    class: RiskClass::Automatic,
    place: RulePlace::Anywhere,
};

/// Returns the rules for risky paths, one per pattern, in matching order.
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

/// Returns the rule that a path matches if the host could execute or load the file.
///
/// Names are compared as on the most lenient file system: letter case, invisible characters, and
/// spaces or dots at the end of a name make no difference (threat C18).
pub fn classify(path: &[u8]) -> Option<&'static RiskyRule> {
    first_match(path, Rule::covers)
}

/// Returns the rule that a symbolic link matches, which is also risky in place of a parent
/// directory.
///
/// For example, a link named `.github` can bring in risky files with its target.
pub fn classify_link(path: &[u8]) -> Option<&'static RiskyRule> {
    first_match(path, |rule, rest| rule.covers(rest) || rule.is_below(rest))
}

/// Returns the rule for bare repositories if git would treat a directory with these names as one.
///
/// Then every file in the directory is risky (threat C05).
pub fn bare_repository<'a>(
    names: impl IntoIterator<Item = &'a [u8]>,
) -> Option<&'static RiskyRule> {
    let (mut head, mut store) = (false, false);
    for name in names {
        match fold_component(name).as_slice() {
            b"head" => head = true,
            // As is_git_directory() in git's setup.c, but one of the two is enough here, since the other
            // one can exist already or come with the next run.
            b"objects" | b"refs" | b"commondir" => store = true,
            _ => {}
        }
    }
    (head && store).then_some(&BARE_REPOSITORY)
}

/// Returns the fixed paths at the root of a workspace that `direct` mode protects, existing or not.
///
/// Patterns with a `*` have no fixed path. The list has no paths beneath its own directories.
pub fn protected_at_root() -> impl Iterator<Item = (&'static str, PathKind)> {
    static PATHS: LazyLock<Vec<(&str, PathKind)>> = LazyLock::new(|| {
        let mut paths: Vec<_> = rules().iter().filter_map(concrete).collect();
        let dirs: Vec<String> = paths
            .iter()
            .filter(|(_, kind)| *kind == PathKind::Dir)
            .map(|(path, _)| format!("{path}/"))
            .collect();
        paths.retain(|(path, _)| !dirs.iter().any(|dir| path.starts_with(dir)));
        paths
    });
    PATHS.iter().copied()
}

fn concrete(rule: &RiskyRule) -> Option<(&'static str, PathKind)> {
    let (path, kind) = match rule.pattern.strip_suffix("/**") {
        Some(dir) => (dir, PathKind::Dir),
        None => (rule.pattern, PathKind::File),
    };
    (!path.contains('*')).then_some((path, kind))
}

/// A rule for risky paths with its pattern split into components.
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

    /// Returns whether the rule matches the components at the end of a path.
    fn covers(&self, rest: &[Vec<u8>]) -> bool {
        let long_enough = if self.whole_tree {
            rest.len() >= self.components.len()
        } else {
            rest.len() == self.components.len()
        };
        long_enough && self.components_match(rest)
    }

    /// Returns whether the components at the end of a path are a parent directory of the rule's
    /// pattern.
    fn is_below(&self, rest: &[Vec<u8>]) -> bool {
        rest.len() < self.components.len() && self.components_match(rest)
    }

    fn components_match(&self, rest: &[Vec<u8>]) -> bool {
        let mut pairs = self.components.iter().zip(rest);
        pairs.all(|(pattern, name)| matches_name(pattern.as_bytes(), name))
    }
}

/// The rules for risky paths indexed by the first component of their pattern, so that few are tried
/// per path.
#[derive(Default)]
struct Index {
    literal: HashMap<Vec<u8>, Vec<Rule>>,
    /// The rules for the last component of a path alone, such as `*.mk`.
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
            let placed = at_root || rule.rule.place == RulePlace::Anywhere;
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
