//! Output of the commands that list or show state, before and after a fixed series of commands.

use std::fs;

use belljar_testkit::{Lab, eventually};

use crate::{lab, program, transcript};

#[test]
fn list_commands_on_a_new_state_directory_report_empty_results() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "runs",
        "runs --json",
        "list",
        "list --json",
        "restore",
        "gc",
        "gc --dry-run",
        "approve",
        "approve --json",
        "secret list",
        "secret list --json",
        "skill list",
        "api list",
        "mcp servers",
        "template list",
        "template list --json",
        "template show",
        "template check",
        "ledger log",
        "ledger log --json",
        "ledger verify",
        "ledger key show",
        "net log",
        "net explain https://api.example.com/x",
        "policy explain",
    ]), @r##"
$ belljar runs
belljar: there are no runs of this directory; `--all` lists the runs of all directories

$ belljar runs --json

$ belljar list
belljar: there are no boxes; `belljar up NAME` creates a box

$ belljar list --json

$ belljar restore
belljar: the trash is empty

$ belljar gc
belljar: no trash and no box is old enough to be removed

$ belljar gc --dry-run
belljar: no trash and no box is old enough to be removed

$ belljar approve
belljar: no questions wait for an answer

$ belljar approve --json

$ belljar secret list
belljar: there are no secrets; `belljar secret set NAME` stores a secret

$ belljar secret list --json

$ belljar skill list
belljar: there are no skills; `belljar skill save NAME FILE` saves a skill

$ belljar api list
belljar: there are no services; `belljar api add NAME --host HOST` declares a service

$ belljar mcp servers
belljar: there are no tool servers; a section `[mcp.NAME]` in belljar.toml declares a server

$ belljar template list
default              overlay    network none

$ belljar template list --json
{"name":"default","mode":"overlay","net":"none"}

$ belljar template show
[template."default"]
mode = "overlay"
net = "none"
record = "hashes"
mounts = []
env = []
user = 1000
memory = "2GiB"
cpus = "2"
pids = 512
disk = "2GiB"
files = 4096
output-limit = "256MiB"
timeout = "10m"
weaken = []
require = []
allow = []
deny = []
ask = []
ask-timeout = "5m"
secrets = []

$ belljar template check
valid: 1 templates

$ belljar ledger log
     0  [TIME]  -                 operator    ledger.created       created by version 0.1.0

$ belljar ledger log --json
{"index":0,"hash":"[HASH]","run":null,"sequence":0,"previous":null,"kind":"ledger.created","actor":"operator","cause":null,"time":"[TIME]","time_unix_nano":"[NANOSECONDS]","uptime_nano":[OWN],"boot":[OWN],"fields":{"version":"0.1.0"}}

$ belljar ledger verify
valid: 1 events of 0 runs, [SIZE]
root     [HASH]
key      belljar/[KEY]
anchored no event: all events are confirmed by this machine only; `--checkpoint FILE` compares with a checkpoint from another machine

$ belljar ledger key show
signs   belljar/[KEY]

$ belljar net log
belljar: there are no runs yet; start a run with `belljar run`
[exit 2]

$ belljar net explain https://api.example.com/x
GET https://api.example.com/x
  denied     the box has no network
  from       template default, net none
  to allow   belljar run --net restricted --allow RULE

$ belljar policy explain
the agent never asks for permission; the box limits what it can do
"##);
}

/// Creates a lab with runs in each state of review, a secret, a snapshot, a fork and stopped boxes.
fn lab_with_runs_and_boxes() -> Lab {
    let lab = lab();
    lab.configure(
        "[template.small]\nmemory = \"256MiB\"\n\n\
         [secret.token]\nhosts = [\"api.example.com\"]\nslots = [\"header:authorization\"]\n",
    );
    lab.write("changed", "one\ntwo\n");
    lab.write("removed", "gone\n");
    for command in [
        "run --name nothing -- true",
        "run --name fails -- sh -c 'exit 3'",
        "run --name late --timeout 200ms -- sleep 1000",
        "run --name pending -- sh -c 'echo three >> changed; rm removed; echo x > added'",
        "run --name taken -- sh -c 'echo y > taken'",
        "apply taken --yes",
        "run --name half -- sh -c 'echo y > half-one; echo z > half-two'",
        "apply half --yes -- half-one",
        "run --name thrown-away -- sh -c 'echo y > thrown-away'",
        "discard thrown-away --yes",
    ] {
        program(&lab, command).run();
    }
    lab.belljar(["secret", "set", "token"]).input("a-fake-value-for-the-list").succeed();
    up_and_stop(&lab, "plain", &[], "echo box > boxed; echo kept > ~/note");
    up_and_stop(&lab, "without", &["--no-workspace", "--template", "small", "--no-tty"], "true");
    for command in ["snapshot plain first", "fork plain copy", "down without"] {
        program(&lab, command).succeed();
    }
    lab
}

