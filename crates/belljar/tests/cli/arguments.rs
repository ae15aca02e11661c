//! Arguments that are wrong: the error names the argument, and the exit code is 2.

use crate::{lab, transcript};

#[test]
fn similar_commands_and_options_are_suggested() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "satus",
        "secret lst",
        "run --alow pypi -- true",
        "run --alow=pypi true",
        "up --memroy 1GiB box",
        "ledger log --folow",
    ]), @r##"
$ belljar satus
error: unrecognized subcommand 'satus'

  tip: a similar subcommand exists: 'status'

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar secret lst
error: unrecognized subcommand 'lst'

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
error: unexpected argument '--memroy' found

  tip: a similar argument exists: '--memory'
  tip: to pass '--memroy' as a value, use '-- --memroy'

Usage: belljar up --memory <SIZE> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar ledger log --folow
error: unexpected argument '--folow' found

  tip: a similar argument exists: '--follow'

Usage: belljar ledger log --follow

For more information, try '--help'.
[exit 2]
"##);
}

#[test]
fn aliases_run_the_commands_that_they_stand_for() {
    insta::assert_snapshot!(transcript(&lab(), &["ls", "ps", "rm missing", "shell missing"]), @r##"
$ belljar ls
belljar: no boxes; `belljar up NAME` makes one

$ belljar ps
belljar: no boxes; `belljar up NAME` makes one

$ belljar rm missing
belljar: there is no box missing; `belljar list` shows those there are
[exit 2]

$ belljar shell missing
belljar: there is no box missing; `belljar list` shows those there are
[exit 2]
"##);
}

#[test]
fn unknown_commands_and_options_are_named() {
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
error: unrecognized subcommand 'frobnicate'

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar rnu
error: unrecognized subcommand 'rnu'

  tip: a similar subcommand exists: 'runs'

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar --frobnicate
error: unexpected argument '--frobnicate' found

Usage: belljar [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar run --frobnicate -- true
belljar: unknown option --frobnicate; `belljar run --help` lists the options (write `--` before a program whose name starts with `-`)
[exit 2]

$ belljar list extra
error: unexpected argument 'extra' found

Usage: belljar list [OPTIONS]

For more information, try '--help'.
[exit 2]

$ belljar run
error: the following required arguments were not provided:
  <CMD>...

Usage: belljar run <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar run --no-workspace --workspace . -- true
error: the argument '--no-workspace' cannot be used with '--workspace <DIR>'

Usage: belljar run --no-workspace <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar run --memory
error: a value is required for '--memory <SIZE>' but none was supplied

For more information, try '--help'.
[exit 2]

$ belljar --config
error: a value is required for '--config <FILE>' but none was supplied

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
error: unrecognized subcommand 'frobnicate'

Usage: belljar secret [OPTIONS] <COMMAND>

For more information, try '--help'.
[exit 2]

$ belljar completions
error: the following required arguments were not provided:
  <SHELL>

Usage: belljar completions <SHELL>

For more information, try '--help'.
[exit 2]

$ belljar completions cmd.exe
error: invalid value 'cmd.exe' for '<SHELL>'
  [possible values: bash, elvish, fish, powershell, zsh]

For more information, try '--help'.
[exit 2]

$ belljar ui extra
error: unexpected argument 'extra' found

Usage: belljar ui [OPTIONS]

For more information, try '--help'.
[exit 2]
"##);
}

#[test]
fn bad_values_of_the_options_of_run_are_named() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "run --template large -- true",
        "run --workspace LAB/missing -- true",
        "run --mode fast -- true",
        "run --net some -- true",
        "run --allow 'a b c' -- true",
        "run --allow nothing -- true",
        "run --deny '*' -- true",
        "run --ask 'a b c' -- true",
        "run --secret 'a b' -- true",
        "run --secret undeclared -- true",
        "run --mount relative -- true",
        "run --mount /etc:/proc/x -- true",
        "run --mount /etc:relative -- true",
        "run --mount /etc:/x:rx -- true",
        "run --env =x -- true",
        "run --env 'A B=x' -- true",
        "run --user me -- true",
        "run --user=-1 -- true",
        "run --memory much -- true",
        "run --memory 1KiB -- true",
        "run --cpus none -- true",
        "run --cpus 0 -- true",
        "run --pids many -- true",
        "run --pids 0 -- true",
        "run --disk -1 -- true",
        "run --disk 0 -- true",
        "run --files few -- true",
        "run --files 0 -- true",
        "run --output-limit x -- true",
        "run --timeout soon -- true",
        "run --timeout 0s -- true",
        "run --record all -- true",
        "run --weaken walls -- true",
        "run --require moon -- true",
        "run --weaken cgroup --require cgroup -- true",
        "run --name ../x -- true",
        "run --name '' -- true",
    ]), @r##"
