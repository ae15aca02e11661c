//! Invalid arguments of `belljar up` and of the commands on named boxes.

use crate::{lab, transcript};

#[test]
fn up_refuses_invalid_arguments_and_takes_each_word_as_a_box_name() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "up",
        "up ../x",
        "up .hidden",
        "up a --template large",
        "up a --agent 'no name'",
        "up a --agent nobody",
        "up a --workspace LAB/missing",
        "up a --workspace . --no-workspace",
        "up a --repo LAB/missing",
        "up a --repo LAB/project",
        "up a --repo . --workspace .",
        "up a --repo . --mode direct",
        "up a --branch main",
        "up a --uncommitted",
        "up a --git-identity nobody",
        "up a --memory 0",
        "up a --secret undeclared",
        "up a --health",
        "up a true",
        "list",
    ]), @r##"
$ belljar up
belljar: the following required arguments were not provided:
  <NAME>...

Usage: belljar up <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up ../x
belljar: invalid value '../x' for '<NAME>...': invalid name; use 1 to 63 characters of a-z, 0-9, `-`, `_` and `.`, and start with a letter or digit

For more information, try '--help'.
[exit 2]

$ belljar up .hidden
belljar: invalid value '.hidden' for '<NAME>...': invalid name; use 1 to 63 characters of a-z, 0-9, `-`, `_` and `.`, and start with a letter or digit

For more information, try '--help'.
[exit 2]

$ belljar up a --template large
belljar: --template: unknown template "large"; the known templates are: default
[exit 2]

$ belljar up a --agent 'no name'
belljar: invalid value 'no name' for '--agent <AGENT>': invalid agent name; use 1 to 40 characters of a-z, 0-9 and `-`, and start with a letter

For more information, try '--help'.
[exit 2]

$ belljar up a --agent nobody
belljar: --agent: unknown agent nobody; the known agents are: aider, claude, codex, gemini, opencode
[exit 2]

$ belljar up a --workspace LAB/missing
belljar: --workspace: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar up a --workspace . --no-workspace
belljar: the argument '--workspace <DIR>' cannot be used with '--no-workspace'

Usage: belljar up --workspace <DIR> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --repo LAB/missing
belljar: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar up a --repo LAB/project
belljar: --repo: [LAB]/project is not in a git repository; run `git init`, or use `--workspace`
[exit 2]

$ belljar up a --repo . --workspace .
belljar: the argument '--repo <DIR>' cannot be used with '--workspace <DIR>'

Usage: belljar up --repo <DIR> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --repo . --mode direct
belljar: the argument '--repo <DIR>' cannot be used with '--mode <MODE>'

Usage: belljar up --repo <DIR> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --branch main
belljar: the following required arguments were not provided:
  --repo <DIR>

Usage: belljar up --repo <DIR> --branch <B> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --uncommitted
belljar: the following required arguments were not provided:
  --repo <DIR>

Usage: belljar up --repo <DIR> --uncommitted <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --git-identity nobody
belljar: invalid value 'nobody' for '--git-identity <WHO>': invalid author; write a name and an e-mail address: `Ada Lovelace <ada@example.org>`

For more information, try '--help'.
[exit 2]

$ belljar up a --memory 0
belljar: invalid value '0' for '--memory <SIZE>': a size cannot be zero; write the intended size

For more information, try '--help'.
[exit 2]

$ belljar up a --secret undeclared
belljar: there is no secret `undeclared`: write `[secret.undeclared]` with its `hosts` into your own belljar.toml and store it with `belljar secret set undeclared`; the secrets are anthropic, gemini, github, openai
[exit 2]

$ belljar up a --health
belljar: a value is required for '--health <CMD>' but none was supplied

For more information, try '--help'.
[exit 2]

$ belljar up a true
belljar: box a is running
belljar: box true is running

$ belljar list
a                     running       -                 [LAB]/project
true                  running       -                 [LAB]/project
"##);
}

#[test]
fn box_commands_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "attach a --detach-keys escape",
        "exec a",
        "exec a --tty --no-tty -- true",
        "logs a --tail some",
        "snapshot a tag --list",
        "snapshot a --json",
        "reset a --keep-work --discard-work",
        "restore --as new",
        "gc --older-than soon",
        "network a",
        "network a some",
        "approve first",
        "approve a:b",
        "approve ../a:1",
    ]), @r##"
$ belljar attach a --detach-keys escape
belljar: invalid value 'escape' for '--detach-keys <KEYS>': expected at most eight keys with commas between, each `ctrl-` and a letter or one of `@[\]^_`, or a single character

For more information, try '--help'.
[exit 2]

$ belljar exec a
belljar: the following required arguments were not provided:
  <CMD>...

Usage: belljar exec <NAME|RUN/TASK> -- <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar exec a --tty --no-tty -- true
belljar: the argument '--tty' cannot be used with '--no-tty'

Usage: belljar exec --tty <NAME|RUN/TASK> -- <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar logs a --tail some
belljar: invalid value 'some' for '--tail <LINES>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar snapshot a tag --list
belljar: the argument '[TAG]' cannot be used with '--list'

Usage: belljar snapshot <NAME> <TAG>

For more information, try '--help'.
[exit 2]

$ belljar snapshot a --json
belljar: the following required arguments were not provided:
  --list

Usage: belljar snapshot --list --json <NAME> [TAG]

For more information, try '--help'.
[exit 2]

$ belljar reset a --keep-work --discard-work
belljar: the argument '--keep-work' cannot be used with '--discard-work'

Usage: belljar reset --keep-work <NAME> [TAG]

For more information, try '--help'.
[exit 2]

$ belljar restore --as new
belljar: the following required arguments were not provided:
  <NAME|ID>

Usage: belljar restore --as <NEW> <NAME|ID>

For more information, try '--help'.
[exit 2]

$ belljar gc --older-than soon
belljar: invalid value 'soon' for '--older-than <AGE>': expected a date (2026-11-16), a time ([TIME]) or an age (90s, 15m, 12h, 30d, 8w)

For more information, try '--help'.
[exit 2]

$ belljar network a
belljar: the following required arguments were not provided:
  <NET>

Usage: belljar network <NAME> <NET>

For more information, try '--help'.
[exit 2]

$ belljar network a some
belljar: invalid value 'some' for '<NET>': unknown network level; write `none`, `restricted` or `full`

For more information, try '--help'.
[exit 2]

$ belljar approve first
belljar: invalid value 'first' for '[ID]...': expected NAME:NUMBER or the beginning of a digest, as `belljar approve` lists it

For more information, try '--help'.
[exit 2]

$ belljar approve a:b
belljar: invalid value 'a:b' for '[ID]...': the text after `:` is not a number

For more information, try '--help'.
[exit 2]

$ belljar approve ../a:1
belljar: invalid value '../a:1' for '[ID]...': the text before `:` is not a valid name of a box

For more information, try '--help'.
[exit 2]
"##);
}
