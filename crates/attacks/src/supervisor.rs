//! The supervisor on the host: it decides nothing about calls, hoards nothing, and reads nothing of a box.

use std::fs;
use std::path::Path;

use crate::command::Live;
use crate::handoff::repository;
use crate::host::{eventually, marked};
use crate::lab::{Lab, random};
use crate::sockets::open;
use crate::trial::{Checks, During, Step, Trial};

/// What the descriptors of a process are, as far as we may see.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()))
        .collect()
}

/// Nobody decides about a call after the kernel looked at its arguments, so nobody can be raced.
pub(crate) fn d10(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let judges = |mark: &str| {
        let fds = marked(mark).into_iter().flat_map(descriptors);
        fds.filter(|link| link.contains("seccomp")).count()
    };
    let mark = format!("belljar-mark-{:x}", random());
    let judge =
        crate::command::Program::new(&lab.probe).args(["judge-calls", "300", &mark]).start()?;
    checks.control(eventually(|| judges(&mark) > 0), "a listener outside is not even seen")?;
    drop(judge);
    for pid in marked(&mark) {
        lab.outside(&format!("kill {pid} 9"))?;
    }

    let mark = format!("belljar-mark-{:x}", random());
    let live = lab.boxed().start(&["/probe", "sleep", "300", &mark])?;
    checks.control(eventually(|| marked(&mark).len() > 1), "the box does not start")?;
    let mine = descriptors(live.pid());
    checks.control(mine.len() > 2, format_args!("the supervisor holds only {mine:?}"))?;
    checks.holds(judges(&mark) == 0, format_args!("someone judges calls: {mine:?}"))?;
    drop(live);
    let refused = lab.boxed().act("call seccomp-notify")?;
    checks.exactly("a listener inside", &refused, "errno EPERM at 1")?;
    checks.held()
}

/// A box that works when a file appears and says when it is done.
fn working(lab: &Lab, room: &Path, work: &str) -> Step<Live> {
    open(room)?;
    let script = format!(
        "touch /room/ready; while [ ! -e /room/go ]; do sleep 0.02; done; \
         {work} > /room/said 2>&1; touch /room/done; while [ ! -e /room/end ]; do sleep 0.02; done"
    );
    lab.boxed().mount(room, "/room:rw").start(&["/bin/sh", "-c", &script])
}

/// Refusals do not depend on the supervisor: stopped, it can neither allow nor forbid.
pub(crate) fn d11(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let room = lab.room("d11")?;
    let work = "/probe call mount; /probe call unshare-user; /probe socket netlink raw 0";
    let live = working(lab, &room, &format!("{{ {work}; }}"))?;
    checks.control(eventually(|| room.join("ready").exists()), "the box does not start")?;
    let signal = |number: u32| lab.outside(&format!("kill {} {number}", live.pid()));
    checks.control(signal(19)? == "ok 0", "the supervisor cannot be stopped")?;
    fs::write(room.join("go"), "").during("let the box go on")?;
    let done = eventually(|| room.join("done").exists());
    let said = fs::read_to_string(room.join("said")).unwrap_or_default();
    fs::write(room.join("end"), "").during("let the box end")?;
    signal(18)?;
    checks.holds(done, "with a stopped supervisor a refused call hangs")?;
    let want = "errno EPERM\nerrno EPERM\nerrno EAFNOSUPPORT\n";
    checks.exactly("with a stopped supervisor", &said, want)?;
    live.end()?;
    checks.held()
}

/// How many descriptors a process holds for good: it opens some for a moment whenever it looks at limits.
fn steady(pid: u32) -> usize {
    let look = |_| {
        std::thread::sleep(std::time::Duration::from_millis(7));
        descriptors(pid).len()
    };
    (0..20).map(look).min().unwrap_or_default()
}

/// What a box opens costs the supervisor nothing.
pub(crate) fn d12(lab: &Lab) -> Trial {
    const OPENS: &str = "200000";
    let mut checks = Checks::default();
    let room = lab.room("d12")?;
    let live = working(lab, &room, &format!("/probe open-and-close /etc/passwd {OPENS}"))?;
    checks.control(eventually(|| room.join("ready").exists()), "the box does not start")?;
    let before = steady(live.pid());
    fs::write(room.join("go"), "").during("let the box go on")?;
    let mut most = before;
    while !room.join("done").exists() {
        most = most.max(descriptors(live.pid()).len());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let said = fs::read_to_string(room.join("said")).unwrap_or_default();
    checks.control(said == format!("ok {OPENS}\n"), format_args!("the opens: {said}"))?;
    let after = || descriptors(live.pid()).len();
    let same = eventually(|| after() <= before);
    checks.holds(same, format_args!("{before} descriptors became {}", after()))?;
    checks.holds(most < before + 16, format_args!("{before} descriptors were {most} meanwhile"))?;
    fs::write(room.join("end"), "").during("let the box end")?;
    live.end()?;
    checks.held()
}

/// Nothing that a box can say or leave makes the host's side fall over.
pub(crate) fn d22(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let top = repository(lab, "d22")?;
    let noise = "head -c 300000 /dev/urandom; head -c 300000 /dev/urandom >&2";
    let names = "cd /workspace; for name in '..\\..\\x' '-rf' '--' ' ' '.wh.README.md' '.wh..wh..opq' \
                 'CON' \"$(printf 'a\\nb')\" \"$(printf '\\377\\376')\" '{\"a\":1}' '%s%n'; do \
                 head -c 200 /dev/urandom > \"./$name\"; mkdir -p \"./d$name/x\"; done";
    let attributes = "/probe setxattr /workspace/README.md user.overlay.opaque; \
                      /probe setxattr /workspace/README.md user.overlay.redirect; \
                      /probe setxattr /workspace user.overlay.whiteout; \
                      /probe setxattr /workspace/README.md trusted.overlay.opaque";
    let scripts = [
        noise,
        names,
        attributes,
        "rm -rf /workspace/* /workspace/.[a-z]*",
        "mkdir /workspace/shut; echo x > /workspace/shut/x; chmod 000 /workspace/shut",
        "echo x > /workspace/x; chmod 000 /workspace",
        "exit 255",
    ];
    for script in scripts {
        let told = lab.boxed().workspace(&top).tell(&["/bin/sh", "-c", script])?;
        checks.holds(
            told.reason() == "exited" && !fell_over(&told.ended.stderr_text()),
            format_args!("`{script}`: {}", told.reason()),
        )?;
        for args in [&["diff"][..], &["diff", "--json"], &["runs"], &["apply", "--yes"]] {
            let ended = lab.belljar_in(&top, args)?;
            let fine = matches!(ended.code, Some(0..=3)) && !fell_over(&ended.stderr_text());
            checks.holds(
                fine,
                format_args!("{args:?} after `{script}`: {:?} {}", ended.code, ended.stderr_text()),
            )?;
        }
        // Whatever it is, it can be thrown away.
        lab.belljar_in(&top, &["discard", "--yes"])?;
        let waiting = lab.belljar_in(&top, &["runs", "--pending", "--json"])?.stdout_text();
        checks.exactly(format_args!("what waits after `{script}`"), waiting.trim_end(), "")?;
    }
    checks.held()
}

/// Only this sentence comes from a panic; random bytes do not make it.
fn fell_over(text: &str) -> bool {
    text.contains("' panicked at ") || text.contains(" panicked at crates/")
}
