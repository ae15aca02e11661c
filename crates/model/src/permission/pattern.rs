//! File patterns in permissions.

use std::fmt;
use std::str::FromStr;

use crate::glob::matches_path_or_parent;
use crate::net::by_text;
use crate::risky::fold_component;

/// A pattern for file paths in a permission, as in a `.gitignore`.
///
/// `.env` matches at any depth, `/secrets` and `src/**` from the top of the workspace, `~/.npmrc` in
/// the home of the box. A pattern that matches a directory also matches everything in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePattern {
    text: String,
    place: FilePlace,
    /// The pattern relative to its directory, with folded names, for [`matches_path_or_parent`].
    glob: Vec<char>,
}

/// The directory to which a file pattern is relative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilePlace {
    Workspace,
    /// The home directory of the box, never the operator's home.
    Home,
}

/// The reason why a text is not a valid file pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilePatternError {
    #[error("the file pattern is empty; write `**` for every file of the workspace")]
    Empty,
    #[error(
        "the path must be relative to the workspace, or start with `~/` for the home of the box"
    )]
    Absolute,
    #[error("the path of a permission cannot contain `..` or `.`")]
    Dots,
    #[error(
        "only `*`, `**` and `?` are special; write `?` in place of any other special character"
    )]
    Character,
    #[error("the file pattern is longer than {MAX} characters")]
    TooLong,
}

const MAX: usize = 512;

impl FilePattern {
    pub fn place(&self) -> FilePlace {
        self.place
    }

    /// Returns whether a path relative to the top of the workspace matches, or is in a matching
    /// directory.
    ///
    /// Names are compared as on the most lenient file system (threat C18).
    pub fn covers(&self, path: &[u8]) -> bool {
        if self.place != FilePlace::Workspace {
            return false;
        }
        let names: Vec<String> = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(&fold_component(name)).into_owned())
            .collect();
        let path: Vec<char> = names.join("/").chars().collect();
        !names.is_empty() && matches_path_or_parent(&self.glob, &path)
    }
}

impl FromStr for FilePattern {
    type Err = FilePatternError;

    fn from_str(text: &str) -> Result<Self, FilePatternError> {
        if text.len() > MAX {
            return Err(FilePatternError::TooLong);
        }
        if text.starts_with("//") {
            return Err(FilePatternError::Absolute);
        }
        let (place, rest, from_the_top) = match text.strip_prefix("~/") {
            Some(rest) => (FilePlace::Home, rest, true),
            None => {
                let rest = text.strip_prefix("./").or_else(|| text.strip_prefix('/'));
                (FilePlace::Workspace, rest.unwrap_or(text), rest.is_some())
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() || rest == "~" {
            return Err(FilePatternError::Empty);
        }
        let mut parts = Vec::new();
        if !from_the_top && !rest.contains('/') {
            parts.push(DEEP.to_owned());
        }
        for name in rest.split('/') {
            parts.push(part(name)?);
        }
        // A pattern that matches a directory also matches everything in it.
        while parts.len() > 1 && parts.last().is_some_and(|part| part == DEEP) {
            parts.pop();
        }
        Ok(Self { text: text.to_owned(), place, glob: parts.join("/").chars().collect() })
    }
}

/// The pattern component that matches any number of directories.
const DEEP: &str = "**";

/// Parses one component of a path pattern: `**`, or a name with `*` and `?`, which is folded.
fn part(name: &str) -> Result<String, FilePatternError> {
    match name {
        DEEP => return Ok(DEEP.to_owned()),
        "" | "." | ".." => return Err(FilePatternError::Dots),
        _ => {}
    }
    if name.contains(['[', ']', '{', '}', '\\', '!']) || name.chars().any(char::is_control) {
        return Err(FilePatternError::Character);
    }
    let mut folded: Vec<char> =
        String::from_utf8_lossy(&fold_component(name.as_bytes())).chars().collect();
    // `**` matches several directories only as a whole component.
    folded.dedup_by(|next, last| (*next, *last) == ('*', '*'));
    Ok(folded.into_iter().collect())
}

impl fmt::Display for FilePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

by_text!(FilePattern);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let pattern: FilePattern = pattern.parse().unwrap();
        for path in yes {
            assert!(pattern.covers(path.as_bytes()), "{pattern} {path}");
        }
        for path in no {
            assert!(!pattern.covers(path.as_bytes()), "{pattern} {path}");
        }
    }

