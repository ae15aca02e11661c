//! Rules as text: sections of `belljar.toml`, a unified diff that adds them, and flags.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_model::net::{HttpRule, Method, PathPattern, RuleTarget, Scheme};
use belljar_model::{AllowList, Config, Net, Scope, display};
use toml_edit::{ArrayOfTables, Item, Table, Value};

use super::learn::{self, Learned};
use crate::config::section;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// The sections that give a template these rules.
pub fn sections(rules: &[Learned], template: &str, from: &str) -> String {
    let mut allow = ArrayOfTables::new();
    for (index, Learned { what, remark }) in rules.iter().enumerate() {
        let mut comment = if index > 0 { "\n".to_owned() } else { String::new() };
        line(&mut comment, format_args!("# learnt from {from}"));
        if let Some(remark) = remark {
            line(&mut comment, format_args!("# {remark}"));
        }
        let mut table = keys(what);
        table.decor_mut().set_prefix(comment);
        allow.push(table);
    }
    section::section(["template", template], section::parent("allow", Item::ArrayOfTables(allow)))
}

fn keys(what: &RuleTarget) -> Table {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key, Item::Value(value)));
    match what {
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

/// The same rules for one run, each as `--allow` takes it; a rule with many paths is many.
pub fn flags(rules: &[Learned]) -> Vec<String> {
    let mut flags = Vec::new();
    for Learned { what, .. } in rules {
        let http = match what {
            // Flags cannot say it, and without it the rule would be useless.
            RuleTarget::Http(http) if http.websocket => continue,
            RuleTarget::Http(http) => http,
            RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => {
                flags.push(what.to_string());
                continue;
            }
        };
        match &http.paths {
            None => flags.push(what.to_string()),
            Some(paths) => flags.extend(paths.iter().map(|path| {
                let paths = Some(vec![path.clone()]);
                RuleTarget::Http(HttpRule { paths, ..http.clone() }).to_string()
            })),
        }
    }
    flags
}

/// A word that a shell takes as it is.
pub fn shell(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The text of a file with the rules in a list that it has. `None` if a rule has no short form.
pub fn listed(old: &str, rules: &[Learned], list: AllowList, from: &str) -> Option<String> {
    let (before, after) = old.split_at_checked(list.at)?;
    let mut text = before.to_owned();
    text.push_str(if list.needs_comma { ",\n" } else { "\n" });
    line(&mut text, format_args!("    # learnt from {from}"));
    for rule in rules {
        let said = flags(std::slice::from_ref(rule));
        if said.is_empty() {
            return None;
        }
        if let Some(remark) = rule.remark {
            line(&mut text, format_args!("    # {remark}"));
        }
        for rule in said {
            line(&mut text, format_args!("    {},", Value::from(rule)));
        }
    }
    // What stood behind the last rule may be a comment, and then stays one.
    let text = if after.starts_with('\n') { text.trim_end_matches('\n') } else { text.as_str() };
    Some(format!("{text}{after}"))
}

/// The file's text with the rules in it: as sections, or in the list that the template has. What is
/// shown can be used, so it is read once more. With it comes the network that the template then has.
pub fn with_rules(
    file: &Path,
    old: &str,
    (rules, template, from): (&[Learned], &str, &str),
) -> Result<(String, Net), EngineError> {
    let new = match Config::allow_list(old, template) {
        Some(list) => listed(old, rules, list, from).ok_or_else(|| {
            invalid(format!(
                "`allow` of template {template} is a list, which has no words for `websocket`; \
                 write it as [[template.{template}.allow]] tables"
            ))
        })?,
        None => section::appended(old, &sections(rules, template, from)),
    };
    let with = "with the rules in it, the file would be wrong; write them in yourself";
    let config =
        Config::parse(&new, file, Scope::Operator).context(with).kind(ErrorKind::Broken)?;
    let policy = learn::policy(&config, template)?;
    Ok((new, policy.net))
}

/// How many unchanged lines a diff shows.
const CONTEXT: usize = 3;

/// A unified diff between texts that differ in one place.
pub fn diff(file: &str, old: Option<&str>, new: &str, colour: bool) -> String {
    // With their ends: a last line without one is another line.
    let before: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = before.iter().zip(&after).take_while(same).count();
    let rest = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(same).count();
    let first = head.saturating_sub(CONTEXT);
    let last = (before.len() - tail + CONTEXT).min(before.len());
    let (old_length, new_length) = (last - first, last + after.len() - before.len() - first);
    // A side without lines is named by the line before it (POSIX diff).
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
    let places = format!("@@ -{old_start},{old_length} +{new_start},{new_length} @@");
    put("\x1b[36m", "", &places);
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

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(text, "{content}").unwrap_or_default();
}

#[cfg(test)]
mod tests;
