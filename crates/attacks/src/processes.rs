//! Attacks on processes outside the box and on resources that processes share.

use std::fs;

use crate::boxed::{PROBE, probe_args};
use crate::command::Program;
use crate::host::{cgroups_of, eventually, marked, mounts_of};
use crate::lab::{Lab, random};
use crate::sockets::make_writable;
use crate::trial::{Checks, During, Step, Trial};

const EPERM: &str = "errno EPERM";
const ABSENT: &str = "errno ESRCH";

/// Tests that a box cannot trace other processes or access their memory and descriptors.
pub(crate) fn d09(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let victim = Program::new(&lab.probe).args(["sleep", "300"]).start()?;
    let at = |pid: &str| {
        ["ptrace", "vm-read", "vm-write", "steal-descriptor"].map(|act| match act {
            "steal-descriptor" => format!("{act} {pid} 0"),
            _ => format!("{act} {pid}"),
        })
    };
    let outside: Vec<String> =
        at(&victim.pid().to_string()).iter().map(|act| lab.outside(act)).collect::<Step<_>>()?;
    // vm-read and vm-write use an invalid address: EFAULT means that the call was permitted.
    let granted = outside.iter().filter(|it| it.starts_with("ok") || *it == "errno EFAULT").count();
    // Only Yama restricts access to processes of the same user.
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let restricted = !lab.root && yama.is_ok_and(|scope| scope.trim() != "0");
    checks.control(granted == 4 || restricted, format_args!("outside: {outside:?}"))?;
    if granted < 4 {
        checks.unproven("this machine restricts ptrace outside a box too");
    }
    for user in ["1000", "0"] {
        for act in at("1") {
            let answer = lab.boxed().user(user).act(&act)?;
            let want = if act.starts_with("steal") { "errno EPERM at 1" } else { EPERM };
            checks.exactly(format_args!("{act} as uid {user}"), &answer, want)?;
            // Second layer: init is not dumpable, and the box has no capability.
            let unfiltered = lab.boxed().user(user).weaken("seccomp").act(&act)?;
            checks.exactly(format_args!("{act} without the filter"), &unfiltered, want)?;
        }
        for act in at(&victim.pid().to_string()) {
            let answer = lab.boxed().user(user).weaken("seccomp").act(&act)?;
            checks.exactly(format_args!("{act} without the filter"), &answer, ABSENT)?;
        }
        for path in ["/proc/1/mem", "/proc/1/fd", "/proc/1/root", "/proc/1/map_files", "/proc/1/ns"]
        {
            let act = format!("list {path}");
            let answer = lab.boxed().user(user).act(&act)?;
            let shut = ["errno EACCES", EPERM, "errno ENOENT", "errno ENOTDIR"];
            checks.one_of(&act, &answer, &shut)?;
        }
    }
    checks.held()
}

/// Tests that no process outlives its box. A mark in its arguments identifies each process.
pub(crate) fn d17(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let mark = || format!("belljar-mark-{:x}", random());
    let gone = |mark: &str| eventually(|| marked(mark).is_empty());

    // Control: outside a box, such a process outlives its parent.
    let lonely = mark();
    let mut parent = Program::new(&lab.probe).args(["stubborn", "300", &lonely]).start()?;
    let outlives = eventually(|| !parent.is_running() && !marked(&lonely).is_empty());
    for pid in marked(&lonely) {
        lab.outside(&format!("kill {pid} 9"))?;
    }
    checks.control(outlives, "the process does not survive outside a box")?;

    // The program exits and leaves a child that ignores signals.
    let left = mark();
    let result = lab.boxed().act_json(&format!("stubborn 300 {left}"))?;
    checks.exactly("reason after the exit of the program", result.reason(), "exited")?;
    checks.holds(gone(&left), "a child survived the end of its box")?;
    // Three programs that never end.
    let ways = ["stubborn 300 {}; /probe sleep 300 {}", "sleep 300 {}", "stop-everything 300 {}"];
    for way in ways {
        let late = mark();
        let script = format!("/probe {}", way.replace("{}", &late));
        let boxed = lab.boxed().options(&["--timeout", "1s"]);
        let result = boxed.run_json(&["/bin/sh", "-c", &script])?;
        checks.exactly(format_args!("reason of `{way}`"), result.reason(), "timeout")?;
        checks
            .holds(result.ended.code == Some(124), format_args!("code {:?}", result.ended.code))?;
        checks.holds(gone(&late), format_args!("`{way}` survived its timeout"))?;
    }
    let here = lab.boxed().start(&probe_args("sleep 300 here"))?;
    let seen = lab.boxed().act_json("me")?.layer("cgroup") != "in_force"
        || eventually(|| !cgroups_of(&lab.state).is_empty());
    checks.control(seen, "the cgroup of a running box is not found")?;
    drop(here);
    kill_the_supervisor(lab, &mut checks)?;
    let gone = eventually(|| cgroups_of(&lab.state).is_empty());
    checks.holds(gone, format_args!("cgroups remain: {:?}", cgroups_of(&lab.state)))?;
    checks.holds(mounts_of(&lab.dir)? == 0, "a mount remains on the host")?;
    checks.held()
}

