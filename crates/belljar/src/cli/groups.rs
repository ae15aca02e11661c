//! The headings under which `belljar --help` lists the commands.
//!
//! Clap has headings for options only, so the list is part of the help template. The descriptions come
//! from clap. A test checks that every command is in exactly one group.

use clap::Command;

/// Every group: its heading and its commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Run and review", &["run", "diff", "apply", "discard", "runs"]),
    ("Plans", &["plan", "submit", "watch", "cancel", "resume", "schedule"]),
    (
        "Boxes that stay",
        &[
            "up", "list", "status", "attach", "exec", "shell", "logs", "cp", "forward", "stop",
            "start", "restart", "down", "ui", "snapshot", "fork", "reset", "restore", "gc",
        ],
    ),
    ("Network and secrets", &["network", "net", "secret", "approve", "api"]),
    ("Agents and code mode", &["agent", "code", "mcp", "skill"]),
    ("Server", &["serve", "login-link", "tenant"]),
    ("Record", &["ledger"]),
    ("Setup", &["init", "demo", "doctor", "template", "policy", "completions", "man"]),
];

/// Returns the command with a help text that lists its subcommands in groups.
pub(super) fn with_groups(command: Command) -> Command {
    let list = list(&command);
    let header = command.get_styles().get_header();
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// Returns the headings with the names and descriptions of their commands.
fn list(command: &Command) -> String {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let names = command.get_subcommands().map(|it| it.get_name().len());
    let width = names.max().unwrap_or_default();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{header}{heading}:{header:#}\n"));
        for subcommand in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let name = subcommand.get_name();
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!(
                "  {literal}{name:<width$}{literal:#}  {about}{}\n",
                aliases(subcommand)
            ));
        }
        text.push('\n');
    }
    text
}

/// Returns the visible aliases of a command as clap writes them, or nothing.
fn aliases(command: &Command) -> String {
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    match aliases.as_slice() {
        [] => String::new(),
        [alias] => format!(" [alias: {alias}]"),
        aliases => format!(" [aliases: {}]", aliases.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn help_lists_every_command_in_exactly_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let command = Cli::command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }
}
