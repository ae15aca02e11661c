//! Checks of all help texts and of the commands in the guides: descriptions, options and examples.

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

/// Splits a command line into words as a shell does; supports quotes around whole words only.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '\'' | '"' => rest[1..].split_once(first).expect("an example has no closing quote"),
            _ => rest.split_once(' ').unwrap_or((rest, "")),
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

/// Splits the lines of a shell script into commands and their words. Supports quotes, comments, lists and
/// pipelines; a redirection ends a command.
fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut is_comment = false;
    for character in script.chars().chain(['\n']) {
        match (quote, character) {
            (_, '\n') if is_comment => is_comment = false,
            (_, _) if is_comment => continue,
            (Some(open), _) if character == open => {
                quote = None;
                continue;
            }
            (Some(_), _) => {
                word.get_or_insert_default().push(character);
                continue;
            }
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
                continue;
            }
            (None, '#') if word.is_none() => {
                is_comment = true;
                continue;
            }
            _ => {}
        }
        match character {
            ' ' | '\n' | ';' | '|' | '&' | '>' | '<' | '(' | ')' => {
                // The number of a redirected descriptor is not an argument.
                let is_descriptor = matches!(character, '>' | '<') && word.as_deref() == Some("2");
                words.extend(word.take().filter(|_| !is_descriptor));
                if character != ' ' {
                    all.push(std::mem::take(&mut words));
                }
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    all
}

/// Returns the commands of Belljar in the code blocks of a page. In a block with prompts, only lines with a
/// prompt are commands.
fn commands_of_page(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let scripts = blocks.filter_map(|(language, text)| match language {
        "sh" => Some(text.to_owned()),
        "console" if text.contains("$ ") => Some(
            text.lines().filter_map(|line| line.strip_prefix("$ ")).collect::<Vec<_>>().join("\n"),
        ),
        "console" => Some(text.to_owned()),
        _ => None,
    });
    let all = scripts.flat_map(|script| commands(&script));
    all.filter(|words| words.first().is_some_and(|word| word == "belljar")).collect()
}

#[test]
fn every_command_in_the_guides_and_the_readme_is_accepted_by_clap() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = std::fs::read_dir(root.join("docs/guide")).unwrap();
    let mut pages: Vec<_> = guides.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    let mut count = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for words in commands_of_page(&text) {
            count += 1;
            if let Err(error) = command().try_get_matches_from(&words)
                && error.exit_code() != 0
            {
                panic!("{}: {words:?}: {error}", page.display());
            }
        }
    }
    assert!(count > 100, "{count} commands");
}

#[test]
fn commands_of_a_page_are_split_as_a_shell_splits_them() {
    let page = "x\n```sh\nA=1 b; belljar run -- sh -c 'a; b' 2>&1 | cat # no\n```\n```console\n$ belljar list\nout\n```\n\
                ```toml\nbelljar wrong\n```\n";
    let expect = [&["belljar", "run", "--", "sh", "-c", "a; b"][..], &["belljar", "list"]];
    assert_eq!(commands_of_page(page), expect);
}