    #[test]
    fn file_patterns_match_paths_as_in_gitignore() {
        check(".env", &[".env", "a/.env", "a/b/.env", ".env/x", ".ENV"], &["x.env", ".envrc", ""]);
        check("/.env", &[".env"], &["a/.env"]);
        check("./.env", &[".env"], &["a/.env"]);
        check("src/**", &["src", "src/a", "src/a/b"], &["a/src", "srcs", "a/src/b"]);
        check("src/*", &["src/a", "src/a/b"], &["src", "x/src/a"]);
        check("**/secrets/*.key", &["secrets/a.key", "a/b/secrets/c.key"], &["secrets/a.pem"]);
        check("a/**/z", &["a/z", "a/b/z", "a/b/c/z", "a/z/more"], &["z", "b/a/z"]);
        check("**", &["a", "a/b"], &[""]);
        check("secrets/", &["secrets", "secrets/a", "x/secrets"], &["secret"]);
        check("?.txt", &["a.txt", "é.txt"], &["ab.txt", ".txt"]);
        check("~/.npmrc", &[], &[".npmrc"]);
    }

    #[test]
    fn c18_permission_matches_every_spelling_of_a_name() {
        check(".claude/**", &[".Claude/x", ".claude./x", ".cl\u{200c}aude/settings.json"], &[]);
    }

    #[test]
    fn invalid_file_pattern_is_refused_with_its_reason() {
        for (text, error) in [
            ("", FilePatternError::Empty),
            ("/", FilePatternError::Empty),
            ("~/", FilePatternError::Empty),
            ("//etc/passwd", FilePatternError::Absolute),
            ("a/../b", FilePatternError::Dots),
            ("a//b", FilePatternError::Dots),
            ("[ab]", FilePatternError::Character),
            ("{a,b}", FilePatternError::Character),
            ("!a", FilePatternError::Character),
        ] {
            assert_eq!(text.parse::<FilePattern>(), Err(error), "{text}");
        }
    }

    /// Matches a pattern by its definition, component by component, in exponential time.
    fn covers_by_definition(pattern: &str, path: &str) -> bool {
        fn covers(parts: &[&str], names: &[&str]) -> bool {
            match (parts, names) {
                ([], _) => true,
                ([DEEP, rest @ ..], _) => {
                    covers(rest, names) || !names.is_empty() && covers(parts, &names[1..])
                }
                ([part, rest @ ..], [name, below @ ..]) => {
                    let fold = |name: &str| fold_component(name.as_bytes());
                    crate::glob::matches_name(&fold(part), &fold(name)) && covers(rest, below)
                }
                (_, []) => false,
            }
        }
        let rest = pattern.strip_prefix('/').unwrap_or(pattern);
        let mut parts: Vec<&str> = rest.strip_suffix('/').unwrap_or(rest).split('/').collect();
        if rest == pattern && parts.len() == 1 {
            parts.insert(0, DEEP);
        }
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        !names.is_empty() && covers(&parts, &names)
    }

    proptest::proptest! {
        #[test]
        fn file_pattern_matches_a_path_if_its_components_match_one_by_one(
            pattern in "(a|b|[*]|[*][*]|[?]|/|[.]{3}|[*][*]/){1,6}",
            path in "(a|b|/|[.]{3}/?){0,8}",
        ) {
            if let Ok(read) = pattern.parse::<FilePattern>() {
                let covered = read.covers(path.as_bytes());
                proptest::prop_assert_eq!(covered, covers_by_definition(&pattern, &path));
            }
        }

        #[test]
        fn file_pattern_survives_a_round_trip(text in "[~./a-z*?\\[]{0,12}") {
            if let Ok(pattern) = text.parse::<FilePattern>() {
                proptest::prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
            }
        }
    }
}
