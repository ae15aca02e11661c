//! Which files a permission is about.

use std::fmt;
use std::str::FromStr;

use crate::net::by_text;
use crate::risky::fold_component;

/// Files by name, as in a `.gitignore`: `.env` at any depth, `/secrets` and `src/**` from the top of the
/// workspace, `~/.npmrc` in the home of the box. What is in a directory that fits, fits too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePattern {
    text: String,
    place: FilePlace,
    parts: Vec<Part>,
}

/// Where the files of a pattern are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilePlace {
    Workspace,
    /// That of the box, never the operator's.
    Home,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    /// `**`: any number of directories.
    Deep,
    /// One name in small letters, with `*` and `?`.
    Name(String),
}

/// Why a text names no files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilePatternError {
    #[error("names no file; `**` is every file of the workspace")]
    Empty,
    #[error(
        "paths begin at the workspace, or with `~/` at the home of the box: nothing else of the host is in it"
    )]
    Absolute,
    #[error("`..` and `.` have no place in a path of the workspace")]
    Dots,
    #[error("there are `*`, `**` and `?`; write `?` where a name has another special character")]
    Character,
    #[error("longer than {MAX} characters")]
    TooLong,
}

const MAX: usize = 512;

impl FilePattern {
    pub fn place(&self) -> FilePlace {
        self.place
    }

    /// Whether a path of the workspace, relative to its top, is one of these files or lies in one of
    /// these directories. Compared as the least exact file system would (threat C18).
    pub fn covers(&self, path: &[u8]) -> bool {
        if self.place != FilePlace::Workspace {
            return false;
        }
        let names: Vec<String> = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(&fold_component(name)).into_owned())
            .collect();
        !names.is_empty() && self.fits_a_start_of(&names)
    }

    /// Whether some beginning of these names fits the whole pattern.
    fn fits_a_start_of(&self, names: &[String]) -> bool {
        // For each place in the pattern: whether what was read so far can have led there.
        let mut reached = vec![false; self.parts.len() + 1];
        reached.first_mut().into_iter().for_each(|first| *first = true);
        self.skip_deep(&mut reached);
        for name in names {
            let mut next = vec![false; reached.len()];
            for (at, part) in self.parts.iter().enumerate() {
                if !reached.get(at).copied().unwrap_or_default() {
                    continue;
                }
                let to = match part {
                    Part::Deep => at,
                    Part::Name(pattern) if fits(pattern, name) => at + 1,
                    Part::Name(_) => continue,
                };
                next.get_mut(to).into_iter().for_each(|place| *place = true);
            }
            self.skip_deep(&mut next);
            reached = next;
            if self.parts.is_empty() || reached.last().copied().unwrap_or_default() {
                return true;
            }
        }
        false
    }

    /// `**` may stand for no directory at all.
    fn skip_deep(&self, reached: &mut [bool]) {
        for (at, part) in self.parts.iter().enumerate() {
            if *part == Part::Deep && reached.get(at).copied().unwrap_or_default() {
                reached.get_mut(at + 1).into_iter().for_each(|place| *place = true);
            }
        }
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
            parts.push(Part::Deep);
        }
        for name in rest.split('/') {
            parts.push(part(name)?);
        }
        // What is in a directory that fits, fits anyway.
        while parts.last() == Some(&Part::Deep) {
            parts.pop();
        }
        Ok(Self { text: text.to_owned(), place, parts })
    }
}

fn part(name: &str) -> Result<Part, FilePatternError> {
    match name {
        "**" => return Ok(Part::Deep),
        "" | "." | ".." => return Err(FilePatternError::Dots),
        _ => {}
    }
    if name.contains(['[', ']', '{', '}', '\\', '!']) || name.chars().any(char::is_control) {
        return Err(FilePatternError::Character);
    }
    Ok(Part::Name(String::from_utf8_lossy(&fold_component(name.as_bytes())).into_owned()))
}

/// Whether a name fits a pattern, where `*` stands for any characters and `?` for one.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The last star, and how much of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || name.get(n) == Some(c) => (p, n) = (p + 1, n + 1),
            Some(_) | None => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
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
    fn patterns_read_as_those_of_git() {
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
    fn c18_another_spelling_of_the_same_name_is_no_way_around_a_permission() {
        check(".claude/**", &[".Claude/x", ".claude./x", ".cl\u{200c}aude/settings.json"], &[]);
    }

    #[test]
    fn what_names_no_files_says_why() {
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

    /// The same by a table of all beginnings of both, which has no special cases.
    fn fits_by_table(pattern: &str, name: &str) -> bool {
        let mut row: Vec<bool> = (0..=name.len()).map(|length| length == 0).collect();
        for sign in pattern.chars() {
            let mut next = vec![sign == '*' && row[0]];
            for (at, letter) in name.chars().enumerate() {
                next.push(match sign {
                    '*' => next[at] || row[at + 1],
                    '?' => row[at],
                    _ => row[at] && sign == letter,
                });
            }
            row = next;
        }
        row[name.len()]
    }

    proptest::proptest! {
        #[test]
        fn matching_agrees_with_a_table_of_all_prefixes(pattern in "[a*?]{0,40}", name in "[ab]{0,200}") {
            proptest::prop_assert_eq!(fits(&pattern, &name), fits_by_table(&pattern, &name));
        }

        #[test]
        fn a_pattern_survives_a_round_trip(text in "[~./a-z*?\\[]{0,12}") {
            if let Ok(pattern) = text.parse::<FilePattern>() {
                proptest::prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
            }
        }
    }
}
