//! Formats learned rules as sections of `belljar.toml`, as a unified diff, and as `--allow` flags.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_model::net::{HttpRule, Method, PathPattern, RuleTarget, Scheme};
use belljar_model::{AllowList, Config, Net, Scope, display};
use toml_edit::{ArrayOfTables, Item, Table, Value};

use super::learn::{self, LearnedRule};
use crate::config::section;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// Returns sections of `belljar.toml` that add these rules to a template.
pub fn sections(rules: &[LearnedRule], template: &str, from: &str) -> String {
    let mut allow = ArrayOfTables::new();
    for (index, LearnedRule { target, remark }) in rules.iter().enumerate() {
        let mut comment = if index > 0 { "\n".to_owned() } else { String::new() };
        line(&mut comment, format_args!("# learnt from {from}"));
        if let Some(remark) = remark {
            line(&mut comment, format_args!("# {remark}"));
        }
        let mut table = keys(target);
        table.decor_mut().set_prefix(comment);
        allow.push(table);
    }
    section::section(["template", template], section::parent("allow", Item::ArrayOfTables(allow)))
}

/// Returns one rule as a TOML table.
fn keys(target: &RuleTarget) -> Table {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key, Item::Value(value)));
    match target {
        RuleTarget::Tcp(tcp) => put("tcp", format!("{}:{}", tcp.target, tcp.port).into()),
        RuleTarget::HostPort(port) => put("host-port", i64::from(*port).into()),
        RuleTarget::Http(http) => {
            put("host", http.host.to_string().into());
            if http.ports != [http.scheme.port()] {
                put("ports", http.ports.iter().copied().map(i64::from).collect());
            }
            if http.scheme == Scheme::Http {
                put("scheme", "http".into());
            }
            if let Some(methods) = &http.methods {
                put("methods", methods.iter().map(Method::as_str).collect());
            }
            if let Some(paths) = &http.paths {
                put("paths", paths.iter().map(PathPattern::as_str).collect());
            }
            if http.websocket {
                put("websocket", true.into());
            }
        }
    }
    table
}

/// Returns the rules as values of `--allow`. A rule with several paths becomes several values.
pub fn flags(rules: &[LearnedRule]) -> Vec<String> {
    let mut flags = Vec::new();
    for LearnedRule { target, .. } in rules {
        let http = match target {
            // A flag cannot express WebSocket access, and the rule would be useless without it.
            RuleTarget::Http(http) if http.websocket => continue,
            RuleTarget::Http(http) => http,
            RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => {
                flags.push(target.to_string());
                continue;
            }
        };
        match &http.paths {
            None => flags.push(target.to_string()),
            Some(paths) => flags.extend(paths.iter().map(|path| {
                let paths = Some(vec![path.clone()]);
                RuleTarget::Http(HttpRule { paths, ..http.clone() }).to_string()
            })),
        }
    }
    flags
}

/// Quotes an argument for a shell.
pub fn shell_quote(argument: &str) -> String {
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// Returns the text of a file with the rules added to its `allow` list.
///
/// Returns `None` if a rule cannot be written as an entry of such a list.
pub fn with_list_entries(
    old: &str,
    rules: &[LearnedRule],
    list: AllowList,
    from: &str,
) -> Option<String> {
    let (before, after) = old.split_at_checked(list.at)?;
    let mut text = before.to_owned();
    text.push_str(if list.needs_comma { ",\n" } else { "\n" });
    line(&mut text, format_args!("    # learnt from {from}"));
    for rule in rules {
        let entries = flags(std::slice::from_ref(rule));
        if entries.is_empty() {
            return None;
        }
        if let Some(remark) = rule.remark {
            line(&mut text, format_args!("    # {remark}"));
        }
        for entry in entries {
            line(&mut text, format_args!("    {},", Value::from(entry)));
        }
    }
    // A comment behind the last entry must stay a comment, so its line break is kept.
    let text = if after.starts_with('\n') { text.trim_end_matches('\n') } else { text.as_str() };
    Some(format!("{text}{after}"))
}

/// Returns the text of `belljar.toml` with the rules added, and the resulting network mode of the template.
///
/// The rules are added to the template's `allow` list if it has one, and as sections otherwise. The new
/// text is parsed once to prove that it is valid.
pub fn with_rules(
    file: &Path,
    old: &str,
    (rules, template, from): (&[LearnedRule], &str, &str),
) -> Result<(String, Net), EngineError> {
    let new = match Config::allow_list(old, template) {
        Some(list) => with_list_entries(old, rules, list, from).ok_or_else(|| {
            invalid(format!(
                "cannot add a WebSocket rule to template {template}: its `allow` is a list; \
                 write it as [[template.{template}.allow]] tables"
            ))
        })?,
        None => section::appended(old, &sections(rules, template, from)),
    };
    let broken = "adding the rules would make the file invalid; add them yourself";
    let config =
        Config::parse(&new, file, Scope::Operator).context(broken).kind(ErrorKind::Broken)?;
    let policy = learn::policy(&config, template)?;
    Ok((new, policy.net))
}

/// The number of unchanged lines that a diff shows around the change.
const CONTEXT_LINES: usize = 3;

/// Returns a unified diff of two texts, with a single hunk.
pub fn diff(file: &str, old: Option<&str>, new: &str, colour: bool) -> String {
    // Lines keep their line breaks, so that a missing final line break counts as a difference.
    let before: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = before.iter().zip(&after).take_while(same).count();
    let rest = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(same).count();
    let first = head.saturating_sub(CONTEXT_LINES);
    let last = (before.len() - tail + CONTEXT_LINES).min(before.len());
    let (old_length, new_length) = (last - first, last + after.len() - before.len() - first);
    // An empty side has the number of the line before it (POSIX diff).
    let start = |length: usize| if length == 0 { first } else { first + 1 };
    let file = display::safe_line(file);
    let mut diff = String::new();
    let mut put = |shade: &str, sign: &str, text: &str| {
        let text = display::safe_multiline(text.strip_suffix('\n').unwrap_or(text));
        match colour {
            true => line(&mut diff, format_args!("{shade}{sign}{text}\x1b[0m")),
            false => line(&mut diff, format_args!("{sign}{text}")),
        }
    };
    put("\x1b[1m", "--- ", if old.is_some() { &file } else { "/dev/null" });
    put("\x1b[1m", "+++ ", &file);
    let (old_start, new_start) = (start(old_length), start(new_length));
    let hunk_header = format!("@@ -{old_start},{old_length} +{new_start},{new_length} @@");
    put("\x1b[36m", "", &hunk_header);
    let mut lines = |shade: &str, sign: &str, lines: &[&str], from: usize, to: usize| {
        for text in lines.iter().take(to).skip(from) {
            put(shade, sign, text);
            if !text.ends_with('\n') {
                put("", "", "\\ No newline at end of file");
            }
        }
    };
    lines("", " ", &before, first, head);
    lines("\x1b[31m", "-", &before, head, before.len() - tail);
    lines("\x1b[32m", "+", &after, head, after.len() - tail);
    lines("", " ", &before, before.len() - tail, last);
    diff
}

/// Appends one line.
fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(text, "{content}").unwrap_or_default();
}

#[cfg(test)]
mod tests;