/// Makes a named box, waits until its script has run, and stops the box.
fn up_and_stop(lab: &Lab, name: &str, options: &[&str], script: &str) {
    let script = format!("{script}; echo ready; exec sleep 1000");
    lab.belljar(["up", name]).args(options).args(["--", "sh", "-c", &script]).succeed();
    let log = lab.state().join("boxes").join(name).join("output.log");
    eventually("the script has written its output", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
    });
    lab.belljar(["stop", "--now", name]).succeed();
}

#[test]
fn list_commands_show_runs_boxes_snapshots_and_pending_reviews() {
    let lab = lab_with_runs_and_boxes();
    insta::assert_snapshot!(transcript(&lab, &[
        "runs",
        "runs --pending",
        "runs --json",
        "list",
        "list --json",
        "status plain",
        "status plain --json",
        "snapshot plain --list",
        "snapshot plain --list --json",
        "restore",
        "restore --json",
        "gc --dry-run",
        "gc --dry-run --older-than 0d",
        "secret list",
        "secret list --json",
        "secret test token",
        "template list",
        "diff pending",
        "diff pending --stat",
        "diff pending --json",
        "diff plain --stat",
        "diff plain --home",
        "diff half --stat",
        "logs plain",
        "ledger verify",
    ]), @r##"
$ belljar runs
[ID]  [TIME]  thrown-away   exited        discarded         sh -c echo y > thrown-away
[ID]  [TIME]  half          exited        waits for review  sh -c echo y > half-one; echo z > half-two
[ID]  [TIME]  taken         exited        applied           sh -c echo y > taken
[ID]  [TIME]  pending       exited        waits for review  sh -c echo three >> changed; rm removed; echo x > added
[ID]  [TIME]  late          timeout       none              sleep 1000
[ID]  [TIME]  fails         exited        none              sh -c exit 3
[ID]  [TIME]  nothing       exited        none              true

$ belljar runs --pending
[ID]  [TIME]  half          exited        waits for review  sh -c echo y > half-one; echo z > half-two
[ID]  [TIME]  pending       exited        waits for review  sh -c echo three >> changed; rm removed; echo x > added

$ belljar runs --json
{"id":"[ID]","name":"thrown-away","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo y > thrown-away"],"template":"default","state":"finished","review":"discarded","result":{"run":"[ID]","name":"thrown-away","exit":0,"signal":null,"reason":"exited","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":1,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}},"purpose":"run","needs_attention":[]}
{"id":"[ID]","name":"half","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo y > half-one; echo z > half-two"],"template":"default","state":"finished","review":"partly_applied","result":{"run":"[ID]","name":"half","exit":0,"signal":null,"reason":"exited","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":2,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}},"purpose":"run","needs_attention":[]}
{"id":"[ID]","name":"taken","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo y > taken"],"template":"default","state":"finished","review":"applied","result":{"run":"[ID]","name":"taken","exit":0,"signal":null,"reason":"exited","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":1,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}},"purpose":"run","needs_attention":[]}
{"id":"[ID]","name":"pending","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo three >> changed; rm removed; echo x > added"],"template":"default","state":"finished","review":"pending","result":{"run":"[ID]","name":"pending","exit":0,"signal":null,"reason":"exited","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":3,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}},"purpose":"run","needs_attention":[]}
{"id":"[ID]","name":"late","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sleep","1000"],"template":"default","state":"finished","review":"none","result":{"run":"[ID]","name":"late","exit":null,"signal":null,"reason":"timeout","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":0,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"200ms"}},"purpose":"run","needs_attention":[]}
{"id":"[ID]","name":"fails","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","exit 3"],"template":"default","state":"finished","review":"none","result":{"run":"[ID]","name":"fails","exit":3,"signal":null,"reason":"exited","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":0,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}},"purpose":"run","needs_attention":[]}
{"id":"[ID]","name":"nothing","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["true"],"template":"default","state":"finished","review":"none","result":{"run":"[ID]","name":"nothing","exit":0,"signal":null,"reason":"exited","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":0,"stderr":0},"changed_files":0,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}},"purpose":"run","needs_attention":[]}

$ belljar list
copy                  stopped       waits for review  [LAB]/project
plain                 stopped       waits for review  [LAB]/project

$ belljar list --json
{"name":"copy","state":"stopped","created":[MILLISECONDS],"ground":{"directory":{"path":"[LAB]/project"}},"maker":[OWN],"run":{"id":"[ID]","name":"copy","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo box > boxed; echo kept > ~/note; echo ready; exec sleep 1000"],"template":"default","state":"finished","review":"pending","result":{"run":"[ID]","name":"plain","exit":null,"signal":null,"reason":"interrupted","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":7,"stderr":0},"changed_files":1,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"18446744073709551615","timeout":"none"}}},"live":null}
{"name":"plain","state":"stopped","created":[MILLISECONDS],"ground":{"directory":{"path":"[LAB]/project"}},"maker":[OWN],"run":{"id":"[ID]","name":"plain","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo box > boxed; echo kept > ~/note; echo ready; exec sleep 1000"],"template":"default","state":"finished","review":"pending","result":{"run":"[ID]","name":"plain","exit":null,"signal":null,"reason":"interrupted","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":7,"stderr":0},"changed_files":1,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"18446744073709551615","timeout":"none"}}},"live":null}