$ belljar run --template large -- true
belljar: --template: there is no "large"; there are default
[exit 2]

$ belljar run --workspace LAB/missing -- true
belljar: --workspace: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar run --mode fast -- true
error: invalid value 'fast' for '--mode <MODE>': unknown mode; write `overlay`, `direct` or `read-only`

For more information, try '--help'.
[exit 2]

$ belljar run --net some -- true
error: invalid value 'some' for '--net <NET>': unknown network level; write `none`, `restricted` or `full`

For more information, try '--help'.
[exit 2]

$ belljar run --allow 'a b c' -- true
error: invalid value 'a b c' for '--allow <RULE>': `methods`: methods must be upper case, for example GET

For more information, try '--help'.
[exit 2]

$ belljar run --allow nothing -- true
error: invalid value 'nothing' for '--allow <RULE>': unknown preset; the presets are anthropic, openai, gemini, github, pypi, npm, crates, debian, git-https

For more information, try '--help'.
[exit 2]

$ belljar run --deny '*' -- true
error: invalid value '*' for '--deny <RULE>': `host`: a wildcard must be the whole first label, as in *.example.com

For more information, try '--help'.
[exit 2]

$ belljar run --ask 'a b c' -- true
error: invalid value 'a b c' for '--ask <RULE>': `methods`: methods must be upper case, for example GET

For more information, try '--help'.
[exit 2]

$ belljar run --secret 'a b' -- true
error: invalid value 'a b' for '--secret <NAME>': invalid secret name; use 1 to 64 of a-z, 0-9, `-` and `_`, a letter or digit first

For more information, try '--help'.
[exit 2]

$ belljar run --secret undeclared -- true
belljar: there is no secret `undeclared`: write `[secret.undeclared]` with its `hosts` into your own belljar.toml and store it with `belljar secret set undeclared`; the secrets are anthropic, gemini, github, openai
[exit 2]

$ belljar run --mount relative -- true
error: invalid value 'relative' for '--mount <SRC:DST[:ro|rw]>': invalid mount; write SRC:DST, SRC:DST:ro or SRC:DST:rw

For more information, try '--help'.
[exit 2]

$ belljar run --mount /etc:/proc/x -- true
error: invalid value '/etc:/proc/x' for '--mount <SRC:DST[:ro|rw]>': cannot mount at /proc, which the box itself provides; choose another target

For more information, try '--help'.
[exit 2]

$ belljar run --mount /etc:relative -- true
error: invalid value '/etc:relative' for '--mount <SRC:DST[:ro|rw]>': the target of the mount must be an absolute path without `.`, `..` or `//`

For more information, try '--help'.
[exit 2]

$ belljar run --mount /etc:/x:rx -- true
error: invalid value '/etc:/x:rx' for '--mount <SRC:DST[:ro|rw]>': invalid access at the end of the mount; write `:ro`, `:rw` or nothing

For more information, try '--help'.
[exit 2]

$ belljar run --env =x -- true
error: invalid value '=x' for '--env <K[=V]>': invalid variable; write NAME=VALUE, or NAME to inherit it (letters, digits and `_`)

For more information, try '--help'.
[exit 2]

$ belljar run --env 'A B=x' -- true
error: invalid value 'A B=x' for '--env <K[=V]>': invalid variable; write NAME=VALUE, or NAME to inherit it (letters, digits and `_`)

For more information, try '--help'.
[exit 2]

$ belljar run --user me -- true
error: invalid value 'me' for '--user <UID>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar run --user=-1 -- true
error: invalid value '-1' for '--user <UID>': -1 is not in 0..=4294967295

For more information, try '--help'.
[exit 2]

$ belljar run --memory much -- true
error: invalid value 'much' for '--memory <SIZE>': invalid size; write for example "512MiB" or "2GiB"

For more information, try '--help'.
[exit 2]

$ belljar run --memory 1KiB -- true
belljar: the memory limit must be at least 16MiB, or no program can start
[exit 2]

