//! Relative links in the documents lead to a file of the tree, and `#anchors` to a heading in it.

use std::collections::BTreeSet;

use super::File;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_markdown()) {
        for (line, link) in links(&file.text) {
            if let Some(problem) = broken(&file.path, &link, files) {
                complaints.push(format!("{}:{line}: link `{link}`: {problem}", file.path));
            }
        }
    }
    complaints
}

fn broken(from: &str, link: &str, files: &[File]) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
    let Some(target) = target else { return Some("leads out of the tree") };
    let directory = format!("{}/", target.trim_end_matches('/'));
    let file = files.iter().find(|file| file.path == target);
    if file.is_none() && !files.iter().any(|file| file.path.starts_with(&directory)) {
        return Some("no such file");
    }
    let (Some(file), Some(anchor)) = (file, anchor) else { return None };
    (file.is_markdown() && !anchors(&file.text).contains(anchor)).then_some("no such heading")
}

/// `path` as seen from the directory of `from`; nothing if it climbs above the top.
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

/// Targets of `[text](target)` outside code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // What stands between backticks is an example of a link at most.
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

/// The headings as GitHub makes anchors of them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.trim().to_lowercase())
    });
    let kept = |title: String| -> String {
        let chars = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        chars.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(kept).collect()
}

/// The lines outside fenced code, numbered from 1.
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
    fn links_resolve_from_their_own_file() {
        complaints(
            "[a](adr/0001-why.md) [b](../README.md) [c](adr/) [d](https://example.com/x)",
            &[],
        );
        complaints(
            "# Here we are\n[e](#here-we-are) [f](adr/0001-why.md#why-and-how \"title\")",
            &[],
        );
        complaints("\n[a](README.md)", &["docs/a.md:2: link `README.md`: no such file"]);
        complaints("[a](../../x.md)", &["docs/a.md:1: link `../../x.md`: leads out of the tree"]);
        complaints("[a](#gone)", &["docs/a.md:1: link `#gone`: no such heading"]);
    }

    #[test]
    fn code_has_no_links() {
        complaints("`[a](gone.md)` x\n```text\n[b](gone.md)\n# not a heading\n```\n", &[]);
        complaints(
            "```text\n# no heading\n```\n[a](#no-heading)",
            &["docs/a.md:4: link `#no-heading`: no such heading"],
        );
    }
}
