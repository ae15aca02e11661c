//! `belljar run`: exit codes, streams, results, signals and the choice of a workspace. The contents and
//! limits of a box are tested in `crates/engine/tests`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use belljar_testkit::{ProcessTree, Signal, is_root};
use serde_json::{Value, json};

use crate::lab;

/// Returns the state of an isolation layer in the result of a run.
fn layer<'a>(result: &'a Value, name: &str) -> &'a str {
    let layers = result["layers"].as_array().expect("layers");
    let found = layers.iter().find(|layer| layer["layer"] == name);
    found.and_then(|layer| layer["state"].as_str()).expect("the layer has a state")
}

#[test]
fn h12_run_whose_output_cannot_be_written_keeps_its_changes_and_its_result() {
    let program = "echo text > made; echo output; echo errors >&2; echo more >> made; exit 7";
    // The last one is the control.
    for redirect in ["> /dev/full", "2> /dev/full", "> /dev/full 2>&1", "> /dev/null 2>&1"] {
        let lab = lab();
        let script = format!("exec $BELLJAR run -- sh -c '{program}' {redirect}");
        let ended = lab.program("sh").args(["-c", &script]).run();
        let is_lost = redirect.contains("/dev/full");
        assert_eq!(ended.code(), if is_lost { 1 } else { 7 }, "{redirect}: {ended:?}");
        let record = fs::read(lab.run_dir().join("run.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!(record["review"], "pending", "{redirect}");
        assert_eq!(record["result"]["exit"], 7, "{redirect}");
        let made = fs::read_to_string(lab.run_dir().join("upper/made")).unwrap();
        assert_eq!(made, "text\nmore\n", "{redirect}");
        let log = lab.belljar(["ledger", "log", "--json"]).run();
        let log = String::from_utf8(log.stdout).unwrap();
        assert!(log.contains("run.ended") && !log.contains("run.failed"), "{redirect}: {log}");
    }
}

// ---- Exit codes

/// Asserts the exit code of `belljar run` and the reason in its result.
#[track_caller]
fn assert_exit(options: &[&str], script: &str, code: i32, reason: &str) {
    let lab = lab();
    let ended = lab.json(options, script).run();
    assert_eq!((ended.code(), ended.result()["reason"].as_str()), (code, Some(reason)), "{script}");
}

#[test]
fn run_exits_with_the_exit_code_of_the_program() {
    assert_exit(&[], "exit 0", 0, "exited");
    assert_exit(&[], "exit 7", 7, "exited");
    assert_exit(&[], "exit 255", 255, "exited");
}

#[test]
fn run_exits_with_128_plus_the_signal_that_killed_the_program() {
    assert_exit(&[], "kill -TERM $$", 143, "signaled");
    assert_exit(&[], "kill -KILL $$", 137, "signaled");
    assert_exit(&[], "kill -SEGV $$", 139, "signaled");
}

#[test]
fn run_exits_with_124_at_the_timeout() {
    assert_exit(&["--timeout", "200ms"], "sleep 60", 124, "timeout");
}

#[test]
fn run_exits_with_137_at_the_output_limit() {
    assert_exit(&["--output-limit", "1KiB"], "yes", 137, "output");
}

#[test]
fn run_exits_with_126_when_the_program_cannot_be_executed() {
    let lab = lab();
    let file = lab.write("plain", "text");
    for program in ["./plain", "/usr", "/etc/hosts"] {
        lab.belljar(["run", "--", program]).run().fails_with(126, "cannot be executed");
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    lab.belljar(["run", "--", "./plain"]).run().fails_with(126, "Exec format error");
}

#[test]
fn run_exits_with_127_when_the_program_is_not_found() {
    let lab = lab();
    for program in ["no-such-program", "./no-such-program", "/no/such/program", ""] {
        let ended = lab.belljar(["run", "--json", "--", program]).run();
        ended.fails_with(127, "not found");
        assert_eq!(ended.result()["reason"], "not_found");
    }
}

#[test]
fn run_exits_with_125_when_a_mount_source_is_missing_or_a_device() {
    let lab = lab();
    let device = lab.belljar(["run", "--mount", "/dev/null:/x", "--", "true"]).run();
    device.fails_with(125, "device");
    let missing = lab.belljar(["run", "--mount", "/no/such/thing:/x", "--", "true"]).run();
    missing.fails_with(125, "/no/such/thing");
}

#[test]
fn run_with_invalid_arguments_exits_with_2_and_starts_no_run() {
    let lab = lab();
    let invalid: [(&[&str], &str); 9] = [
        (&["run"], "CMD"),
        (&["run", "--memory", "banana", "--", "true"], "--memory"),
        (&["run", "--memory", "1KiB", "--", "true"], "memory"),
        (&["run", "--timeout", "10", "--", "true"], "the time has no unit"),
        (&["run", "--net", "lan", "--", "true"], "--net"),
        (&["run", "--weaken", "capabilities", "--", "true"], "capabilities"),
        (&["run", "--workspace", "/no/such/dir", "--", "true"], "/no/such/dir"),
        (&["run", "--template", "none-such", "--", "true"], "none-such"),
        (&["run", "--mount", "relative:/x", "--workspace", "/", "--", "true"], "root of the host"),
    ];
    for (args, about) in invalid {
        lab.belljar(args).run().fails_with(2, about);
    }
    assert_eq!(lab.runs(), [] as [PathBuf; 0]);
}

// ---- Streams

#[test]
fn run_passes_stdin_stdout_and_stderr_separately() {
    let ended = lab().bash("cat; echo error >&2; echo out").input("in\n").run();
    assert_eq!((ended.code(), ended.out(), ended.err()), (0, "in\nout".into(), "error".into()));
}

#[test]
fn run_passes_the_end_of_input_to_the_program() {
    let lab = lab();
    let live = lab.bash("wc -c").open_input().start();
    assert_eq!(live.wait().expect(0), "0"); // `wait` closes the input
}

#[test]
fn run_ends_when_the_program_exits_without_reading_its_input() {
    let ended = lab().bash("exit 3").input(vec![b'x'; 1 << 20]).run();
    assert_eq!(ended.code(), 3);
}

#[test]
fn run_exits_with_141_when_the_reader_of_its_output_exits() {
    let lab = lab();
    let pipe = r#""$BELLJAR" run -- yes 2>err | head -1; echo ${PIPESTATUS[0]}; cat err"#;
    assert_eq!(lab.program("bash").args(["-c", pipe]).succeed(), "y\n141");
}

// ---- The result

#[test]
fn run_json_result_has_exit_code_limits_layers_and_counts() {
    let lab = lab();
    let script = "cat > /dev/null; echo 12345; echo 123 >&2; echo > new; rm old";
    lab.write("old", "");
    let options = ["--name", "try-1", "--memory", "1GiB", "--pids", "64", "--weaken", "landlock"];
    let ended = lab.json(&options, script).input("abc").run();
    let result = ended.result();
    assert_eq!(ended.out().lines().next(), Some("12345"));
    assert!(ended.err().contains("123\n") || ended.err().ends_with("123"), "{}", ended.err());
    assert!(ended.err().contains("layer `landlock` is off"), "{}", ended.err());
    for (field, expect) in [
        ("name", json!("try-1")),
        ("exit", json!(0)),
        ("signal", json!(null)),
        ("reason", json!("exited")),
        ("stdin_bytes", json!(3)),
        ("output_bytes", json!({"stdout": 6, "stderr": 4})),
        ("changed_files", json!(2)),
    ] {
        assert_eq!(result[field], expect, "{field}");
    }
    assert_eq!(result["limits"]["memory"], "1GiB");
    assert_eq!(result["limits"]["pids"], 64);
    assert_eq!(result["run"].as_str(), lab.run_dir().file_name().and_then(|id| id.to_str()));
    for number in ["setup_micros", "wall_micros", "peak_memory_bytes"] {
        assert!(result[number].as_u64().is_some_and(|value| value > 0), "{number}");
    }
    assert!(result["cpu_micros"]["user"].is_u64() && result["cpu_micros"]["system"].is_u64());
    assert_eq!(layer(&result, "landlock"), "weakened");
    assert_eq!(layer(&result, "seccomp"), "in_force");
    let cgroup = layer(&result, "cgroup");
    assert!(if is_root() {
        cgroup == "in_force"
    } else {
        ["in_force", "stand_in"].contains(&cgroup)
    });
}

#[test]
fn run_json_result_is_on_its_own_line_after_output_without_a_newline() {
    let ended = lab().json(&[], r#"printf '{"reason":"forged"} '"#).run();
    assert_eq!(ended.result()["reason"], "exited");
    assert!(ended.out().starts_with(r#"{"reason":"forged"} "#));
}

// ---- Signals

/// A script that prints `ready` and then waits for signals.
const WAITING: &str = "echo ready; while :; do sleep 0.05; done";

#[test]
fn signals_to_the_supervisor_reach_the_program() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let script = format!("trap 'echo got {name}; exit 5' {name}; {WAITING}");
        let lab = lab();
        let live = lab.bash(&script).start();
        live.wait_for_output("ready");
        live.signal(signal);
        assert_eq!(live.wait().expect(5), format!("ready\ngot {name}"));
    }
}

#[test]
fn signals_to_the_supervisor_end_a_program_without_handlers() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let lab = lab();
        let live = lab.json(&[], "echo ready; exec sleep 1000").start();
        live.wait_for_output("ready");
        live.signal(signal);
        let ended = live.wait();
        ended.expect(code);
        assert_eq!(ended.result()["signal"], code - 128);
    }
}

/// The signal must reach the whole process group, as from a terminal. A shell that is interrupted alone
/// continues with its next command.
#[test]
fn interrupt_of_the_supervisor_reaches_child_processes_of_the_program() {
    let lab = lab();
    let live = lab.bash("echo ready; sleep 1000; echo went on").start();
    live.wait_for_output("ready");
    live.signal(Signal::INT);
    assert_eq!(live.wait().expect(130), "ready");
}

#[test]
fn third_interrupt_kills_a_program_that_ignores_signals() {
    let lab = lab();
    let live = lab.json(&[], &format!("trap '' INT TERM; {WAITING}")).start();
    live.wait_for_output("ready");
    for _ in 0..3 {
        live.signal(Signal::INT);
        // Two pending signals of a kind become one, so wait until each signal was received.
        let pending = format!("/proc/{}/status", live.pid());
        belljar_testkit::eventually("the signal was received", || {
            fs::read_to_string(&pending).unwrap_or_default().lines().any(|line| {
                line.strip_prefix("ShdPnd:").is_some_and(|mask| mask.trim() == "0000000000000000")
            })
        });
    }
    let ended = live.wait();
    ended.expect(130);
    assert_eq!(ended.result()["reason"], "interrupted");
}

#[test]
fn background_processes_of_a_run_end_with_its_program() {
    let lab = lab();
    let script = "setsid sleep 1000 & (setsid sleep 1000 &) ; sleep 1000 & read; echo over";
    let live = lab.bash(script).open_input().start();
    let family = ProcessTree::watch(live.pid());
    // All three `sleep` processes must run before the program ends.
    belljar_testkit::eventually("all three processes have started", || {
        let named = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let all = belljar_testkit::descendants(live.pid());
        all.into_iter().filter(|(pid, _)| named(*pid) == "sleep\n").count() == 3
    });
    family.scan();
    assert_eq!(live.wait().code(), 0); // `wait` closes the input, which `read` sees
    assert!(family.wait_until_gone() >= 4);
}

// ---- The workspace

#[test]
fn run_accepts_a_workspace_that_is_relative_or_a_symbolic_link() {
    let lab = lab();
    lab.write("sub/f", "here");
    symlink("sub", lab.workspace().join("link")).unwrap();
    for path in ["sub", "./sub/../sub", "link", "link/."] {
        let boxed = lab.belljar(["run", "--workspace", path, "--", "cat", "f"]);
        assert_eq!(boxed.succeed(), "here", "{path}");
    }
}

#[test]
fn run_requires_the_workspace_option_for_a_directory_that_contains_the_home() {
    let lab = lab();
    lab.bash("true").cwd(lab.dir()).run().fails_with(2, "home directory");
    let named = lab.belljar(["run", "--workspace", ".", "--", "ls"]).cwd(lab.dir());
    assert!(named.succeed().contains("project"));
}