$ belljar run --cpus none -- true
error: invalid value 'none' for '--cpus <N>': invalid number of CPUs; write for example "2" or "0.5"

For more information, try '--help'.
[exit 2]

$ belljar run --cpus 0 -- true
error: invalid value '0' for '--cpus <N>': the number of CPUs must be greater than zero

For more information, try '--help'.
[exit 2]

$ belljar run --pids many -- true
error: invalid value 'many' for '--pids <N>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar run --pids 0 -- true
belljar: the process limit must be at least 2; Belljar itself needs one process
[exit 2]

$ belljar run --disk -1 -- true
error: invalid value '-1' for '--disk <SIZE>': a size cannot be negative

For more information, try '--help'.
[exit 2]

$ belljar run --disk 0 -- true
error: invalid value '0' for '--disk <SIZE>': a size cannot be zero; write the intended size

For more information, try '--help'.
[exit 2]

$ belljar run --files few -- true
error: invalid value 'few' for '--files <N>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar run --files 0 -- true
belljar: the limit of open files must be at least 16, or no program can start
[exit 2]

$ belljar run --output-limit x -- true
error: invalid value 'x' for '--output-limit <SIZE>': invalid size; write for example "512MiB" or "2GiB"

For more information, try '--help'.
[exit 2]

$ belljar run --timeout soon -- true
error: invalid value 'soon' for '--timeout <TIME>': invalid time; write for example "90s", "10m", "1h30m" or "none"

For more information, try '--help'.
[exit 2]

$ belljar run --timeout 0s -- true
error: invalid value '0s' for '--timeout <TIME>': a timeout of zero would kill every program at once; write "none" for no timeout

For more information, try '--help'.
[exit 2]

$ belljar run --record all -- true
error: invalid value 'all' for '--record <WHAT>': unknown recording level; write `hashes`, `bodies` or `none`

For more information, try '--help'.
[exit 2]

$ belljar run --weaken walls -- true
error: invalid value 'walls' for '--weaken <LAYER>': unknown layer; the layers are namespaces, time-namespace, read-only-system, proc-mask, seccomp, landlock, capabilities, no-new-privs, nested-userns, cgroup, rlimits, self-test

For more information, try '--help'.
[exit 2]

$ belljar run --require moon -- true
error: invalid value 'moon' for '--require <WHAT>': unknown requirement; the only one is `cgroup`

For more information, try '--help'.
[exit 2]

$ belljar run --weaken cgroup --require cgroup -- true
belljar: `cgroup` is both required and weakened
[exit 2]

$ belljar run --name ../x -- true
error: invalid value '../x' for '--name <NAME>': invalid name; use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, a letter or digit first

For more information, try '--help'.
[exit 2]

$ belljar run --name '' -- true
error: invalid value '' for '--name <NAME>': invalid name; use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, a letter or digit first

For more information, try '--help'.
[exit 2]
"##);
}

