//! Misspelled, unknown, missing and conflicting commands and options, and aliases of commands.

use crate::{lab, transcript};

#[test]
fn command_line_suggests_a_similar_name_for_a_misspelled_command_or_option() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "satus",
        "secret lst",
        "run --alow pypi -- true",
        "run --alow=pypi true",
        "up --memroy 1GiB box",
        "ledger log --folow",
    ]), @r##"
$ belljar satus
belljar: unrecognized subcommand 'satus'

  tip: a similar subcommand exists: 'status'

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar secret lst
belljar: unrecognized subcommand 'lst'

  tip: some similar subcommands exist: 'test', 'list'

Usage: belljar secret [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar run --alow pypi -- true
belljar: unknown option --alow; did you mean --allow? (write `--` before a program whose name starts with `-`)
[exit 2]

$ belljar run --alow=pypi true
belljar: unknown option --alow=pypi; did you mean --allow? (write `--` before a program whose name starts with `-`)
[exit 2]

$ belljar up --memroy 1GiB box
belljar: unexpected argument '--memroy' found

  tip: a similar argument exists: '--memory'
  tip: to pass '--memroy' as a value, use '-- --memroy'

Usage: belljar up --memory <SIZE> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar ledger log --folow
belljar: unexpected argument '--folow' found

  tip: a similar argument exists: '--follow'

Usage: belljar ledger log --follow

For more information, try '--help'.
[exit 2]
"##);
}

#[test]
fn command_aliases_behave_like_the_full_command_names() {
    insta::assert_snapshot!(transcript(&lab(), &["ls", "ps", "rm missing", "shell missing"]), @r##"
$ belljar ls
belljar: there are no boxes; `belljar up NAME` creates a box

$ belljar ps
belljar: there are no boxes; `belljar up NAME` creates a box

$ belljar rm missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar shell missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]
"##);
}

#[test]
fn unknown_missing_and_conflicting_arguments_are_named_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "frobnicate",
        "rnu",
        "--frobnicate",
        "run --frobnicate -- true",
        "list extra",
        "run",
        "run --no-workspace --workspace . -- true",
        "run --memory",
        "--config",
        "secret",
        "secret frobnicate",
        "completions",
        "completions cmd.exe",
        "ui extra",
    ]), @r##"
$ belljar frobnicate
belljar: unrecognized subcommand 'frobnicate'

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar rnu
belljar: unrecognized subcommand 'rnu'

  tip: a similar subcommand exists: 'runs'

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar --frobnicate
belljar: unexpected argument '--frobnicate' found

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar run --frobnicate -- true
belljar: unknown option --frobnicate; `belljar run --help` lists the options (write `--` before a program whose name starts with `-`)
[exit 2]

$ belljar list extra
belljar: unexpected argument 'extra' found

Usage: belljar list [OPTIONS]

For more information, try '--help'.
[exit 2]

$ belljar run
belljar: the following required arguments were not provided:
  <CMD>...

Usage: belljar run <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar run --no-workspace --workspace . -- true
belljar: the argument '--no-workspace' cannot be used with '--workspace <DIR>'

Usage: belljar run --no-workspace <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar run --memory
belljar: a value is required for '--memory <SIZE>' but none was supplied

For more information, try '--help'.
[exit 2]

$ belljar --config
belljar: a value is required for '--config <FILE>' but none was supplied

For more information, try '--help'.
[exit 2]

$ belljar secret
Store credentials that boxes use without seeing them

Usage: belljar secret [OPTIONS] <COMMAND>

Commands:
  set   Store a secret, read from the terminal or from standard input
  list  List the names of the secrets and their hosts, without values
  rm    Remove a secret
  test  Check that a secret can be decrypted, and show its hosts
  help  Print this message or the help of the given subcommand(s)

Options:
      --config <FILE>  Read this file instead of ~/.config/belljar/belljar.toml
  -h, --help           Print help
  -V, --version        Print version

Examples:
  belljar secret set github
  belljar secret set github --from-command gh auth token
  belljar secret list
  belljar run --allow github --secret github -- ./agent.py

A stored secret can be used, replaced and removed. It is never shown.
[exit 2]

$ belljar secret frobnicate
belljar: unrecognized subcommand 'frobnicate'

Usage: belljar secret [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar completions
belljar: the following required arguments were not provided:
  <SHELL>

Usage: belljar completions <SHELL>

For more information, try '--help'.
[exit 2]

$ belljar completions cmd.exe
belljar: invalid value 'cmd.exe' for '<SHELL>'
  [possible values: bash, elvish, fish, powershell, zsh]

For more information, try '--help'.
[exit 2]

$ belljar ui extra
belljar: unexpected argument 'extra' found

Usage: belljar ui [OPTIONS]

For more information, try '--help'.
[exit 2]
"##);
}
