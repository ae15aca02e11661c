//! Limits hold, the result says which one it was, and nothing is left behind.
//!
//! Root has a cgroup of its own for each box; a plain user without a delegated one has rlimits and a
//! watcher that stand in. The same programs are stopped by both.

use std::fs;
use std::path::Path;

use belljar_testkit::{Ended, Family, Lab, cgroups_of, eventually, is_root, mounts_naming};
use serde_json::Value;

use crate::lab;

/// Runs a script under limits and sees that it ends for this reason, and leaves nothing.
#[track_caller]
fn ends(options: &[&str], script: &str, reason: &str, code: i32) -> Ended {
    let lab = lab();
    // It begins at the end of its input, so that nobody is gone before they were seen.
    let live = lab.json(options, &format!("read; {script}")).open_input().start();
    let family = Family::watch(live.pid());
    eventually("the box is seen", || family.look() >= 1);
    let ended = live.wait();
    let told = ended.result();
    assert_eq!((told["reason"].as_str(), ended.code()), (Some(reason), code), "{}", ended.err());
    assert!(family.is_gone() >= 1);
    leaves_nothing(&lab);
    ended
}

/// No cgroup, no mount, and no file but those of the record.
#[track_caller]
fn leaves_nothing(lab: &Lab) {
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
    let ended = ends(&["--memory", "64MiB"], MEMORY_BOMB, "memory", 137);
    assert!(ended.err().contains("more memory than its limit"), "{}", ended.err());
    assert!(ended.result()["peak_memory_bytes"].as_u64().is_some_and(|peak| peak > 32 << 20));
}

#[test]
fn a_memory_bomb_of_many_processes_is_stopped() {
    let script = "mkfifo p; for i in $(seq 12); do
        python3 -c 'kept = b\"x\" * (16 << 20); open(\"p\").read()' & done; wait";
    ends(&["--memory", "96MiB"], script, "memory", 137);
}

#[test]
fn memory_that_is_a_file_counts_too() {
    let lab = lab();
    let script =
        "for i in $(seq 64); do head -c 4M /dev/zero > /dev/shm/$i || exit 1; done; sleep 1000";
    let ended = lab.json(&["--memory", "64MiB", "--disk", "1GiB"], script).run();
    let result = ended.result();
    match result["reason"].as_str() {
        Some("memory") => assert_eq!(ended.code(), 137),
        // Without a cgroup the file system itself is made no larger than the memory.
        Some("exited") => ended.complains(1, "No space left on device"),
        reason => panic!("{reason:?}"),
    }
    leaves_nothing(&lab);
}

/// Everybody forks for ever. A shell would not do: it rests after a refusal and gives up after a few.
const FORK_BOMB: &str = "exec python3 -c '
import os
while True:
    try: os.fork()
    except BlockingIOError: pass'";

#[test]
fn a_fork_bomb_is_stopped() {
    let ended = ends(&["--pids", "32"], FORK_BOMB, "pids", 137);
    assert!(ended.err().contains("more processes than its limit"), "{}", ended.err());
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
    let ended = ends(&["--pids", "16"], script, "exited", 0);
    assert_eq!(ended.out().lines().next(), Some("True"));
}

#[test]
fn a_filler_of_the_overlay_is_stopped() {
    let script = "for i in $(seq 1000); do head -c 2M /dev/zero > f$i; done; sleep 1000";
    let ended = ends(&["--disk", "16MiB"], script, "disk", 137);
    assert!(ended.err().contains("more to disk than its limit"), "{}", ended.err());
}

#[test]
fn a_filler_of_the_temporary_directories_meets_a_full_disk() {
    for place in ["/tmp", "/home/user", "/dev/shm", "/var/tmp"] {
        let script = format!("for i in 1 2 3; do head -c 6M /dev/zero > {place}/f$i; done");
        let ended = ends(&["--disk", "16MiB"], &script, "exited", 1);
        assert!(ended.err().contains("No space left on device"), "{place}: {}", ended.err());
    }
}

