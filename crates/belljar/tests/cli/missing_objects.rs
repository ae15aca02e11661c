//! Errors for boxes, runs and other objects that do not exist, and for ambiguous run id prefixes.

use crate::{lab, program, transcript};

#[test]
fn commands_on_a_missing_box_report_that_it_does_not_exist() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "status missing",
        "start missing",
        "stop missing",
        "attach missing",
        "exec missing -- true",
        "logs missing",
        "down missing",
        "snapshot missing",
        "snapshot missing --list",
        "fork missing new",
        "fork missing@tag new",
        "reset missing",
        "restore missing",
        "network missing none",
        "approve missing:1",
        "approve --all-of missing",
        "diff missing --home",
    ]), @r##"
$ belljar status missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar start missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar stop missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar attach missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar exec missing -- true
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar logs missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar down missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar snapshot missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar snapshot missing --list
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar fork missing new
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar fork missing@tag new
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar reset missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar restore missing
belljar: the trash has no entry "missing"; `belljar restore` lists all entries
[exit 2]

$ belljar network missing none
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar approve missing:1
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar approve --all-of missing
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]

$ belljar diff missing --home
belljar: there is no box missing; `belljar list` shows all boxes
[exit 2]
"##);
}

#[test]
fn review_commands_on_a_missing_run_report_that_it_does_not_exist() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "diff",
        "diff missing",
        "diff missing --json",
        "apply missing --yes",
        "apply --yes",
        "discard missing --yes",
        "discard --yes",
    ]), @r##"
$ belljar diff
belljar: no run of this directory waits for review; `belljar runs --all` lists all runs
[exit 2]

$ belljar diff missing
belljar: there is no run "missing"; `belljar runs --all` lists all runs
[exit 2]

$ belljar diff missing --json
belljar: there is no run "missing"; `belljar runs --all` lists all runs
[exit 2]

$ belljar apply missing --yes
belljar: there is no run "missing"; `belljar runs --all` lists all runs
[exit 2]

$ belljar apply --yes
belljar: no run of this directory waits for review; `belljar runs --all` lists all runs
[exit 2]

$ belljar discard missing --yes
belljar: there is no run "missing"; `belljar runs --all` lists all runs
[exit 2]

$ belljar discard --yes
belljar: no run of this directory waits for review; `belljar runs --all` lists all runs
[exit 2]
"##);
}

#[test]
fn ledger_and_net_commands_report_that_no_ledger_exists() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "net log",
        "net learn",
        "ledger log",
        "ledger show 0",
        "ledger verify",
        "ledger export",
        "ledger usage",
        "ledger checkpoint",
        "ledger key show",
        "ledger mend --reason why --yes",
    ]), @r##"
$ belljar net log
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar net learn
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger log
belljar: there is no ledger yet; `belljar run` creates it

$ belljar ledger show 0
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger verify
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger export
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger usage
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger checkpoint
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger key show
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]

$ belljar ledger mend --reason why --yes
belljar: there is no ledger yet; `belljar run` creates it
[exit 2]
"##);
}

#[test]
fn ledger_and_net_commands_name_the_missing_run_event_body_or_file() {
    let lab = lab();
    program(&lab, "run --no-workspace -- true").succeed();
    insta::assert_snapshot!(transcript(&lab, &[
        "net log missing",
        "net learn missing",
        "ledger log --run missing",
        "ledger replay missing",
        "ledger receipt missing",
        "ledger export --run missing",
        "ledger show 999",
        "ledger show missing/1",
        "ledger show x",
        "ledger get fed",
        "ledger get fedcba9876543210",
        "ledger get nothing!",
        "ledger prove 999",
        "ledger consistency 1 999",
        "ledger consistency 2 1",
        "ledger redact fedcba9876543210 --reason why --yes",
        "ledger settle 999 --reason why",
        "ledger settle 0 --reason why",
        "ledger verify-receipt LAB/missing",
        "ledger verify-proof LAB/missing",
        "ledger verify --key LAB/missing",
        "ledger verify --checkpoint LAB/missing",
        "ledger import-trace LAB/missing",
    ]), @r##"
$ belljar net log missing
belljar: RUN "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar net learn missing
belljar: RUN "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar ledger log --run missing
belljar: --run "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar ledger replay missing
belljar: RUN "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar ledger receipt missing
belljar: RUN "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar ledger export --run missing
belljar: --run "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar ledger show 999
belljar: there is no event "999"; the ledger has 5 events
[exit 2]

$ belljar ledger show missing/1
belljar: ID "missing": no such run; list the runs with `belljar ledger log --kind run.created`
[exit 2]

$ belljar ledger show x
belljar: invalid event id "x"; use the index of an event, such as 17, or RUN/SEQUENCE
[exit 2]

$ belljar ledger get fed
belljar: HASH: "fed" is not a hash; use 8 to 64 digits of 0-9 and a-f
[exit 2]

$ belljar ledger get fedcba9876543210
belljar: HASH: the ledger has no body with the hash fedcba9876543210
[exit 2]

$ belljar ledger get nothing!
belljar: HASH: "nothing!" is not a hash; use 8 to 64 digits of 0-9 and a-f
[exit 2]

$ belljar ledger prove 999
belljar: there is no event "999"; the ledger has 5 events
[exit 2]

$ belljar ledger consistency 1 999
belljar: B: the size 999 is too large, because the ledger has only 5 signed events
[exit 2]

$ belljar ledger consistency 2 1
belljar: A (2 events) is larger than B (1 events); the smaller size comes first
[exit 2]

$ belljar ledger redact fedcba9876543210 --reason why --yes
belljar: HASH: the ledger has no body with the hash fedcba9876543210
[exit 2]

$ belljar ledger settle 999 --reason why
belljar: there is no event "999"; the ledger has 5 events
[exit 2]

$ belljar ledger settle 0 --reason why
belljar: event 0 (ledger.created) is not an intent with an unknown result; `belljar runs` lists such events
[exit 2]

$ belljar ledger verify-receipt LAB/missing
belljar: FILE: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar ledger verify-proof LAB/missing
belljar: FILE: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar ledger verify --key LAB/missing
belljar: --key: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar ledger verify --checkpoint LAB/missing
belljar: --checkpoint: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar ledger import-trace LAB/missing
belljar: FILE: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]
"##);
}

