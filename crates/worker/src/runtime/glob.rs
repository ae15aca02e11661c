//! Path patterns with `*`, `?`, `[…]` and `{a,b}` in names, and `**` for directories.
//!
//! This module handles braces and directories. [`belljar_model::glob`] matches single names.

use std::collections::HashSet;
use std::path::Path;

use belljar_model::glob::matches_name_with_classes;

/// The maximum number of paths in the result of a glob search.
const MAX_PATHS: usize = 100_000;

/// Returns the paths below a directory that match a glob pattern, sorted. They are relative to
/// `from` unless the pattern is absolute.
pub(crate) fn find(from: &Path, pattern: &str) -> Vec<String> {
    let mut search = Search::default();
    for pattern in alternatives(pattern) {
        search.seen.clear();
        let (start, shown, rest) = match pattern.strip_prefix('/') {
            Some(rest) => (Path::new("/"), "/", rest),
            None => (from, "", pattern.as_str()),
        };
        let parts: Vec<&str> =
            rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        search.descend(start, shown, &parts);
    }
    let mut found = search.found;
    found.sort();
    found.dedup();
    found
}

/// Returns whether a path matches a glob pattern.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let path: Vec<&str> = path.split('/').collect();
    alternatives(pattern).iter().any(|pattern| {
        let parts: Vec<&str> = pattern.split('/').collect();
        matches_parts(&parts, &path)
    })
}

fn matches_parts(parts: &[&str], path: &[&str]) -> bool {
    match (parts.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) => {
            matches_parts(rest, path)
                || path.split_first().is_some_and(|(_, below)| matches_parts(parts, below))
        }
        (Some((part, rest)), Some((name, below))) => {
            name_matches(part, name) && matches_parts(rest, below)
        }
        _ => false,
    }
}

/// A search for the paths that match one pattern.
#[derive(Debug, Default)]
struct Search {
    found: Vec<String>,
    /// The directories that were searched, each with the number of parts of the pattern that were left.
    /// Several `**` lead to the same directory in very many ways.
    seen: HashSet<(String, usize)>,
}

impl Search {
    fn descend(&mut self, at: &Path, shown: &str, parts: &[&str]) {
        let Some((&part, rest)) = parts.split_first() else { return };
        if self.found.len() >= MAX_PATHS || !self.seen.insert((shown.to_owned(), parts.len())) {
            return;
        }
        if part == "**" && !rest.is_empty() {
            self.descend(at, shown, rest);
        }
        if part == ".." {
            self.descend(&at.join(".."), &format!("{shown}../"), rest);
            return;
        }
        let Ok(entries) = std::fs::read_dir(at) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let matches_parts = part == "**" || name_matches(part, &name);
            // Only a pattern that starts with a dot matches a hidden file.
            if !matches_parts
                || (name.starts_with('.') && !part.starts_with('.'))
                || self.found.len() >= MAX_PATHS
            {
                continue;
            }
            let path = format!("{shown}{name}");
            let kind = entry.file_type();
            // `**` does not follow symbolic links, because they can form a loop.
            let is_dir = kind.as_ref().is_ok_and(std::fs::FileType::is_dir)
                || (part != "**" && !rest.is_empty() && entry.path().is_dir());
            if rest.is_empty() && (part != "**" || !is_dir) {
                self.found.push(path.clone());
            }
            if is_dir {
                let below = if part == "**" { parts } else { rest };
                self.descend(&entry.path(), &format!("{path}/"), below);
            }
        }
    }
}

/// Returns whether a file name matches a glob pattern without slashes and braces.
fn name_matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    matches_name_with_classes(&pattern, &name)
}

/// Returns all patterns that the braces of a glob pattern expand to. Returns an empty list if there
/// are too many alternatives.
fn alternatives(pattern: &str) -> Vec<String> {
    const MANY: usize = 256;
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        if done.len() + open.len() > MANY {
            return Vec::new();
        }
        match brace(&pattern) {
            Some((before, inner, after)) => {
                open.extend(inner.into_iter().map(|part| format!("{before}{part}{after}")));
            }
            None => done.push(pattern),
        }
    }
    done
}

/// Splits a glob pattern at its first pair of braces: text before, alternatives, text after.
fn brace(pattern: &str) -> Option<(&str, Vec<&str>, &str)> {
    let start = pattern.find('{')?;
    let (mut depth, mut cut, mut parts) = (0, start + 1, Vec::new());
    for (at, letter) in pattern.char_indices().skip_while(|(at, _)| *at < start) {
        match letter {
            '{' => depth += 1,
            ',' if depth == 1 => {
                parts.push(pattern.get(cut..at)?);
                cut = at + 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    parts.push(pattern.get(cut..at)?);
                    return Some((pattern.get(..start)?, parts, pattern.get(at + 1..)?));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_patterns_match_the_expected_paths() {
        for (pattern, path) in [
            ("*.ts", "a.ts"),
            ("src/**/*.ts", "src/a.ts"),
            ("src/**/*.ts", "src/b/c/a.ts"),
            ("**/x", "x"),
            ("{a,b/{c,d}}.js", "b/d.js"),
            ("[a-c]?[!x]", "bzy"),
            ("a*b*c", "aXbYbZc"),
            ("**", "a/b"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in
            [("*.ts", "a/b.ts"), ("*.ts", "a.tsx"), ("[!a]", "a"), ("a?", "a"), ("{a,b}", "c")]
        {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn glob_lists_files_below_a_directory_and_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("src/deep")).unwrap();
        for name in ["a.ts", "src/b.ts", "src/deep/c.ts", "src/.hidden.ts"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink(dir.path(), at("src/loop")).unwrap();
        assert_eq!(find(dir.path(), "**/*.ts"), ["a.ts", "src/b.ts", "src/deep/c.ts"]);
        assert_eq!(find(dir.path(), "src/*.ts"), ["src/b.ts"]);
        assert_eq!(find(dir.path(), "src/.*.ts"), ["src/.hidden.ts"]);
        assert_eq!(find(dir.path(), "s*/d*/*"), ["src/deep/c.ts"]);
    }
}
