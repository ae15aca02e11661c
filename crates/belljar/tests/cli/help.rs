//! Help texts: of the program, of each command, and of the commands below it.

use belljar_testkit::Lab;

use crate::{lab, transcript};

/// The names below `Commands:` of a help text.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty());
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
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
fn the_help_of_the_program_lists_all_commands() {
    insta::assert_snapshot!("belljar", transcript(&lab(), &["--help", "--version"]));
}

#[test]
fn the_help_of_each_command_names_its_options() {
    let lab = lab();
    let names = commands(&lab.belljar(["--help"]).succeed());
    assert!(names.len() > 30, "the list of commands was not understood: {names:?}");
    for name in names.iter().map(String::as_str) {
        insta::assert_snapshot!(format!("belljar-{name}"), tree(&lab, name));
    }
}

#[test]
fn no_arguments_print_the_help_and_fail() {
    let lab = lab();
    let ended = lab.belljar([] as [&str; 0]).run();
    assert_eq!((ended.code(), ended.out()), (2, String::new()));
    assert_eq!(ended.err(), lab.belljar(["-h"]).succeed());
}
