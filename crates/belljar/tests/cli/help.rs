//! Help texts of `belljar`, of each command and of each subcommand.

use belljar_testkit::Lab;

use crate::{lab, transcript};

/// Returns the names of the commands that a help text lists, under `Commands:` or under other headings.
fn commands(help: &str) -> Vec<String> {
    const OTHER_HEADINGS: [&str; 4] = ["Arguments:", "Options:", "Examples:", "Kinds of events:"];
    let mut is_list = false;
    let mut names = Vec::new();
    for line in help.lines().skip_while(|line| !line.starts_with("Usage:")) {
        let indent = line.len() - line.trim_start().len();
        match indent {
            0 => {
                is_list = line.ends_with(':') && !OTHER_HEADINGS.contains(&line)
                    || is_list && line.is_empty();
            }
            2 if is_list => names.extend(line.split_whitespace().next().map(str::to_owned)),
            _ => {}
        }
    }
    names.retain(|name| name != "help");
    names
}

/// Returns the help texts of a command and of all its subcommands.
fn tree(lab: &Lab, path: &str) -> String {
    let mut text = transcript(lab, &[&format!("{path} --help")]);
    for name in commands(&text) {
        text.push('\n');
        text.push_str(&tree(lab, &format!("{path} {name}")));
    }
    text
}

#[test]
fn belljar_help_lists_all_commands_in_groups() {
    insta::assert_snapshot!("belljar", transcript(&lab(), &["--help", "--version"]));
}

#[test]
fn help_of_each_command_and_subcommand_matches_its_snapshot() {
    let lab = lab();
    let names = commands(&lab.belljar(["--help"]).succeed());
    assert!(names.len() > 30, "too few commands in the help: {names:?}");
    for name in names.iter().map(String::as_str) {
        insta::assert_snapshot!(format!("belljar-{name}"), tree(&lab, name));
    }
}

#[test]
fn help_flag_help_command_and_no_arguments_print_the_same_text() {
    let lab = lab();
    let ended = lab.belljar([] as [&str; 0]).run();
    assert_eq!((ended.code(), ended.out()), (2, String::new()));
    let help = lab.belljar(["-h"]).succeed();
    assert_eq!(ended.err(), help);
    assert_eq!(lab.belljar(["--help"]).succeed(), help);
    assert_eq!(lab.belljar(["help"]).succeed(), help);
}
