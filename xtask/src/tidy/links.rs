//! Checks that relative links in documents lead to an existing file, and anchors to an existing heading.

use std::collections::BTreeSet;

use super::File;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_markdown()) {
        for (line, link) in links(&file.text) {
            if let Some(problem) = link_problem(&file.path, &link, files) {
                complaints.push(format!("{}:{line}: link `{link}`: {problem}", file.path));
            }
        }
    }
    complaints
}

/// Returns the reason why a link is broken; `None` if it resolves.
fn link_problem(from: &str, link: &str, files: &[File]) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
    let Some(target) = target else { return Some("leads out of the repository") };
    let directory = format!("{}/", target.trim_end_matches('/'));
    let file = files.iter().find(|file| file.path == target);
    if file.is_none() && !files.iter().any(|file| file.path.starts_with(&directory)) {
        return Some("no such file");
    }
    let (Some(file), Some(anchor)) = (file, anchor) else { return None };
    (file.is_markdown() && !anchors(&file.text).contains(anchor)).then_some("no such heading")
}

/// Resolves `path` relative to the directory of `from`; `None` if it leaves the repository.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns the targets of `[text](target)` outside of code, with their line numbers.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Text between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in prose.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                found.push((
                    number,
                    target.split_whitespace().next().unwrap_or_default().to_owned(),
                ));
            }
        }
    }
    found
}

/// Returns the anchors that GitHub creates from the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.trim().to_lowercase())
    });
    let anchor = |title: String| -> String {
        let chars = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        chars.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the lines outside of fenced code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn complaints(text: &str, expect: &[&str]) {
        let files = [
            File::new("docs/a.md", text.to_owned()),
            File::new("docs/adr/0001-why.md", "# Why, and `how`\n".to_owned()),
            File::new("README.md", String::new()),
        ];
        assert_eq!(check(&files), expect);
    }

    #[test]
    fn links_are_resolved_relative_to_their_file() {
        complaints(
            "[a](adr/0001-why.md) [b](../README.md) [c](adr/) [d](https://example.com/x)",
            &[],
        );
        complaints(
            "# Here we are\n[e](#here-we-are) [f](adr/0001-why.md#why-and-how \"title\")",
            &[],
        );
        complaints("\n[a](README.md)", &["docs/a.md:2: link `README.md`: no such file"]);
        complaints(
            "[a](../../x.md)",
            &["docs/a.md:1: link `../../x.md`: leads out of the repository"],
        );
        complaints("[a](#gone)", &["docs/a.md:1: link `#gone`: no such heading"]);
    }

    #[test]
    fn links_and_headings_in_code_are_ignored() {
        complaints("`[a](gone.md)` x\n```text\n[b](gone.md)\n# not a heading\n```\n", &[]);
        complaints(
            "```text\n# no heading\n```\n[a](#no-heading)",
            &["docs/a.md:4: link `#no-heading`: no such heading"],
        );
    }
}