#[test]
fn one_file_cannot_be_larger_than_the_disk() {
    let script = "head -c 100M /dev/zero > f; echo $?; stat -c %s f; rm f";
    let ended = ends(&["--disk", "16MiB"], script, "exited", 0);
    assert!(ended.out().starts_with("153\n16777216\n"), "{}", ended.out()); // 128 + SIGXFSZ
}

#[test]
fn a_flood_of_output_is_stopped() {
    for script in ["yes", "yes >&2", "exec cat /dev/zero"] {
        let ended = ends(&["--output-limit", "1MiB"], script, "output", 137);
        let bytes = &ended.result()["output_bytes"];
        let total = bytes["stdout"].as_u64().zip(bytes["stderr"].as_u64());
        assert!(total.is_some_and(|(out, err)| out + err < 4 << 20), "{bytes}");
    }
}

#[test]
fn busy_loops_get_their_share_and_end_at_the_deadline() {
    let script = "for i in 1 2 3 4; do while :; do :; done & done; wait";
    let ended = ends(&["--cpus", "0.5", "--timeout", "1s"], script, "timeout", 124);
    let result = ended.result();
    let number = |value: &Value| value.as_u64().expect("a number");
    let used = number(&result["cpu_micros"]["user"]) + number(&result["cpu_micros"]["system"]);
    assert!(used > 0, "the time of processes that were killed counts");
    // A stand-in only chooses the CPUs, so one whole is the most that half of one can become.
    assert!(used < number(&result["wall_micros"]) * 5 / 4, "{result}");
}

#[test]
fn sleeping_past_the_deadline_is_no_way_out() {
    let ended = ends(&["--timeout", "1s"], "sleep 1000", "timeout", 124);
    assert!(ended.err().contains("longer than its timeout"), "{}", ended.err());
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
    ends(&[], DAEMON, "exited", 0);
}

#[test]
fn a_daemon_does_not_outlive_the_deadline() {
    let script = format!("trap '' HUP INT QUIT TERM; {DAEMON}; while :; do sleep 1; done");
    ends(&["--timeout", "1s"], &script, "timeout", 124);
}

#[test]
fn stopped_processes_end_too() {
    let script = "sleep 1000 & kill -STOP $!; kill -STOP $$";
    ends(&["--timeout", "1s"], script, "timeout", 124);
}

#[test]
fn open_files_are_limited() {
    let script = "python3 -c '
import os
try:
    for opened in range(200): os.dup(0)
except OSError as error: print(error.strerror, opened < 64)'";
    let ended = ends(&["--files", "64"], script, "exited", 0);
    assert_eq!(ended.out().lines().next(), Some("Too many open files True"));
}

#[test]
fn a_result_says_what_enforces_the_limits() {
    let lab = lab();
    let result = lab.json(&[], "true").run().result();
    let layers = result["layers"].as_array().expect("layers");
    let cgroup = layers.iter().find(|layer| layer["layer"] == "cgroup").expect("the layer");
    let required = lab.json(&["--require", "cgroup"], "true").run();
    match cgroup["state"].as_str() {
        Some("in_force") => {
            assert!(cgroup["detail"].as_str().is_some_and(|detail| detail.starts_with("cgroup v")));
            required.expect(0);
        }
        Some("stand_in") => {
            assert!(!is_root(), "root can always make a cgroup");
            assert!(cgroup["mechanism"].as_str().is_some_and(|how| how.contains("watcher")));
            required.complains(125, "layer `cgroup` is required");
        }
        state => panic!("{state:?}"),
    }
    leaves_nothing(&lab);
}

#[test]
fn without_the_cgroup_the_stand_in_does_its_work() {
    for (options, script, reason) in [
        (["--memory", "64MiB"], MEMORY_BOMB, "memory"),
        (["--timeout", "1s"], "sleep 1000", "timeout"),
        (["--output-limit", "1MiB"], "yes", "output"),
    ] {
        let options = [&options[..], &["--weaken", "cgroup"]].concat();
        ends(&options, script, reason, if reason == "timeout" { 124 } else { 137 });
    }
}