$ belljar status plain
name       plain
state      stopped
made       [TIME]
program    sh -c echo box > boxed; echo kept > ~/note; echo ready; exec sleep 1000
ended      the box was stopped
review     waits for review
kept in    [LAB]/state/boxes/plain
holds      1 change (boxed)

$ belljar status plain --json
{"name":"plain","state":"stopped","created":[MILLISECONDS],"ground":{"directory":{"path":"[LAB]/project"}},"maker":[OWN],"run":{"id":"[ID]","name":"plain","created":[MILLISECONDS],"workspace":{"path":"[LAB]/project","dev":[OWN],"ino":[OWN],"clock":[OWN]},"mode":"overlay","argv":["sh","-c","echo box > boxed; echo kept > ~/note; echo ready; exec sleep 1000"],"template":"default","state":"finished","review":"pending","result":{"run":"[ID]","name":"plain","exit":null,"signal":null,"reason":"interrupted","setup_micros":[OWN],"wall_micros":[OWN],"cpu_micros":[OWN],"peak_memory_bytes":[OWN],"stdin_bytes":0,"output_bytes":{"stdout":7,"stderr":0},"changed_files":1,"layers":[OWN],"limits":{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"18446744073709551615","timeout":"none"}}},"live":null}

$ belljar snapshot plain --list
first                 [TIME]  taken while the box was stopped

$ belljar snapshot plain --list --json
{"tag":"first","when":[MILLISECONDS],"running":false}

$ belljar restore
[ID]  without               box       [TIME]  down: no unapplied changes

$ belljar restore --json
{"id":"[ID]","name":"without","what":"box","when":[MILLISECONDS],"by":"down","unapplied":null,"until":[MILLISECONDS]}

$ belljar gc --dry-run
belljar: no trash and no box is old enough to be removed

$ belljar gc --dry-run --older-than 0d
would remove box without ([ID]) permanently from the trash
belljar: box copy is old, but is not removed: it has unapplied work: 1 change (boxed); to remove it, use --discard-work
belljar: box plain is old, but is not removed: it has unapplied work: 1 change (boxed); to remove it, use --discard-work

$ belljar secret list
token                [TIME]  bound to api.example.com in header:authorization

$ belljar secret list --json
{"name":"token","set_at":"[TIME]","is_set":true,"is_declared":true,"kind":"token","hosts":["api.example.com"],"slots":["header:authorization"],"env":null}