#[test]
fn bad_values_of_the_options_of_up_are_named() {
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
error: the following required arguments were not provided:
  <NAME>...

Usage: belljar up <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up ../x
error: invalid value '../x' for '<NAME>...': invalid name; use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, a letter or digit first

For more information, try '--help'.
[exit 2]

$ belljar up .hidden
error: invalid value '.hidden' for '<NAME>...': invalid name; use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, a letter or digit first

For more information, try '--help'.
[exit 2]

$ belljar up a --template large
belljar: --template: there is no "large"; there are default
[exit 2]

$ belljar up a --agent 'no name'
error: invalid value 'no name' for '--agent <AGENT>': invalid agent name; use 1 to 40 of a-z, 0-9 and `-`, a letter first

For more information, try '--help'.
[exit 2]

$ belljar up a --agent nobody
belljar: --agent: there is no nobody; there are aider, claude, codex, gemini, opencode
[exit 2]

$ belljar up a --workspace LAB/missing
belljar: --workspace: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar up a --workspace . --no-workspace
error: the argument '--workspace <DIR>' cannot be used with '--no-workspace'

Usage: belljar up --workspace <DIR> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --repo LAB/missing
belljar: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar up a --repo LAB/project
belljar: --repo: [LAB]/project is not in a git repository; `git init` makes one, `--workspace` needs none
[exit 2]

$ belljar up a --repo . --workspace .
error: the argument '--repo <DIR>' cannot be used with '--workspace <DIR>'

Usage: belljar up --repo <DIR> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --repo . --mode direct
error: the argument '--repo <DIR>' cannot be used with '--mode <MODE>'

Usage: belljar up --repo <DIR> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --branch main
error: the following required arguments were not provided:
  --repo <DIR>

Usage: belljar up --repo <DIR> --branch <B> <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --uncommitted
error: the following required arguments were not provided:
  --repo <DIR>

Usage: belljar up --repo <DIR> --uncommitted <NAME>... [-- <CMD>...]

For more information, try '--help'.
[exit 2]

$ belljar up a --git-identity nobody
error: invalid value 'nobody' for '--git-identity <WHO>': invalid author; write a name and an e-mail address: `Ada Lovelace <ada@example.org>`

For more information, try '--help'.
[exit 2]

$ belljar up a --memory 0
error: invalid value '0' for '--memory <SIZE>': a size cannot be zero; write the intended size

For more information, try '--help'.
[exit 2]

$ belljar up a --secret undeclared
belljar: there is no secret `undeclared`: write `[secret.undeclared]` with its `hosts` into your own belljar.toml and store it with `belljar secret set undeclared`; the secrets are anthropic, gemini, github, openai
[exit 2]

$ belljar up a --health
error: a value is required for '--health <CMD>' but none was supplied

For more information, try '--help'.
[exit 2]

$ belljar up a true
belljar: box a is up
belljar: box true is up

$ belljar list
a                     running       -                 [LAB]/project
true                  running       -                 [LAB]/project
"##);
}

#[test]
fn bad_values_of_other_commands_are_named() {
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
        "diff --stat --conflicts",
        "diff --home",
        "diff a --since tag",
        "apply --branch x --theirs y",
        "ledger log --kind none",
        "ledger log --since yesterday",
        "ledger log --limit all",
        "ledger log --follow --reverse",
        "ledger replay x --speed 0",
        "ledger redact abc --reason ''",
        "ledger prune",
        "ledger prune --before soon",
        "ledger export --otel --jsonl",
        "net explain",
        "net explain 'https://a b/'",
        "net explain https://a.example.com --method 'GET /'",
        "net log --all x",
        "secret set",
        "secret set 'a b'",
        "secret set a --from-env A --from-file b",
        "skill save ../a LAB/file",
        "skill save a LAB/file --lang py",
        "skill edit a --search x",
        "api add 'a b'",
        "api add a --base-url nowhere",
        "api show a --search x --types",
        "mcp install emacs",
        "mcp --tls-cert x",
        "mcp --http nowhere",
        "code --lang cobol",
        "code --input {",
        "code --timeout 0",
        "code --mode overlay",
        "code --languages --json",
        "doctor --only C10",
        "doctor --prove --only none",
        "template show large",
        "policy explain --template large",
        "agent show nobody",
    ]), @r##"
$ belljar attach a --detach-keys escape
error: invalid value 'escape' for '--detach-keys <KEYS>': expected at most eight keys with commas between, each `ctrl-` and a letter or one of `@[\]^_`, or a single character

For more information, try '--help'.
[exit 2]

$ belljar exec a
error: the following required arguments were not provided:
  <CMD>...

Usage: belljar exec <NAME> -- <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar exec a --tty --no-tty -- true
error: the argument '--tty' cannot be used with '--no-tty'

Usage: belljar exec --tty <NAME> -- <CMD>...

For more information, try '--help'.
[exit 2]

$ belljar logs a --tail some
error: invalid value 'some' for '--tail <LINES>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar snapshot a tag --list
error: the argument '[TAG]' cannot be used with '--list'

Usage: belljar snapshot <NAME> <TAG>

For more information, try '--help'.
[exit 2]

$ belljar snapshot a --json
error: the following required arguments were not provided:
  --list

Usage: belljar snapshot --list --json <NAME> [TAG]

For more information, try '--help'.
[exit 2]

$ belljar reset a --keep-work --discard-work
error: the argument '--keep-work' cannot be used with '--discard-work'

Usage: belljar reset --keep-work <NAME> [TAG]

For more information, try '--help'.
[exit 2]

$ belljar restore --as new
error: the following required arguments were not provided:
  <NAME|ID>

Usage: belljar restore --as <NEW> <NAME|ID>

For more information, try '--help'.
[exit 2]

