//! The permission rules of tools. Pure.
//!
//! The rules have the same meaning as for agents, but a task has no person to ask: a call that an `ask`
//! rule concerns is refused. Rules on files are also enforced by the box. A rule on command lines is advice
//! (threat G10): a command has many spellings, and the box limits what it can do.

use belljar_model::permission::{Permission, Verdict};
use belljar_model::plan::ModelTool;
use belljar_wire::ToolJob;

/// The rules of a task.
#[derive(Debug)]
pub(super) struct Rules {
    rules: Vec<(Verdict, Permission)>,
    /// Whether a call that no rule concerns is allowed.
    skips_all: bool,
}

/// What a call would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action<'a> {
    /// Reads a path; `None` for one outside the workspace.
    Read(Option<Vec<u8>>),
    /// Changes a path; `None` for one outside the workspace.
    Edit(Option<Vec<u8>>),
    /// Runs a command line.
    Command(&'a str),
    Other,
}

impl Rules {
    pub(super) fn new(job: &ToolJob) -> Result<Self, String> {
        let lists =
            [(Verdict::Deny, &job.deny), (Verdict::Ask, &job.ask), (Verdict::Allow, &job.allow)];
        let mut rules = Vec::new();
        for (verdict, texts) in lists {
            for text in texts {
                let rule = text.parse().map_err(|error| format!("the rule `{text}`: {error}"))?;
                rules.push((verdict, rule));
            }
        }
        Ok(Self { rules, skips_all: job.skips_all })
    }

    /// Returns an error for the model if a call is not allowed.
    pub(super) fn check(&self, tool: ModelTool, action: &Action<'_>) -> Result<(), String> {
        for (verdict, refusal) in [
            (Verdict::Deny, "the call is denied by the rule"),
            (Verdict::Ask, "the call needs a person, and a task has no one to ask, by the rule"),
        ] {
            let mut rules = self.of(verdict);
            if let Some(rule) = rules.find(|rule| concerns(rule, tool, action)) {
                return Err(format!("{refusal} `{rule}`"));
            }
        }
        let is_allowed = match action {
            Action::Command(command) => {
                self.allows_command(command) || self.of(Verdict::Allow).any(|it| is_tool(it, tool))
            }
            Action::Read(_) | Action::Edit(_) | Action::Other => {
                self.of(Verdict::Allow).any(|rule| concerns(rule, tool, action))
            }
        };
        let only_reads = matches!(action, Action::Read(_));
        match is_allowed || only_reads || self.skips_all {
            true => Ok(()),
            false => Err(format!("no rule allows this call of `{tool}`")),
        }
    }

    fn of(&self, verdict: Verdict) -> impl Iterator<Item = &Permission> {
        self.rules.iter().filter(move |(it, _)| *it == verdict).map(|(_, rule)| rule)
    }

    /// Returns whether every command of a command line is allowed. A line with a substitution never is.
    fn allows_command(&self, command: &str) -> bool {
        let is_allowed = |part: &str| {
            let mut rules = self.of(Verdict::Allow);
            rules.any(|rule| matches!(rule, Permission::Bash(pattern) if is_match(pattern, part)))
        };
        !command.contains(['`', '$', '<', '>', '(']) && parts(command).all(is_allowed)
    }
}

fn is_tool(rule: &Permission, tool: ModelTool) -> bool {
    matches!(rule, Permission::Tool(name) if name == tool.name())
}

/// Returns whether a rule matches a call.
fn concerns(rule: &Permission, tool: ModelTool, action: &Action<'_>) -> bool {
    match (rule, action) {
        (Permission::Tool(_), _) => is_tool(rule, tool),
        (Permission::Read(files), Action::Read(Some(path)) | Action::Edit(Some(path)))
        | (Permission::Edit(files), Action::Edit(Some(path))) => files.covers(path),
        (Permission::Bash(pattern), Action::Command(command)) => {
            is_match(pattern, command) || parts(command).any(|part| is_match(pattern, part))
        }
        (
            Permission::Read(_) | Permission::Edit(_) | Permission::Bash(_) | Permission::Net(_),
            Action::Read(_) | Action::Edit(_) | Action::Command(_) | Action::Other,
        ) => false,
    }
}

/// Returns the single commands of a command line.
fn parts(command: &str) -> impl Iterator<Item = &str> {
    command.split([';', '&', '|', '\n']).map(str::trim).filter(|part| !part.is_empty())
}

/// Returns whether a pattern matches a command: `git push:*` by its first words, else `*` for any text.
fn is_match(pattern: &str, command: &str) -> bool {
    let command = command.trim();
    if let Some(start) = pattern.strip_suffix(":*") {
        let rest = command.strip_prefix(start);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    }
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = command.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(deny: &[&str], ask: &[&str], allow: &[&str], skips_all: bool) -> Rules {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Rules::new(&ToolJob {
            names: Vec::new(),
            turns: 1,
            memory: 0,
            allow: list(allow),
            ask: list(ask),
            deny: list(deny),
            skips_all,
        })
        .unwrap()
    }

    fn command(rules: &Rules, command: &str) -> bool {
        rules.check(ModelTool::Shell, &Action::Command(command)).is_ok()
    }

    #[test]
    fn command_is_matched_by_its_first_words_or_by_a_pattern() {
        for (pattern, matched, other) in [
            ("git push:*", "git push origin", "git pushed"),
            ("git push:*", "git push", "git pull"),
            ("rm -rf *", "rm -rf /x", "rm x"),
            ("*", "anything", ""),
            ("make test", "make test", "make tests"),
            ("* --force*", "git push --force x", "git push"),
        ] {
            assert!(is_match(pattern, matched), "{pattern} {matched}");
            assert!(other.is_empty() || !is_match(pattern, other), "{pattern} {other}");
        }
    }

    #[test]
    fn denied_command_is_refused_as_a_part_of_a_line_too() {
        let rules = rules(&["Bash(rm:*)"], &["Bash(git push:*)"], &[], true);
        assert!(command(&rules, "ls; git status"), "control");
        for line in ["rm x", "ls && rm x", "ls | rm x", "true\nrm x", "git push", "a; git push x"] {
            assert!(!command(&rules, line), "{line}");
        }
    }

    #[test]
    fn only_allowed_commands_run_if_the_rules_ask_for_others() {
        let rules = rules(&[], &["Edit(ci/**)"], &["Bash(make:*)", "Bash(ls)"], false);
        assert!(command(&rules, "make test && ls"), "control");
        for line in ["cat x", "make; cat x", "make $(cat x)", "make > ci/x", "make `x`"] {
            assert!(!command(&rules, line), "{line}");
        }
        let read = Action::Read(Some(b"ci/x".to_vec()));
        assert!(rules.check(ModelTool::Read, &read).is_ok(), "reading changes nothing");
    }

    #[test]
    fn files_and_tools_are_denied_by_their_rules() {
        let rules = rules(&["Edit(ci/**)", "Read(.env)", "Tool(fetch)"], &[], &[], true);
        let path = |text: &str| Some(text.as_bytes().to_vec());
        let edit = |text: &str| rules.check(ModelTool::Edit, &Action::Edit(path(text)));
        assert!(edit("src/x").is_ok() && edit("ci/new").is_err() && edit("a/.env").is_err());
        let read = |text: &str| rules.check(ModelTool::Read, &Action::Read(path(text)));
        assert!(read("ci/x").is_ok() && read(".env").is_err());
        assert!(rules.check(ModelTool::Fetch, &Action::Other).is_err());
        assert!(rules.check(ModelTool::ExecuteCode, &Action::Other).is_ok());
    }
}
