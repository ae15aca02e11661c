//! Checks of all help texts: descriptions, options and examples.

use clap::Command;

use super::command;

/// Calls `check` for a command and all its subcommands, with their full names.
fn each(command: &Command, path: &str, check: &mut impl FnMut(&Command, &str)) {
    check(command, path);
    for subcommand in command.get_subcommands().filter(|it| it.get_name() != "help") {
        each(subcommand, &format!("{path} {}", subcommand.get_name()), check);
    }
}

/// Calls `check` for every command of the command line.
fn each_command(mut check: impl FnMut(&Command, &str)) {
    let mut all = command();
    all.build();
    each(&all, "belljar", &mut check);
}

/// Returns the lines below `Examples:` of a help text.
fn examples(command: &Command) -> Vec<String> {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = text.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.map_while(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

/// Splits a command line into words as a shell does; supports single quotes only.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("an example has no closing quote"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

#[test]
fn help_of_every_command_has_examples_that_clap_accepts() {
    each_command(|it, path| {
        let examples = examples(it);
        assert!(!examples.is_empty(), "{path}: no examples");
        for example in &examples {
            if let Err(error) = command().try_get_matches_from(words(example)) {
                panic!("{path}: {example}: {error}");
            }
        }
        let is_own = |example: &String| format!("{example} ").starts_with(&format!("{path} "));
        assert!(examples.iter().any(is_own), "{path}: no example of the command itself");
    });
}

#[test]
fn help_of_every_command_has_a_description_of_one_short_line() {
    each_command(|it, path| {
        let about = it.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(about.starts_with(|first: char| first.is_ascii_uppercase()), "{path}: {about:?}");
        assert!(!about.ends_with('.') && about.lines().count() == 1, "{path}: {about:?}");
        assert!(path == "belljar" || about.len() <= 72, "{path}: {} characters", about.len());
    });
}

#[test]
fn help_of_every_argument_has_a_description() {
    each_command(|it, path| {
        for argument in it.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let is_sentence = help.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(is_sentence, "{path}: {}: {help:?}", argument.get_id());
        }
    });
}
