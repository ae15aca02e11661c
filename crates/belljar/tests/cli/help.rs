//! Help texts: of the program, of each command, and of the commands below it.

use belljar_testkit::Lab;

use crate::{lab, transcript};

/// Returns the commands that a help text lists: below `Commands:`, or below several headings.
fn commands(help: &str) -> Vec<String> {
    const OTHER: [&str; 4] = ["Arguments:", "Options:", "Examples:", "Kinds of events:"];
    let mut is_list = false;
    let mut names = Vec::new();
    for line in help.lines().skip_while(|line| !line.starts_with("Usage:")) {
        let indent = line.len() - line.trim_start().len();
        match indent {
            0 => {
                is_list =
                    line.ends_with(':') && !OTHER.contains(&line) || is_list && line.is_empty();
            }
            2 if is_list => names.extend(line.split_whitespace().next().map(str::to_owned)),
            _ => {}
        }
    }
    names.retain(|name| name != "help");
    names
}

/// The help of a command and of everything below it.
fn tree(lab: &Lab, path: &str) -> String {
    let mut text = transcript(lab, &[&format!("{path} --help")]);
    for name in commands(&text) {
        text.push('\n');
        text.push_str(&tree(lab, &format!("{path} {name}")));
    }
    text
}

#[test]
fn help_of_the_program_lists_all_commands_in_groups() {
    insta::assert_snapshot!("belljar", transcript(&lab(), &["--help", "--version"]));
}

#[test]
fn the_help_of_each_command_names_its_options() {
    let lab = lab();
    let names = commands(&lab.belljar(["--help"]).succeed());
    assert!(names.len() > 30, "too few commands in the help: {names:?}");
    for name in names.iter().map(String::as_str) {
        insta::assert_snapshot!(format!("belljar-{name}"), tree(&lab, name));
    }
}

#[test]
fn help_is_the_same_by_flag_by_command_and_without_arguments() {
    let lab = lab();
    let ended = lab.belljar([] as [&str; 0]).run();
    assert_eq!((ended.code(), ended.out()), (2, String::new()));
    let help = lab.belljar(["-h"]).succeed();
    assert_eq!(ended.err(), help);
    assert_eq!(lab.belljar(["--help"]).succeed(), help);
    assert_eq!(lab.belljar(["help"]).succeed(), help);
}
