//! Tests that limits stop programs, that the result names the limit, and that nothing is left behind.
//!
//! Boxes of root have their own cgroup. Boxes of a plain user without a delegated cgroup have resource
//! limits and a watcher instead. The tests expect the same results from both.

use std::fs;
use std::path::Path;

use belljar_engine::error::ErrorKind;
use belljar_model::{InForce, Layer, Reason};
use belljar_testkit::{ProcessTree, cgroups_of, eventually, is_root, mounts_naming, root_or_skip};
use serde_json::{Value, json};

use crate::test_engine::{FinishedRun, TestEngine};

/// Runs a script with limits, checks why it ended, and checks that nothing is left behind.
#[track_caller]
fn check_end(overrides: Value, script: &str, reason: Reason, code: u8) -> FinishedRun {
    let engine = TestEngine::new();
    let family = ProcessTree::watch(i32::try_from(std::process::id()).unwrap());
    let started = engine.start(&engine.spec(overrides, script)).unwrap();
    assert!(family.scan() >= 1, "the box has processes");
    let run = engine.supervise(started).unwrap();
    let actual = (run.result.reason, run.result.exit_code());
    assert_eq!(actual, (reason, code), "{}", run.stderr);
    assert!(family.wait_until_gone() >= 1);
    check_nothing_is_left(&engine);
    run
}

/// Checks that no cgroup, no mount and no unexpected file is left.
#[track_caller]
fn check_nothing_is_left(engine: &TestEngine) {
    let lab = &engine.lab;
    eventually("no cgroup is left", || cgroups_of(&lab.runs()).is_empty());
    assert_eq!(mounts_naming(lab.dir()), [] as [String; 0]);
    let known = ["run.json", "lock", "upper", "work", "base", "changes.json"];
    for name in lab.runs().iter().flat_map(|run| file_names(run)) {
        assert!(known.contains(&name.as_str()), "{name} is left in the directory of the run");
    }
    assert_eq!(file_names(&lab.state()), ["anchor", "layout.json", "ledger", "runs"]);
    assert_eq!(file_names(lab.dir()), ["home", "project", "state"]);
}