$ belljar secret test token
token can be decrypted; stored [TIME]; bound to api.example.com in header:authorization

$ belljar template list
default              overlay    network none
small                overlay    network none

$ belljar diff pending
diff --git a/added b/added
new file mode 100644
--- /dev/null
+++ b/added
@@ -0,0 +1,1 @@
+x
diff --git a/changed b/changed
--- a/changed
+++ b/changed
@@ -1,2 +1,3 @@
 one
 two
+three
diff --git a/removed b/removed
deleted file mode 100644
--- a/removed
+++ /dev/null
@@ -1,1 +0,0 @@
-gone

$ belljar diff pending --stat
  A added | 1 +
  M changed | 1 +
  D removed | 1 -
3 changed, 2 insertions(+), 1 deletions(-)

$ belljar diff pending --json
{"changed":3,"insertions":2,"deletions":1,"marked":0,"entries":[{"path":"added","kind":"added","new":{"kind":"file","mode":420,"size":2,"hash":"[HASH]","content":"text"},"notes":[],"insertions":1,"deletions":0,"diff":"@@ -0,0 +1,1 @@\n+x\n"},{"path":"changed","kind":"modified","old":{"kind":"file","mode":420,"size":8,"hash":"[HASH]","content":"text"},"new":{"kind":"file","mode":420,"size":14,"hash":"[HASH]","content":"text"},"base":"kept","host":{"dev":[OWN],"ino":[OWN],"size":8,"mtime":[OWN],"ctime":[OWN]},"notes":[],"insertions":1,"deletions":0,"diff":"@@ -1,2 +1,3 @@\n one\n two\n+three\n"},{"path":"removed","kind":"deleted","old":{"kind":"file","mode":420,"size":5,"hash":"[HASH]","content":"text"},"base":"kept","host":{"dev":[OWN],"ino":[OWN],"size":5,"mtime":[OWN],"ctime":[OWN]},"notes":[],"insertions":0,"deletions":1,"diff":"@@ -1,1 +0,0 @@\n-gone\n"}],"too_long":[]}

$ belljar diff plain --stat
  A boxed | 1 +
1 changed, 1 insertions(+), 0 deletions(-)

$ belljar diff plain --home
A note

$ belljar diff half --stat
  A half-one | 1 +
  A half-two | 1 +
2 changed, 2 insertions(+), 0 deletions(-)

$ belljar logs plain
ready

$ belljar ledger verify
valid: 61 events of 9 runs, [SIZE]
root     [HASH]
key      belljar/[KEY]
anchored no event: all events are confirmed by this machine only; `--checkpoint FILE` compares with a checkpoint from another machine
"##);
}

#[test]
fn ledger_log_lists_the_kind_of_each_recorded_event() {
    let lab = lab_with_runs_and_boxes();
    // Only the kinds are compared: durations and isolation layers differ between machines.
    let text = transcript(&lab, &["ledger log"]);
    let kinds: Vec<&str> = text.lines().filter_map(event_kind).collect();
    insta::assert_snapshot!(kinds.join("\n"), @r##"
ledger.created
run.created
policy.loaded
run.layers
run.exec
run.ended
run.created
policy.loaded
run.layers
run.exec
run.ended
run.created
policy.loaded
run.layers
run.exec
run.limit
run.ended
run.created
policy.loaded
run.layers
run.exec
workspace.changed
run.ended
run.created
policy.loaded
run.layers
run.exec
workspace.changed
run.ended
workspace.applying
workspace.applied
run.created
policy.loaded
run.layers
run.exec
workspace.changed
run.ended
workspace.applying
workspace.applied
run.created
policy.loaded
run.layers
run.exec
workspace.changed
run.ended
workspace.discarded
secret.set
run.created
policy.loaded
run.layers
run.exec
workspace.changed
run.ended
run.created
policy.loaded
run.layers
run.exec
run.ended
box.snapshot
box.forked
box.removed
"##);
}

/// Returns the kind of the event on a line of `ledger log`, such as `run.created`.
fn event_kind(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| {
        word.split_once('.').is_some_and(|(family, name)| {
            let is_word = |text: &str| {
                !text.is_empty()
                    && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            is_word(family) && is_word(name)
        })
    })
}
