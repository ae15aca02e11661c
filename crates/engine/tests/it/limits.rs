//! Limits hold, the result says which one it was, and nothing is left behind.
//!
//! Root has a cgroup of its own for each box; a plain user without a delegated one has rlimits and a
//! watcher that stand in. The same programs are stopped by both.

use std::fs;
use std::path::Path;

use belljar_engine::error::ErrorKind;
use belljar_model::{InForce, Layer, Reason};
use belljar_testkit::{Family, cgroups_of, eventually, is_root, mounts_naming};
use serde_json::{Value, json};

use crate::bench::{Bench, Ended};

/// Runs a script under limits and sees that it ends for this reason, and leaves nothing.
#[track_caller]
fn ends(overrides: Value, script: &str, reason: Reason, code: u8) -> Ended {
    let bench = Bench::new();
    let family = Family::watch(i32::try_from(std::process::id()).unwrap());
    let started = bench.start(&bench.spec(overrides, script)).unwrap();
    assert!(family.look() >= 1, "the box is seen");
    let ended = bench.supervise(started).unwrap();
    let told = (ended.result.reason, ended.result.exit_code());
    assert_eq!(told, (reason, code), "{}", ended.err);
    assert!(family.is_gone() >= 1);
    leaves_nothing(&bench);
    ended
}

