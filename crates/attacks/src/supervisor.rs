//! Attacks on the supervisor: it does not decide about system calls, and hostile input does not crash it.

use std::fs;
use std::path::Path;

use crate::command::Process;
use crate::handoff::repository;
use crate::host::{eventually, marked};
use crate::lab::{Lab, random};
use crate::sockets::make_writable;
use crate::trial::{Checks, During, Step, Trial};

/// Returns the link targets of a process's open descriptors, as far as they are readable.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()))
        .collect()
}

/// Tests that no process decides about system calls of a box, so arguments cannot change after a
/// check.
pub(crate) fn d10(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let listeners = |mark: &str| {
        let fds = marked(mark).into_iter().flat_map(descriptors);
        fds.filter(|link| link.contains("seccomp")).count()
    };
    let mark = format!("belljar-mark-{:x}", random());
    let judge =
        crate::command::Program::new(&lab.probe).args(["judge-calls", "300", &mark]).start()?;
    checks.control(
        eventually(|| listeners(&mark) > 0),
        "a seccomp listener outside a box is not found",
    )?;
    drop(judge);
    for pid in marked(&mark) {
        lab.outside(&format!("kill {pid} 9"))?;
    }

    let mark = format!("belljar-mark-{:x}", random());
    let live = lab.boxed().start(&["/probe", "sleep", "300", &mark])?;
    checks.control(eventually(|| marked(&mark).len() > 1), "the box does not start")?;
    let mine = descriptors(live.pid());
    checks.control(
        mine.len() > 2,
        format_args!("the supervisor has only the descriptors {mine:?}"),
    )?;
    checks
        .holds(listeners(&mark) == 0, format_args!("a process has a seccomp listener: {mine:?}"))?;
    drop(live);
    let refused = lab.boxed().act("call seccomp-notify")?;
    checks.exactly("a seccomp listener inside", &refused, "errno EPERM at 1")?;
    checks.held()
}

/// Starts a box that runs the shell command `work` when a file appears, and then creates another
/// file.
fn start_on_signal(lab: &Lab, work_dir: &Path, work: &str) -> Step<Process> {
    make_writable(work_dir)?;
    let script = format!(
        "touch /work_dir/ready; while [ ! -e /work_dir/go ]; do sleep 0.02; done; \
         {work} > /work_dir/output 2>&1; touch /work_dir/done; while [ ! -e /work_dir/end ]; do sleep 0.02; done"
    );
    lab.boxed().mount(work_dir, "/work_dir:rw").start(&["/bin/sh", "-c", &script])
}

/// Tests that system calls of a box are refused even while its supervisor is stopped.
pub(crate) fn d11(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let work_dir = lab.directory("d11")?;
    let work = "/probe call mount; /probe call unshare-user; /probe socket netlink raw 0";
    let live = start_on_signal(lab, &work_dir, &format!("{{ {work}; }}"))?;
    checks.control(eventually(|| work_dir.join("ready").exists()), "the box does not start")?;
    let signal = |number: u32| lab.outside(&format!("kill {} {number}", live.pid()));
    checks.control(signal(19)? == "ok 0", "the supervisor cannot be stopped")?;
    fs::write(work_dir.join("go"), "").during("signal the box")?;
    let done = eventually(|| work_dir.join("done").exists());
    let output = fs::read_to_string(work_dir.join("output")).unwrap_or_default();
    fs::write(work_dir.join("end"), "").during("end the box")?;
    signal(18)?;
    checks.holds(done, "a refused call hangs while the supervisor is stopped")?;
    let want = "errno EPERM\nerrno EPERM\nerrno EAFNOSUPPORT\n";
    checks.exactly("with a stopped supervisor", &output, want)?;
    live.end()?;
    checks.held()
}

/// Returns the minimum number of open descriptors of a process over a short time.
///
/// The supervisor opens some descriptors briefly whenever it checks limits.
fn minimum_descriptors(pid: u32) -> usize {
    let count = |_| {
        std::thread::sleep(std::time::Duration::from_millis(7));
        descriptors(pid).len()
    };
    (0..20).map(count).min().unwrap_or_default()
}

/// Tests that files opened in a box use no descriptors of the supervisor.
pub(crate) fn d12(lab: &Lab) -> Trial {
    const OPENS: &str = "200000";
    let mut checks = Checks::default();
    let work_dir = lab.directory("d12")?;
    let live =
        start_on_signal(lab, &work_dir, &format!("/probe open-and-close /etc/passwd {OPENS}"))?;
    checks.control(eventually(|| work_dir.join("ready").exists()), "the box does not start")?;
    let before = minimum_descriptors(live.pid());
    fs::write(work_dir.join("go"), "").during("signal the box")?;
    let mut most = before;
    while !work_dir.join("done").exists() {
        most = most.max(descriptors(live.pid()).len());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let output = fs::read_to_string(work_dir.join("output")).unwrap_or_default();
    checks.control(output == format!("ok {OPENS}\n"), format_args!("the opens: {output}"))?;
    let after = || descriptors(live.pid()).len();
    let same = eventually(|| after() <= before);
    checks.holds(
        same,
        format_args!("the supervisor had {before} descriptors and now has {}", after()),
    )?;
    checks.holds(
        most < before + 16,
        format_args!("the supervisor had {before} descriptors, and {most} during the opens"),
    )?;
    fs::write(work_dir.join("end"), "").during("end the box")?;
    live.end()?;
    checks.held()
}

/// Tests that no output or file of a box makes Belljar crash.
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
        let result = lab.boxed().workspace(&top).run_json(&["/bin/sh", "-c", script])?;
        checks.holds(
            result.reason() == "exited" && !has_panic(&result.ended.stderr_text()),
            format_args!("`{script}`: {}", result.reason()),
        )?;
        for args in [&["diff"][..], &["diff", "--json"], &["runs"], &["apply", "--yes"]] {
            let ended = lab.belljar_in(&top, args)?;
            let fine = matches!(ended.code, Some(0..=3)) && !has_panic(&ended.stderr_text());
            checks.holds(
                fine,
                format_args!("{args:?} after `{script}`: {:?} {}", ended.code, ended.stderr_text()),
            )?;
        }
        // The changes can be discarded.
        lab.belljar_in(&top, &["discard", "--yes"])?;
        let waiting = lab.belljar_in(&top, &["runs", "--pending", "--json"])?.stdout_text();
        checks.exactly(format_args!("pending runs after `{script}`"), waiting.trim_end(), "")?;
    }
    checks.held()
}

/// Returns whether a text contains a Rust panic message. Random bytes do not contain it by chance.
fn has_panic(text: &str) -> bool {
    text.contains("' panicked at ") || text.contains(" panicked at crates/")
}
