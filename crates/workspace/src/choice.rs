//! What the user chose to take over. Pure.

use std::collections::BTreeSet;
use std::fmt;

use belljar_model::glob::{matches_name, matches_path_or_parent};

use crate::path::{PathError, RelPath};

/// Which of the changes are meant, and how to settle those where both sides changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub paths: Pick,
    /// Marked entries (risky, new programs, links that lead out) to take over all the same.
    pub include_executable: Pick,
    /// Where both sides changed: take the box's.
    pub theirs: Pick,
    /// Where both sides changed: keep the host's. Wins over `theirs`.
    pub ours: Pick,
    /// What a rule of the user's keeps as it is, whatever else is chosen.
    pub denied: BTreeSet<RelPath>,
}

/// All, or what at least one pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    All,
    These(Vec<Pattern>),
}

/// A path that stands for itself and all beneath it, or a glob.
///
/// `*` and `?` stay within one name, `**` crosses directories. A glob without `/` matches a name at
/// any depth; every other pattern starts at the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<u8>);

impl Choice {
    /// Everything that needs no second look.
    pub const fn everything() -> Self {
        Self {
            paths: Pick::All,
            include_executable: Pick::none(),
            theirs: Pick::none(),
            ours: Pick::none(),
            denied: BTreeSet::new(),
        }
    }
}

impl Pick {
    pub const fn none() -> Self {
        Self::These(Vec::new())
    }

    pub fn matches(&self, path: &RelPath) -> bool {
        match self {
            Self::All => true,
            Self::These(patterns) => patterns.iter().any(|pattern| pattern.matches(path)),
        }
    }

    pub(crate) fn patterns(&self) -> &[Pattern] {
        match self {
            Self::All => &[],
            Self::These(patterns) => patterns,
        }
    }
}

impl Pattern {
    /// Takes what a person wrote; `./` and a trailing `/` make no difference.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Self, PathError> {
        Ok(Self(RelPath::new(text)?.as_bytes().to_vec()))
    }

    pub fn matches(&self, path: &RelPath) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let bytes = path.as_bytes();
        let is_glob = self.0.iter().any(|byte| matches!(byte, b'*' | b'?'));
        // A name given literally, stars and all, is that name.
        let literal = bytes.strip_prefix(self.0.as_slice());
        if literal.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            return true;
        }
        if !is_glob {
            return false;
        }
        if !self.0.contains(&b'/') && self.0 != b"**" {
            return path.parts().any(|part| matches_name(&self.0, part));
        }
        // Everything in a directory that matches also matches.
        matches_path_or_parent(&self.0, bytes)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&belljar_model::display::safe(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, expected: bool) {
        let matched = Pattern::new(pattern).unwrap().matches(&RelPath::new(path).unwrap());
        assert_eq!(matched, expected, "{pattern} on {path}");
    }

    #[test]
    fn a_path_stands_for_itself_and_all_beneath_it() {
        check("src", "src", true);
        check("./src/", "src/a/b", true);
        check("src", "srcs", false);
        check("src", "x/src", false);
        check(".", "anything/at/all", true);
        check("we[ird*", "we[ird*", true);
    }

    #[test]
    fn a_glob_without_a_slash_matches_a_name_anywhere() {
        check("*.sh", "a.sh", true);
        check("*.sh", "bin/a.sh", true);
        check("*.sh", "a.shx", false);
        check("hook?", ".git/hooks/pre", true);
        check("*", "a/b", true);
    }

    #[test]
    fn a_glob_with_a_slash_starts_at_the_workspace() {
        check("bin/*", "bin/a", true);
        check("bin/*", "bin/a/b", true);
        check("bin/*", "x/bin/a", false);
        check("bin/*.sh", "bin/sub/a.sh", false);
        check("**/bin/*.sh", "x/y/bin/a.sh", true);
        check("**/bin/*.sh", "bin/a.sh", true);
        check("**/bin/*.sh", "xbin/a.sh", false);
        check("a/**/z", "a/b/c/z", true);
        check("a/**/z", "a/z", true);
        check("a/**/z", "a/zz", false);
        check("a/**", "a/b", true);
        check("**", "a/b", true);
    }

    #[test]
    fn a_pattern_out_of_the_workspace_cannot_be_made() {
        assert!(Pattern::new("/etc").is_err());
        assert!(Pattern::new("../x").is_err());
    }
}