fn file_names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A script that allocates memory until it is killed.
const MEMORY_BOMB: &str = "exec python3 -c '
kept = []
while True: kept.append(b\"x\" * (1 << 20))'";

#[test]
fn process_that_exceeds_the_memory_limit_is_killed() {
    let ended = check_end(json!({"memory": "64MiB"}), MEMORY_BOMB, Reason::Memory, 137);
    assert!(ended.result.peak_memory_bytes.is_some_and(|peak| peak > 32 << 20));
}

#[test]
fn memory_limit_counts_all_processes_of_the_box_together() {
    let script = "mkfifo p; for i in $(seq 12); do
        python3 -c 'kept = b\"x\" * (16 << 20); open(\"p\").read()' & done; wait";
    check_end(json!({"memory": "96MiB"}), script, Reason::Memory, 137);
}

#[test]
fn memory_limit_counts_files_in_dev_shm() {
    let engine = TestEngine::new();
    let script =
        "for i in $(seq 64); do head -c 4M /dev/zero > /dev/shm/$i || exit 1; done; sleep 1000";
    let ended = engine.run(json!({"memory": "64MiB", "disk": "1GiB"}), script);
    if ended.result.reason != Reason::Memory {
        // Without a cgroup, the size limit of /dev/shm is the memory limit.
        assert_eq!((ended.result.reason, ended.result.exit_code()), (Reason::Exited, 1));
        assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
    }
    check_nothing_is_left(&engine);
}

/// A script in which every process forks forever. A shell would pause after failed forks and then exit.
const FORK_BOMB: &str = "exec python3 -c '
import os
while True:
    try: os.fork()
    except BlockingIOError: pass'";

#[test]
fn fork_bomb_is_killed_at_the_process_limit() {
    check_end(json!({"pids": 32}), FORK_BOMB, Reason::Pids, 137);
}

#[test]
fn fork_bomb_beside_threads_is_killed_at_the_process_limit() {
    let threads = "import os, threading\nfor _ in range(9): threading.Thread(target=threading.Event().wait).start()\n";
    let script = FORK_BOMB.replace("import os\n", threads);
    check_end(json!({"pids": 32}), &script, Reason::Pids, 137);
}

#[test]
fn fork_above_the_process_limit_fails_and_the_program_continues() {
    let script = "python3 -c '
import os
for made in range(100):
    try:
        if os.fork() == 0: os.execvp(\"sleep\", [\"sleep\", \"1000\"])
    except BlockingIOError:
        print(made < 20); break'";
    let ended = check_end(json!({"pids": 16}), script, Reason::Exited, 0);
    assert_eq!(ended.succeeded(), "True");
}

/// Returns what enforces the disk limit of a run, from the layers of its result.
fn disk_limiter(run: &FinishedRun) -> &str {
    let rlimits = run.result.layers.iter().find(|state| state.layer == Layer::Rlimits);
    match rlimits.map(|layer| &layer.state) {
        Some(InForce::InForce { detail }) => detail,
        other => panic!("{other:?}"),
    }
}

const KERNEL: &str = "disk: a file system of limited size";

#[test]
fn program_that_fills_the_workspace_layer_is_stopped_at_the_disk_limit() {
    let script = "for i in $(seq 1000); do head -c 2M /dev/zero > f$i || exit 1; done; sleep 1000";
    let engine = TestEngine::new();
    let run = engine.run(json!({"disk": "16MiB"}), script);
    let end = (run.result.reason, run.result.exit_code());
    if disk_limiter(&run) == KERNEL {
        assert_eq!(end, (Reason::Exited, 1), "{}", run.stderr);
        assert!(run.stderr.contains("No space left on device"), "{}", run.stderr);
    } else {
        assert_eq!(end, (Reason::Disk, 137), "{}", run.stderr);
    }
    check_nothing_is_left(&engine);
}

/// A script that writes files of 1 MiB and deletes each one, which a mapping, a message in a socket or an open
/// descriptor then holds. Prints the number of MiB that were written before the first error, and the error.
const HIDDEN_FILES: &str = "exec python3 -c '
import errno, mmap, os, socket, sys
kept, made = [], 0
try:
    for made in range(64):
        file = os.open(\"f\", os.O_CREAT | os.O_RDWR)
        os.write(file, b\"x\" * (1 << 20))
        os.unlink(\"f\")
        if made % 3 == 0: kept.append(mmap.mmap(file, 1 << 20))
        if made % 3 == 1:
            pair = socket.socketpair()
            socket.send_fds(pair[0], [b\"x\"], [file])
            kept.append(pair)
        if made % 3 < 2: os.close(file)
    print(\"all\")
except OSError as error: print(made, errno.errorcode[error.errno])
open(\"kept\", \"w\").close()'";

#[test]
fn d16_kernel_limits_deleted_files_of_a_box_of_root() {
    if !root_or_skip("only root can mount an image") {
        return;
    }
    let engine = TestEngine::new();
    let control = engine.run(json!({}), HIDDEN_FILES);
    assert!(disk_limiter(&control).contains("stand-in"), "control: the default limit");
    assert_eq!(control.succeeded(), "all", "control: below the limit");
    let run = engine.run(json!({"disk": "16MiB"}), HIDDEN_FILES);
    assert_eq!(disk_limiter(&run), KERNEL);
    let out = run.succeeded();
    let (made, error) = out.split_once(' ').unwrap_or_else(|| panic!("{out}"));
    assert_eq!(error, "ENOSPC");
    let made: u64 = made.parse().unwrap();
    assert!((15..=18).contains(&made), "{made} MiB were written below a limit of 16 MiB");
    // The changes are ordinary files again, and wait for review.
    let kept = engine.lab.runs().iter().filter(|run| run.join("upper/kept").exists()).count();
    assert_eq!(kept, 2);
    check_nothing_is_left(&engine);
    let images = || fs::read_to_string("/proc/mounts").unwrap();
    assert!(!images().contains(&engine.lab.dir().display().to_string()));
}

#[test]
fn run_in_an_image_keeps_deletions_links_modes_and_attributes() {
    if !root_or_skip("only root can mount an image") {
        return;
    }
    let script = "rm gone; rm -r replaced; mkdir replaced; echo new > replaced/new
        ln -s nowhere link; mkdir -m 700 private; chmod 755 tool; ln tool hard; mkfifo pipe";
    let changes = |overrides: Value| {
        let engine = TestEngine::new();
        for name in ["gone", "replaced/old", "tool"] {
            engine.lab.write(name, "text");
        }
        engine.run(overrides, script).succeeded();
        let run = engine.lab.run_dir();
        let list = fs::read(run.join("changes.json")).unwrap();
        let mut list: Value = serde_json::from_slice(&list).unwrap();
        for entry in list["entries"].as_array_mut().unwrap() {
            // The time and the inode of the user's file differ between two workspaces.
            entry.as_object_mut().unwrap().retain(|key, _| key != "host" && key != "base");
        }
        list["entries"].to_string()
    };
    assert_eq!(changes(json!({"disk": "16MiB"})), changes(json!({})));
}

#[test]
fn program_that_fills_a_temporary_directory_gets_a_full_disk_error() {
    for dir in ["/tmp", "/home/user", "/dev/shm", "/var/tmp"] {
        let script = format!("for i in 1 2 3; do head -c 6M /dev/zero > {dir}/f$i; done");
        let ended = check_end(json!({"disk": "16MiB"}), &script, Reason::Exited, 1);
        assert!(ended.stderr.contains("No space left on device"), "{dir}: {}", ended.stderr);
    }
}

#[test]
fn single_file_cannot_exceed_the_disk_limit() {
    let script = "head -c 100M /dev/zero > f; echo $?; stat -c %s f; rm f";
    let ended = check_end(json!({"disk": "16MiB"}), script, Reason::Exited, 0);
    assert_eq!(ended.succeeded(), "153\n16777216"); // 128 + SIGXFSZ
}

#[test]
fn program_that_exceeds_the_output_limit_is_killed() {
    for script in ["yes", "yes >&2", "exec cat /dev/zero"] {
        let bytes =
            check_end(json!({"output": "1MiB"}), script, Reason::Output, 137).result.output_bytes;
        assert!(bytes.stdout + bytes.stderr < 4 << 20, "{bytes:?}");
    }
}

#[test]
fn busy_loops_use_at_most_the_cpu_limit_and_end_at_the_timeout() {
    let script = "for i in 1 2 3 4; do while :; do :; done & done; wait";
    let limits = json!({"cpus": "0.5", "timeout": "1s"});
    let result = check_end(limits, script, Reason::Timeout, 124).result;
    let used = result.cpu_micros.user + result.cpu_micros.system;
    assert!(used > 0, "the CPU time of killed processes counts");
    // Without a cgroup, only the set of CPUs is limited, so half a CPU becomes one whole CPU.
    assert!(used < result.wall_micros * 5 / 4, "{result:?}");
}

#[test]
fn sleeping_program_is_killed_at_the_timeout() {
    check_end(json!({"timeout": "1s"}), "sleep 1000", Reason::Timeout, 124);
}

/// A script that starts a daemon: two new sessions, ignored signals, closed descriptors.
const DAEMON: &str = "cat > d.py <<E
import os, signal, time
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid(); os.closerange(0, 100); open(\"/tmp/alive\", \"w\").close(); time.sleep(1000)
    os._exit(0)
os.wait()
E
python3 d.py; until [ -e /tmp/alive ]; do sleep 0.01; done";

#[test]
fn daemon_is_killed_when_the_program_of_the_box_exits() {
    check_end(json!({}), DAEMON, Reason::Exited, 0).succeeded();
}

#[test]
fn daemon_is_killed_at_the_timeout() {
    let script = format!("trap '' HUP INT QUIT TERM; {DAEMON}; while :; do sleep 1; done");
    check_end(json!({"timeout": "1s"}), &script, Reason::Timeout, 124);
}

#[test]
fn stopped_processes_are_killed_at_the_timeout() {
    let script = "sleep 1000 & kill -STOP $!; kill -STOP $$";
    check_end(json!({"timeout": "1s"}), script, Reason::Timeout, 124);
}

#[test]
fn opening_a_file_fails_above_the_limit_of_open_files() {
    let script = "python3 -c '
import os
try:
    for opened in range(200): os.dup(0)
except OSError as error: print(error.strerror, opened < 64)'";
    let ended = check_end(json!({"files": 64}), script, Reason::Exited, 0);
    assert_eq!(ended.succeeded(), "Too many open files True");
}

#[test]
fn result_names_the_mechanism_that_enforces_the_limits() {
    let engine = TestEngine::new();
    let layers = engine.run(json!({}), "true").result.layers;
    let cgroup =
        layers.iter().find(|state| state.layer == Layer::Cgroup).expect("the cgroup layer");
    let required = engine.spec(json!({"require": ["cgroup"]}), "true");
    match &cgroup.state {
        InForce::InForce { detail } => {
            assert!(detail.starts_with("cgroup v"), "{detail}");
            engine.try_run(&required).unwrap().succeeded();
        }
        InForce::StandIn { mechanism } => {
            assert!(!is_root(), "root can always make a cgroup");
            assert!(mechanism.contains("watcher"), "{mechanism}");
            let message = engine.fail(&required, ErrorKind::CannotStart);
            assert!(message.contains("layer `cgroup` is required"), "{message}");
        }
        InForce::Weakened => panic!("the cgroup layer is weakened, but no test asked for it"),
    }
    check_nothing_is_left(&engine);
}

#[test]
fn limits_are_enforced_when_the_cgroup_layer_is_weakened() {
    for (limit, value, script, reason) in [
        ("memory", "64MiB", MEMORY_BOMB, Reason::Memory),
        ("timeout", "1s", "sleep 1000", Reason::Timeout),
        ("output", "1MiB", "yes", Reason::Output),
    ] {
        let code = if reason == Reason::Timeout { 124 } else { 137 };
        check_end(json!({limit: value, "weaken": ["cgroup"]}), script, reason, code);
    }
}
