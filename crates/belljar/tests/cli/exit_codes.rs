//! Exit codes of `belljar run` and of commands that ask for confirmation.

use crate::{lab, transcript};

#[test]
fn run_exits_with_the_code_of_the_program_signal_timeout_or_limit() {
    let lab = lab();
    lab.write("data", "not a program");
    insta::assert_snapshot!(transcript(&lab, &[
        "run -- true",
        "run -- false",
        "run -- sh -c 'echo out; echo err >&2; exit 3'",
        "run -- sh -c 'kill -9 $$'",
        "run -- sh -c 'kill -15 $$'",
        "run -- no-such-program",
        "run --no-workspace --rootfs LAB/home -- true",
        "run -- ./data",
        "run -- /etc",
        "run --timeout 200ms -- sleep 1000",
        "run --output-limit 10 -- sh -c 'echo more than ten bytes; exec sleep 1000'",
    ]), @r##"
$ belljar run -- true

$ belljar run -- false
[exit 1]

$ belljar run -- sh -c 'echo out; echo err >&2; exit 3'
out
err
[exit 3]

$ belljar run -- sh -c 'kill -9 $$'
[exit 137]

$ belljar run -- sh -c 'kill -15 $$'
[exit 143]

$ belljar run -- no-such-program
belljar: the program was not found in the box: No such file or directory (os error 2)
[exit 127]

$ belljar run --no-workspace --rootfs LAB/home -- true
belljar: the program was not found in the box: No such file or directory (os error 2)
[exit 127]

$ belljar run -- ./data
belljar: the program cannot be executed in the box: Permission denied (os error 13)
[exit 126]

$ belljar run -- /etc
belljar: the program cannot be executed in the box: Permission denied (os error 13)
[exit 126]

$ belljar run --timeout 200ms -- sleep 1000
belljar: the program ran longer than its timeout and was killed
[exit 124]

$ belljar run --output-limit 10 -- sh -c 'echo more than ten bytes; exec sleep 1000'
more than ten bytes
belljar: the program wrote more output than its limit and was killed
[exit 137]
"##);
}

#[test]
fn run_exits_with_125_when_the_box_cannot_be_started() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "run --mount LAB/missing:/x -- true",
        "run --rootfs LAB/missing -- true",
    ]), @r##"
$ belljar run --mount LAB/missing:/x -- true
belljar: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 125]

$ belljar run --rootfs LAB/missing -- true
belljar: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 125]
"##);
}

#[test]
fn commands_that_ask_for_confirmation_change_nothing_without_a_terminal() {
    let lab = lab();
    crate::program(&lab, "run --name changes -- sh -c 'echo x > file'").succeed();
    insta::assert_snapshot!(transcript(&lab, &[
        "apply changes",
        "discard changes",
        "ledger key rotate",
        "ledger prune --before 1d",
        "ledger mend --reason why",
        "approve",
        "attach changes",
        "ui",
    ]), @r##"
$ belljar apply changes
  apply    file
belljar: nothing was applied, because it was not confirmed; `--yes` skips the question
[exit 2]

$ belljar discard changes
belljar: nothing was discarded, because it was not confirmed; `--yes` skips the question
[exit 2]

$ belljar ledger key rotate
belljar: the key was not rotated, because it was not confirmed; `--yes` skips the question
[exit 2]

$ belljar ledger prune --before 1d
events [SIZE]  all events; never deleted
salts [SIZE]  random values that protect the hashes of bodies
bodies [SIZE]  0 bodies with a content of [SIZE]
derived [SIZE]  index and tiles; created again if missing
total [SIZE]  
belljar: 0 bodies are older than [TIME]; nothing was deleted

$ belljar ledger mend --reason why
belljar: nothing was repaired, because it was not confirmed; `--yes` skips the question
[exit 2]

$ belljar approve
belljar: no questions wait for an answer

$ belljar attach changes
belljar: there is no box changes; `belljar list` shows all boxes
[exit 2]

$ belljar ui
belljar: ui needs a terminal for input and output; `belljar list` prints the boxes without one
[exit 2]
"##);
}
