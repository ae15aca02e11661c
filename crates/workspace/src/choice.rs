//! The user's selection of changes to apply. Pure.

use std::collections::BTreeSet;
use std::fmt;

use belljar_model::glob::{matches_name, matches_path_or_parent};

use crate::path::{PathError, RelPath};

/// Which changes to apply, and how to resolve conflicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub paths: Pick,
    /// The marked changes (risky files, new executables, links out of the workspace) that are
    /// applied as well.
    pub include_executable: Pick,
    /// The paths for which a conflict is resolved with the box's version.
    pub theirs: Pick,
    /// The paths for which a conflict is resolved with the host's version. Takes precedence over
    /// `theirs`.
    pub ours: Pick,
    /// The paths that a permission rule of the user protects from changes. They are never applied.
    pub denied: BTreeSet<RelPath>,
    /// Whether only files that are known to be inert are applied, as in direct mode.
    pub only_inert: bool,
}

/// All paths, or the paths that at least one pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    All,
    These(Vec<Pattern>),
}

/// A pattern for changed paths: a path, which also matches everything beneath it, or a glob.
///
/// `*` and `?` match within one name, `**` crosses directories. A glob without `/` matches a name
/// at any depth; every other pattern starts at the workspace root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Vec<u8>,
    /// Whether the pattern is a path only. A box can choose names with `*`.
    is_literal: bool,
}

impl Choice {
    /// Returns the choice of every change that is not marked.
    pub const fn everything() -> Self {
        Self {
            paths: Pick::All,
            include_executable: Pick::none(),
            theirs: Pick::none(),
            ours: Pick::none(),
            denied: BTreeSet::new(),
            only_inert: false,
        }
    }
}

impl Pick {
    /// Selects no path.
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
    /// Parses a pattern for changed paths; a leading `./` and a trailing `/` are ignored.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Self, PathError> {
        Ok(Self { text: RelPath::new(text)?.as_bytes().to_vec(), is_literal: false })
    }

    /// Returns a pattern that matches a path and everything beneath it, and no other path.
    pub fn literal(path: &RelPath) -> Self {
        Self { text: path.as_bytes().to_vec(), is_literal: true }
    }

    pub fn matches(&self, path: &RelPath) -> bool {
        if self.text.is_empty() {
            return true;
        }
        let bytes = path.as_bytes();
        let is_glob = !self.is_literal && self.text.iter().any(|byte| matches!(byte, b'*' | b'?'));
        // A pattern that equals the name matches, even if the name contains `*`.
        let literal = bytes.strip_prefix(self.text.as_slice());
        if literal.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            return true;
        }
        if !is_glob {
            return false;
        }
        if !self.text.contains(&b'/') && self.text != b"**" {
            return path.parts().any(|part| matches_name(&self.text, part));
        }
        // A pattern that matches a directory also matches everything in it.
        matches_path_or_parent(&self.text, bytes)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&belljar_model::display::safe(&self.text))
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
    fn a_path_pattern_matches_the_path_and_everything_beneath_it() {
        check("src", "src", true);
        check("./src/", "src/a/b", true);
        check("src", "srcs", false);
        check("src", "x/src", false);
        check(".", "anything/at/all", true);
        check("we[ird*", "we[ird*", true);
    }

    #[test]
    fn glob_without_a_slash_matches_a_file_name_at_any_depth() {
        check("*.sh", "a.sh", true);
        check("*.sh", "bin/a.sh", true);
        check("*.sh", "a.shx", false);
        check("hook?", ".git/hooks/pre", true);
        check("*", "a/b", true);
    }

    #[test]
    fn glob_with_a_slash_matches_from_the_workspace_root() {
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
    fn c10_literal_pattern_with_a_name_like_a_glob_matches_only_this_name() {
        let path = |text: &str| RelPath::new(text).unwrap();
        for name in ["*", "**", "a?", "a/*"] {
            let literal = Pattern::literal(&path(name));
            assert!(
                literal.matches(&path(name)) && literal.matches(&path(name).join(b"x").unwrap())
            );
            for other in ["ab", "b", "a/b"] {
                assert!(!literal.matches(&path(other)), "{name} on {other}");
            }
            let is_glob = |other| Pattern::new(name).unwrap().matches(&path(other));
            assert!(["ab", "b", "a/b"].into_iter().any(is_glob), "control: {name}");
        }
    }

    #[test]
    fn path_pattern_outside_the_workspace_is_refused() {
        assert!(Pattern::new("/etc").is_err());
        assert!(Pattern::new("../x").is_err());
    }
}
