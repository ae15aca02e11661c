//! What the user chose to take over. Pure.

use std::collections::BTreeSet;
use std::fmt;

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
            return path.parts().any(|part| glob(&self.0, part));
        }
        // Each directory above the path in turn: what it matches, everything in it matches.
        let ends = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
        ends.chain([bytes.len()]).any(|end| bytes.get(..end).is_some_and(|top| glob(&self.0, top)))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&belljar_model::display::safe(&self.0))
    }
}

/// Matches the whole text. Keeps one place to come back to for `*` and one for `**`, which is enough
/// because a later star of the same kind can do all that an earlier one could.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut double: Option<(usize, usize)> = None;
    while t < text.len() || p < pattern.len() {
        let here = text.get(t).copied();
        match pattern.get(p) {
            Some(b'*') if pattern.get(p + 1) == Some(&b'*') => {
                // `**/x` also means `x` itself.
                let slash = usize::from(pattern.get(p + 2) == Some(&b'/') && at_part(text, t));
                double = Some((p, t));
                star = None;
                p += 2 + slash;
                continue;
            }
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(b'?') if here.is_some_and(|byte| byte != b'/') => {
                (p, t) = (p + 1, t + 1);
                continue;
            }
            Some(&byte) if here == Some(byte) && byte != b'?' => {
                (p, t) = (p + 1, t + 1);
                continue;
            }
            Some(_) | None => {}
        }
        if let Some((at, from)) = star
            && text.get(from).is_some_and(|&byte| byte != b'/')
        {
            star = Some((at, from + 1));
            (p, t) = (at + 1, from + 1);
        } else if let Some((at, from)) = double
            && from < text.len()
        {
            let from = from + 1;
            let slash = usize::from(pattern.get(at + 2) == Some(&b'/') && at_part(text, from));
            double = Some((at, from));
            star = None;
            (p, t) = (at + 2 + slash, from);
        } else {
            return false;
        }
    }
    true
}

/// Whether a part of the path starts at `at`.
fn at_part(text: &[u8], at: usize) -> bool {
    at == 0 || text.get(at - 1) == Some(&b'/')
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

    /// The plain definition, slow and surely right.
    fn by_definition(pattern: &[u8], text: &[u8], at: usize) -> bool {
        match (pattern, text.get(at)) {
            ([], here) => here.is_none(),
            ([b'*', b'*', b'/', rest @ ..], _)
                if at_part(text, at) && by_definition(rest, text, at) =>
            {
                true
            }
            ([b'*', b'*', rest @ ..], here) => {
                by_definition(rest, text, at)
                    || here.is_some() && by_definition(pattern, text, at + 1)
            }
            ([b'*', rest @ ..], here) => {
                by_definition(rest, text, at)
                    || here.is_some_and(|&byte| byte != b'/')
                        && by_definition(pattern, text, at + 1)
            }
            ([b'?', rest @ ..], Some(&byte)) => byte != b'/' && by_definition(rest, text, at + 1),
            ([first, rest @ ..], Some(byte)) => first == byte && by_definition(rest, text, at + 1),
            (_, None) => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn globs_match_as_defined(pattern in "(a|b|[*]|[*][*]|[*][*]/|[?]|a/|b/){0,6}", text in "(a|b|a/|b/){0,8}") {
            // Three stars in a row mean nothing that two do not.
            proptest::prop_assume!(!pattern.contains("***"));
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            proptest::prop_assert_eq!(glob(pattern, text), by_definition(pattern, text, 0));
        }
    }
}