#[test]
fn commands_on_missing_secrets_skills_apis_and_agents_name_the_missing_item() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "secret test missing",
        "secret rm missing",
        "secret set empty",
        "secret set a --from-env MISSING",
        "secret set a --from-file LAB/missing",
        "secret set a --from-command false",
        "skill show missing",
        "skill history missing",
        "skill edit missing --search x --replace y",
        "skill rm missing -y",
        "skill approve missing -y",
        "skill run missing",
        "skill save a LAB/missing",
        "api show missing",
        "api test missing",
        "api add a --openapi LAB/missing",
        "api add a",
        "mcp accept missing",
        "agent login nobody",
        "code LAB/missing",
        "code --api missing LAB/missing",
    ]), @r##"
$ belljar secret test missing
belljar: secret missing is not set; `belljar secret list` shows the secrets that are set
[exit 2]

$ belljar secret rm missing
belljar: secret missing is not set; `belljar secret list` shows the secrets that are set
[exit 2]

$ belljar secret set empty
belljar: secret empty was not set: the value of the secret is empty
[exit 1]

$ belljar secret set a --from-env MISSING
belljar: --from-env: the environment variable MISSING is not set
[exit 2]

$ belljar secret set a --from-file LAB/missing
belljar: --from-file: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 1]

$ belljar secret set a --from-command false
belljar: --from-command: false failed with exit status: 1
[exit 1]

$ belljar skill show missing
belljar: there is no skill `missing`
[exit 2]

$ belljar skill history missing
belljar: there is no skill `missing`
[exit 2]

$ belljar skill edit missing --search x --replace y
belljar: there is no skill `missing`
[exit 2]

$ belljar skill rm missing -y
belljar: there is no skill `missing`
[exit 2]

$ belljar skill approve missing -y
belljar: there is no skill `missing`
[exit 2]

$ belljar skill run missing
belljar: there is no skill `missing`
[exit 2]

$ belljar skill save a LAB/missing
belljar: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar api show missing
belljar: there is no api `missing`; none is declared; write `[api.NAME]` into your belljar.toml
[exit 2]

$ belljar api test missing
belljar: there is no api `missing`; none is declared; write `[api.NAME]` into your belljar.toml
[exit 2]

$ belljar api add a --openapi LAB/missing
belljar: --openapi: cannot read [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar api add a
belljar: cannot tell which hosts the api uses: there is no OpenAPI document with an https server; name the hosts with --host or --allow
[exit 2]

$ belljar mcp accept missing
belljar: unknown tool server missing; belljar.toml has no section [mcp.missing]
[exit 2]

$ belljar agent login nobody
belljar: --agent: unknown agent nobody; the known agents are: aider, claude, codex, gemini, opencode
[exit 2]

$ belljar code LAB/missing
belljar: cannot read the program [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar code --api missing LAB/missing
belljar: cannot read the program [LAB]/missing: No such file or directory (os error 2)
[exit 2]
"##);
}

#[test]
fn diff_apply_and_discard_refuse_an_ambiguous_run_id_prefix() {
    let lab = lab();
    for _ in 0..2 {
        program(&lab, "run -- sh -c 'echo x >> file'").succeed();
    }
    let runs = lab.runs();
    let id = |index: usize| runs[index].file_name().unwrap().to_str().unwrap().to_owned();
    let (first, second) = (id(0), id(1));
    let shared_length = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    assert!(shared_length >= 4, "run ids start with the time: {first} {second}");
    let prefix = &first[..4];
    let commands = ["diff", "apply --yes", "discard --yes"].map(|it| format!("{it} {prefix}"));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = transcript(&lab, &commands).replace(prefix, "[PREFIX]");
    insta::assert_snapshot!(text, @r##"
$ belljar diff [PREFIX]
belljar: run id prefix "[PREFIX]" is ambiguous (2 matches); use a longer prefix
[exit 2]

$ belljar apply --yes [PREFIX]
belljar: run id prefix "[PREFIX]" is ambiguous (2 matches); use a longer prefix
[exit 2]

$ belljar discard --yes [PREFIX]
belljar: run id prefix "[PREFIX]" is ambiguous (2 matches); use a longer prefix
[exit 2]
"##);
}