/// No cgroup, no mount, and no file but those of the record.
#[track_caller]
fn leaves_nothing(bench: &Bench) {
    let lab = &bench.lab;
    eventually("no cgroup is left", || cgroups_of(&lab.runs()).is_empty());
    assert_eq!(mounts_naming(lab.dir()), [] as [String; 0]);
    let known = ["run.json", "lock", "upper", "work", "base", "changes.json"];
    for name in lab.runs().iter().flat_map(|run| names(run)) {
        assert!(known.contains(&name.as_str()), "{name} is left in the directory of the run");
    }
    assert_eq!(names(&lab.state()), ["anchor", "layout.json", "ledger", "runs"]);
    assert_eq!(names(lab.dir()), ["home", "project", "state"]);
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Takes memory and touches it until it is stopped.
const MEMORY_BOMB: &str = "exec python3 -c '
kept = []
while True: kept.append(b\"x\" * (1 << 20))'";

#[test]
fn a_memory_bomb_is_stopped() {
    let ended = ends(json!({"memory": "64MiB"}), MEMORY_BOMB, Reason::Memory, 137);
    assert!(ended.result.peak_memory_bytes.is_some_and(|peak| peak > 32 << 20));
}

#[test]
fn a_memory_bomb_of_many_processes_is_stopped() {
    let script = "mkfifo p; for i in $(seq 12); do
        python3 -c 'kept = b\"x\" * (16 << 20); open(\"p\").read()' & done; wait";
    ends(json!({"memory": "96MiB"}), script, Reason::Memory, 137);
}

#[test]
fn memory_that_is_a_file_counts_too() {
    let bench = Bench::new();
    let script =
        "for i in $(seq 64); do head -c 4M /dev/zero > /dev/shm/$i || exit 1; done; sleep 1000";
    let ended = bench.run(json!({"memory": "64MiB", "disk": "1GiB"}), script);
    if ended.result.reason != Reason::Memory {
        // Without a cgroup the file system itself is made no larger than the memory.
        assert_eq!((ended.result.reason, ended.result.exit_code()), (Reason::Exited, 1));
        assert!(ended.err.contains("No space left on device"), "{}", ended.err);
    }
    leaves_nothing(&bench);
}

/// Everybody forks for ever. A shell would not do: it rests after a refusal and gives up after a few.
const FORK_BOMB: &str = "exec python3 -c '
import os
while True:
    try: os.fork()
    except BlockingIOError: pass'";

#[test]
fn a_fork_bomb_is_stopped() {
    ends(json!({"pids": 32}), FORK_BOMB, Reason::Pids, 137);
}

#[test]
fn a_build_that_meets_the_limit_of_processes_is_told_by_the_kernel() {
    let script = "python3 -c '
import os
for made in range(100):
    try:
        if os.fork() == 0: os.execvp(\"sleep\", [\"sleep\", \"1000\"])
    except BlockingIOError:
        print(made < 20); break'";
    let ended = ends(json!({"pids": 16}), script, Reason::Exited, 0);
    assert_eq!(ended.succeeded(), "True");
}

#[test]
fn a_filler_of_the_overlay_is_stopped() {
    let script = "for i in $(seq 1000); do head -c 2M /dev/zero > f$i; done; sleep 1000";
    ends(json!({"disk": "16MiB"}), script, Reason::Disk, 137);
}

#[test]
fn a_filler_of_the_temporary_directories_meets_a_full_disk() {
    for place in ["/tmp", "/home/user", "/dev/shm", "/var/tmp"] {
        let script = format!("for i in 1 2 3; do head -c 6M /dev/zero > {place}/f$i; done");
        let ended = ends(json!({"disk": "16MiB"}), &script, Reason::Exited, 1);
        assert!(ended.err.contains("No space left on device"), "{place}: {}", ended.err);
    }
}

#[test]
fn one_file_cannot_be_larger_than_the_disk() {
    let script = "head -c 100M /dev/zero > f; echo $?; stat -c %s f; rm f";
    let ended = ends(json!({"disk": "16MiB"}), script, Reason::Exited, 0);
    assert_eq!(ended.succeeded(), "153\n16777216"); // 128 + SIGXFSZ
}

#[test]
fn a_flood_of_output_is_stopped() {
    for script in ["yes", "yes >&2", "exec cat /dev/zero"] {
        let bytes =
            ends(json!({"output": "1MiB"}), script, Reason::Output, 137).result.output_bytes;
        assert!(bytes.stdout + bytes.stderr < 4 << 20, "{bytes:?}");
    }
}

#[test]
fn busy_loops_get_their_share_and_end_at_the_deadline() {
    let script = "for i in 1 2 3 4; do while :; do :; done & done; wait";
    let limits = json!({"cpus": "0.5", "timeout": "1s"});
    let result = ends(limits, script, Reason::Timeout, 124).result;
    let used = result.cpu_micros.user + result.cpu_micros.system;
    assert!(used > 0, "the time of processes that were killed counts");
    // A stand-in only chooses the CPUs, so one whole is the most that half of one can become.
    assert!(used < result.wall_micros * 5 / 4, "{result:?}");
}

#[test]
fn sleeping_past_the_deadline_is_no_way_out() {
    ends(json!({"timeout": "1s"}), "sleep 1000", Reason::Timeout, 124);
}

/// Leaves its session twice, ignores what can be ignored, closes its streams.
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
fn a_daemon_ends_with_the_program_that_started_it() {
    ends(json!({}), DAEMON, Reason::Exited, 0).succeeded();
}

#[test]
fn a_daemon_does_not_outlive_the_deadline() {
    let script = format!("trap '' HUP INT QUIT TERM; {DAEMON}; while :; do sleep 1; done");
    ends(json!({"timeout": "1s"}), &script, Reason::Timeout, 124);
}

#[test]
fn stopped_processes_end_too() {
    let script = "sleep 1000 & kill -STOP $!; kill -STOP $$";
    ends(json!({"timeout": "1s"}), script, Reason::Timeout, 124);
}

#[test]
fn open_files_are_limited() {
    let script = "python3 -c '
import os
try:
    for opened in range(200): os.dup(0)
except OSError as error: print(error.strerror, opened < 64)'";
    let ended = ends(json!({"files": 64}), script, Reason::Exited, 0);
    assert_eq!(ended.succeeded(), "Too many open files True");
}

#[test]
fn a_result_says_what_enforces_the_limits() {
    let bench = Bench::new();
    let layers = bench.run(json!({}), "true").result.layers;
    let cgroup = layers.iter().find(|state| state.layer == Layer::Cgroup).expect("the layer");
    let required = bench.spec(json!({"require": ["cgroup"]}), "true");
    match &cgroup.state {
        InForce::InForce { detail } => {
            assert!(detail.starts_with("cgroup v"), "{detail}");
            bench.try_run(&required).unwrap().succeeded();
        }
        InForce::StandIn { mechanism } => {
            assert!(!is_root(), "root can always make a cgroup");
            assert!(mechanism.contains("watcher"), "{mechanism}");
            let refused = bench.refused(&required, ErrorKind::CannotStart);
            assert!(refused.contains("layer `cgroup` is required"), "{refused}");
        }
        InForce::Weakened => panic!("nobody weakened it"),
    }
    leaves_nothing(&bench);
}

#[test]
fn without_the_cgroup_the_stand_in_does_its_work() {
    for (limit, value, script, reason) in [
        ("memory", "64MiB", MEMORY_BOMB, Reason::Memory),
        ("timeout", "1s", "sleep 1000", Reason::Timeout),
        ("output", "1MiB", "yes", Reason::Output),
    ] {
        let code = if reason == Reason::Timeout { 124 } else { 137 };
        ends(json!({limit: value, "weaken": ["cgroup"]}), script, reason, code);
    }
}