/// Kills the supervisor with `SIGKILL` at different moments of a box's life.
fn kill_the_supervisor(lab: &Lab, checks: &mut Checks) -> Step {
    const LAST: u64 = 24;
    for round in 0..=LAST {
        let late = format!("belljar-mark-{:x}", random());
        let mut live = lab.boxed().start(&probe_args(&format!("sleep 300 {late}")))?;
        if round < LAST {
            // The sleep varies the moment of the kill; it does not wait for an event.
            std::thread::sleep(std::time::Duration::from_millis(round * 2));
        } else {
            // On a slow machine all earlier kills are too early, so the last one waits for the program.
            checks.control(eventually(|| runs(&late)), "the box does not start")?;
        }
        live.kill()?;
        let gone = eventually(|| marked(&late).is_empty());
        checks.holds(gone, format_args!("the box survives the kill of round {round}"))?;
    }
    Ok(())
}

/// Returns whether the probe with this mark runs; its parent processes have the same mark and do
/// not count.
fn runs(mark: &str) -> bool {
    marked(mark).into_iter().any(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(PROBE.as_bytes())
    })
}

/// Tests that a box shares no IPC objects, host name, clock or priorities with the host.
pub(crate) fn d19(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let key = format!("0x{:x}", 0x6200_0000 | (random() & 0xffff));
    let name = format!("belljar-lab-{:x}", random());
    let shared = format!("/dev/shm/{name}");
    let makers = [
        format!("shm-make {key}"),
        format!("msg-make {key}"),
        format!("sem-make {key}"),
        format!("mq-make {name}"),
        format!("write {shared} x"),
    ];
    let finders = [
        format!("shm-find {key}"),
        format!("msg-find {key}"),
        format!("sem-find {key}"),
        format!("mq-find {name}"),
        format!("read {shared}"),
    ];
    let removers = [
        format!("shm-remove {key}"),
        format!("msg-remove {key}"),
        format!("sem-remove {key}"),
        format!("mq-remove {name}"),
        format!("unlink {shared}"),
    ];
    let list = |acts: &[String; 5]| -> Step<Vec<String>> {
        acts.iter().map(|act| lab.outside(act)).collect()
    };
    let made = list(&makers)?;
    let found = list(&finders)?;
    let inside: Vec<(String, Vec<String>)> = ["1000", "0"]
        .iter()
        .map(|user| {
            let acts: Vec<&str> = finders.iter().map(String::as_str).collect();
            Ok(((*user).to_owned(), lab.boxed().user(user).acts(&acts)?))
        })
        .collect::<Step<_>>()?;
    list(&removers)?;
    checks.control(
        found.iter().all(|answer| answer.starts_with("ok")),
        format_args!("shared outside: {made:?}, {found:?}"),
    )?;
    for (user, answers) in inside {
        for (act, answer) in finders.iter().zip(answers) {
            // Landlock forbids all POSIX queues, since they have no path that a rule could allow. Without
            // a cgroup nothing counts System V message queues, so the call is refused.
            let absent = match act.split('-').next() {
                Some("mq") => "errno EACCES",
                Some("msg") => "errno ENOSYS",
                _ => "errno ENOENT",
            };
            checks.one_of(
                format_args!("{act} as uid {user}"),
                &answer,
                &["errno ENOENT", absent],
            )?;
        }
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").during("read the host's name")?;
    let name = lab.boxed().run(&["/bin/uname", "-n"])?.line();
    checks.holds(name != host.trim_end(), format_args!("the box sees the host name: {name}"))?;
    let boot = "read /proc/sys/kernel/random/boot_id";
    let (outside, inside) = (lab.outside(boot)?, lab.boxed().act(boot)?);
    checks.control(outside.starts_with("ok"), format_args!("{boot} outside: {outside}"))?;
    checks.holds(outside != inside, "the box sees the boot id of the machine")?;
    // The uptime of the machine is hidden.
    let clock =
        |answer: String| answer.strip_prefix("ok ").and_then(|text| text.parse::<u64>().ok());
    let (outside, inside) =
        (clock(lab.outside("boot-clock")?), clock(lab.boxed().act("boot-clock")?));
    let (Some(outside), Some(inside)) = (outside, inside) else {
        return Err(crate::trial::fault(format_args!("clocks: {outside:?}, {inside:?}")));
    };
    if outside > 60 {
        checks.holds(inside < 60, format_args!("uptime inside {inside} s, outside {outside} s"))?;
    }
    for act in [
        "write /proc/self/oom_score_adj -1000",
        "write /proc/1/oom_score_adj 1000",
        "write /proc/sys/kernel/hostname evil",
        "nice 0 -10",
    ] {
        for user in ["1000", "0"] {
            let answer = lab.boxed().user(user).act(act)?;
            let shut = ["errno EACCES", EPERM, "errno EROFS", "errno ENOENT"];
            checks.one_of(format_args!("{act} as uid {user}"), &answer, &shut)?;
        }
    }
    checks.held()
}

/// Tests that signals and scheduling calls of a box reach no process outside the box.
pub(crate) fn d20(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let mut victim = Program::new(&lab.probe).args(["sleep", "300"]).start()?;
    let pid = victim.pid();
    let acts = [
        format!("kill {pid} 0"),
        format!("prlimit {pid}"),
        format!("affinity {pid}"),
        format!("nice {pid} 5"),
        format!("ioprio {pid}"),
    ];
    for act in &acts {
        let outside = lab.outside(act)?;
        checks.control(outside.starts_with("ok"), format_args!("{act} outside: {outside}"))?;
        for user in ["1000", "0"] {
            let inside = lab.boxed().user(user).act(act)?;
            // Without a cgroup, the affinity is the CPU limit and cannot be changed at all.
            let refused = if act.starts_with("affinity") { EPERM } else { ABSENT };
            checks.one_of(format_args!("{act} as uid {user}"), &inside, &[ABSENT, refused])?;
        }
    }
    // A signal to all processes stays in the box.
    for user in ["1000", "0"] {
        let everyone =
            "kill -9 -1; kill -9 1; kill -STOP 1; for i in $(seq 2 400); do kill -9 $i; done";
        let boxed = lab.boxed().user(user).options(&["--timeout", "20s"]);
        let ended = boxed.run(&["/bin/sh", "-c", everyone])?;
        checks.holds(ended.code != Some(124), "the box hangs after a signal to all processes")?;
        checks.holds(victim.is_running(), "a signal from a box reached a process of the host")?;
    }
    // Another box is not reached either.
    let work_dir = lab.directory("d20")?;
    make_writable(&work_dir)?;
    let boxed = lab.boxed().mount(&work_dir, "/work_dir:rw");
    let script =
        "touch /work_dir/ready; while [ ! -e /work_dir/stop ]; do sleep 0.02; done; echo alive";
    let neighbour = boxed.start(&["/bin/sh", "-c", script])?;
    checks
        .control(eventually(|| work_dir.join("ready").exists()), "the other box does not start")?;
    lab.boxed().run(&["/bin/sh", "-c", "kill -9 -1"])?;
    fs::write(work_dir.join("stop"), "").during("stop the other box")?;
    let ended = neighbour.end()?;
    checks.exactly("the other box", &ended.line(), "alive")?;
    checks.held()
}