$ belljar gc --older-than soon
error: invalid value 'soon' for '--older-than <AGE>': expected a date (2026-11-16), a time ([TIME]) or an age (90s, 15m, 12h, 30d, 8w)

For more information, try '--help'.
[exit 2]

$ belljar network a
error: the following required arguments were not provided:
  <NET>

Usage: belljar network <NAME> <NET>

For more information, try '--help'.
[exit 2]

$ belljar network a some
error: invalid value 'some' for '<NET>': unknown network level; write `none`, `restricted` or `full`

For more information, try '--help'.
[exit 2]

$ belljar approve first
error: invalid value 'first' for '[ID]...': expected NAME:NUMBER, as `belljar approve` lists it

For more information, try '--help'.
[exit 2]

$ belljar approve a:b
error: invalid value 'a:b' for '[ID]...': the text after `:` is not a number

For more information, try '--help'.
[exit 2]

$ belljar approve ../a:1
error: invalid value '../a:1' for '[ID]...': the text before `:` is not a valid name of a box

For more information, try '--help'.
[exit 2]

$ belljar diff --stat --conflicts
error: the argument '--stat' cannot be used with '--conflicts'

Usage: belljar diff --stat [RUN] [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar diff --home
error: the following required arguments were not provided:
  <RUN>

Usage: belljar diff --home <RUN> [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar diff a --since tag
error: the following required arguments were not provided:
  --home

Usage: belljar diff --home --since <TAG> <RUN> [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar apply --branch x --theirs y
error: the argument '--branch [<BRANCH>]' cannot be used with '--theirs <PATH>'

Usage: belljar apply --branch [<BRANCH>] [RUN] [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar ledger log --kind none
error: invalid value 'none' for '--kind <KIND>'
  [possible values: run, run.created, run.layers, run.weakened, run.exec, box, box.exec, run.limit, run.ended, run.failed, workspace, workspace.changed, workspace.applying, workspace.applied, workspace.discarded, policy, policy.loaded, doctor, doctor.checked, dns, dns.decided, request, request.decided, request.finished, secret, secret.used, secret.set, secret.renewed, secret.removed, skill, skill.saved, skill.approved, skill.removed, box.removed, box.discarded, box.restored, box.snapshot, box.reset, box.forked, trash, trash.emptied, api, api.added, alarm, alarm.raised, budget, budget.spent, approval, approval.asked, approval.given, approval.refused, network, network.changed, attention, attention.settled, ledger, ledger.created, ledger.redacted, ledger.pruned, ledger.repaired, ledger.checkpoint, key, key.rotated, trace, trace.span]

For more information, try '--help'.
[exit 2]

$ belljar ledger log --since yesterday
error: invalid value 'yesterday' for '--since <TIME>': expected a date (2026-11-16), a time ([TIME]) or an age (90s, 15m, 12h, 30d, 8w)

For more information, try '--help'.
[exit 2]

$ belljar ledger log --limit all
error: invalid value 'all' for '--limit <N>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar ledger log --follow --reverse
error: the argument '--follow' cannot be used with '--reverse'

Usage: belljar ledger log --follow

For more information, try '--help'.
[exit 2]

$ belljar ledger replay x --speed 0
error: invalid value '0' for '--speed <N>': expected a number above 0, such as 10 or 0.5

For more information, try '--help'.
[exit 2]

$ belljar ledger redact abc --reason ''
error: invalid value '' for '--reason <TEXT>': the reason is empty

For more information, try '--help'.
[exit 2]

$ belljar ledger prune
error: the following required arguments were not provided:
  --before <DATE>

Usage: belljar ledger prune --before <DATE>

For more information, try '--help'.
[exit 2]

$ belljar ledger prune --before soon
error: invalid value 'soon' for '--before <DATE>': expected a date (2026-11-16), a time ([TIME]) or an age (90s, 15m, 12h, 30d, 8w)

For more information, try '--help'.
[exit 2]

$ belljar ledger export --otel --jsonl
error: the argument '--otel' cannot be used with '--jsonl'

Usage: belljar ledger export --otel

For more information, try '--help'.
[exit 2]

$ belljar net explain
error: the following required arguments were not provided:
  <URL>

Usage: belljar net explain <URL>

For more information, try '--help'.
[exit 2]

$ belljar net explain 'https://a b/'
belljar: https://a b/: a host name can contain only letters, digits, hyphens and dots
[exit 2]

$ belljar net explain https://a.example.com --method 'GET /'
error: invalid value 'GET /' for '--method <METHOD>': invalid method; write for example GET or POST

For more information, try '--help'.
[exit 2]

$ belljar net log --all x
error: the argument '--all' cannot be used with '[RUN]'

Usage: belljar net log --all [RUN]

For more information, try '--help'.
[exit 2]

$ belljar secret set
error: the following required arguments were not provided:
  <NAME>

Usage: belljar secret set <NAME>

For more information, try '--help'.
[exit 2]

$ belljar secret set 'a b'
error: invalid value 'a b' for '<NAME>': invalid secret name; use 1 to 64 of a-z, 0-9, `-` and `_`, a letter or digit first

For more information, try '--help'.
[exit 2]

$ belljar secret set a --from-env A --from-file b
error: the argument '--from-env <VAR>' cannot be used with '--from-file <FILE>'

Usage: belljar secret set --from-env <VAR> <NAME>

For more information, try '--help'.
[exit 2]

$ belljar skill save ../a LAB/file
error: invalid value '../a' for '<NAME>': invalid name; use 1 to 64 of a-z, 0-9, `-` and `_`, a letter first

For more information, try '--help'.
[exit 2]

$ belljar skill save a LAB/file --lang py
error: invalid value 'py' for '--lang <LANG>'
  [possible values: ts, js]

For more information, try '--help'.
[exit 2]

$ belljar skill edit a --search x
error: the following required arguments were not provided:
  --replace <TEXT>

Usage: belljar skill edit --search <TEXT> --replace <TEXT> <NAME>

For more information, try '--help'.
[exit 2]

$ belljar api add 'a b'
error: invalid value 'a b' for '<NAME>': invalid name; use 1 to 64 of a-z, 0-9, `-` and `_`, a letter first

For more information, try '--help'.
[exit 2]

$ belljar api add a --base-url nowhere
error: invalid value 'nowhere' for '--base-url <URL>': invalid URL; write https://HOST or https://HOST/PATH

For more information, try '--help'.
[exit 2]

$ belljar api show a --search x --types
error: the argument '--search <WORDS>' cannot be used with '--types'

Usage: belljar api show --search <WORDS> <NAME>

For more information, try '--help'.
[exit 2]

$ belljar mcp install emacs
error: invalid value 'emacs' for '<CLIENT>'
  [possible values: claude, codex, gemini, opencode, vscode]

For more information, try '--help'.
[exit 2]

$ belljar mcp --tls-cert x
error: the following required arguments were not provided:
  --http <ADDR:PORT>
  --tls-key <FILE>

Usage: belljar mcp --http <ADDR:PORT> --tls-cert <FILE> --tls-key <FILE>

For more information, try '--help'.
[exit 2]

$ belljar mcp --http nowhere
error: invalid value 'nowhere' for '--http <ADDR:PORT>': invalid socket address syntax

For more information, try '--help'.
[exit 2]

$ belljar code --lang cobol
error: invalid value 'cobol' for '--lang <LANG>': there is no language "cobol"; there are ts, js, py, sh, deno, node

For more information, try '--help'.
[exit 2]

$ belljar code --input {
belljar: --input: not JSON: EOF while parsing an object at line 1 column 1
[exit 2]

$ belljar code --timeout 0
belljar: `timeout` must be from 1 to 600 seconds
[exit 2]

$ belljar code --mode overlay
error: the following required arguments were not provided:
  --workspace <DIR>

Usage: belljar code --workspace <DIR> --mode <MODE> [FILE]

For more information, try '--help'.
[exit 2]

$ belljar code --languages --json
error: the argument '--languages' cannot be used with one or more of the other specified arguments

Usage: belljar code [OPTIONS] [FILE]

For more information, try '--help'.
[exit 2]

$ belljar doctor --only C10
error: the following required arguments were not provided:
  --prove

Usage: belljar doctor --prove --only <ID>

For more information, try '--help'.
[exit 2]

$ belljar doctor --prove --only none
belljar: --only none: no such attack
[exit 2]

$ belljar template show large
belljar: no template "large"; there are default
[exit 2]

$ belljar policy explain --template large
belljar: --template: there is no "large"; there are default
[exit 2]

$ belljar agent show nobody
belljar: there is no agent nobody; there are aider, claude, codex, gemini, opencode
[exit 2]
"##);
}
