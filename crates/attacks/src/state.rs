//! Attacks on Belljar itself: its descriptors, program, state files and earlier runs.

use std::fs;
use std::os::unix::fs::symlink;

use crate::boxed::{Boxed, probe_args};
use crate::handoff::repository;
use crate::host::snapshot;
use crate::kernel::refuse_all;
use crate::lab::Lab;
use crate::secrets::canary;
use crate::trial::{Checks, During, Trial};

/// Tests that the directories that a box can write to do not depend on the working directory of
/// `belljar`.
pub(crate) fn c12(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let (top, elsewhere) = (repository(lab, "c12")?, lab.directory("c12-elsewhere")?);
    let before = snapshot(&elsewhere);
    let boxed = lab.boxed().workspace(&top).cwd(&elsewhere);
    let expected = "ok /dev/shm /home/user /tmp /workspace";
    for user in ["1000", "0"] {
        let answer = boxed.clone().user(user).act("writable")?;
        checks.exactly("writable directories", &answer, expected)?;
    }
    checks.exactly("working directory", &boxed.act("chdir .")?, "ok /workspace")?;
    for place in [&elsewhere, &lab.home, &lab.dir] {
        let act = format!("chdir {}", place.display());
        let outside = lab.outside(&act)?;
        checks.control(outside.starts_with("ok"), format_args!("{act} outside: {outside}"))?;
        checks.exactly(&act, &boxed.act(&act)?, "errno ENOENT")?;
    }
    for act in ["chdir /workspace/../..", "chdir /proc/self/cwd/../..", "chdir /proc/1/cwd"] {
        let answer = boxed.act(act)?;
        checks.one_of(act, &answer, &["ok /", "errno EACCES", "errno EPERM", "errno ENOENT"])?;
    }
    checks.holds(snapshot(&elsewhere) == before, "the operator's directory has changed")?;
    checks.held()
}

/// Tests that open descriptors that `belljar` inherits (`/`, a secret file) do not reach the box.
pub(crate) fn c15(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = lab.home.join("open-secret");
    fs::write(&secret, canary()).during("write a secret")?;
    let path = secret.display().to_string();
    let starter = ["with-descriptors", "/", path.as_str()];
    let probe = crate::command::Program::new(&lab.probe).arg("descriptors");
    let outside = probe.through(&lab.probe, &starter).run()?.line();
    checks.control(
        outside.contains("63=/") && outside.contains("64="),
        format_args!("open descriptors outside: {outside}"),
    )?;
    for user in ["1000", "0"] {
        let boxed = lab.boxed().user(user);
        let listing =
            boxed.command(&probe_args("descriptors")).through(&lab.probe, &starter).run()?;
        checks.exactly("open descriptors in the box", &listing.line(), "ok")?;
        for number in [3, 4, 5, 9, 63, 64] {
            let act = format!("list /proc/self/fd/{number}/../..");
            let answer =
                boxed.command(&probe_args(&act)).through(&lab.probe, &starter).run()?.line();
            checks.exactly(&act, &answer, "errno ENOENT")?;
        }
    }
    checks.held()
}

/// Tests that a box cannot overwrite Belljar's program through /proc.
pub(crate) fn c16(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let work_dir = lab.directory("c16")?;
    let copy = work_dir.join("copy");
    fs::copy(&lab.probe, &copy).during("copy the probe")?;
    let open = format!("open-to-write {}", copy.display());
    checks
        .control(lab.outside(&open)? == "ok", "a file of the lab cannot be opened for writing")?;
    let digest = || fs::read(&lab.belljar).during("read belljar");
    let before = digest()?;
    let refused = ["errno EACCES", "errno EPERM", "errno ENOENT", "errno EROFS", "errno ETXTBSY"];
    for user in ["1000", "0"] {
        for name in
            ["/proc/self/exe", "/proc/1/exe", "/proc/1/root/probe", "/proc/1/fd/0", "/probe"]
        {
            let act = format!("open-to-write {name}");
            checks.one_of(&act, &lab.boxed().user(user).act(&act)?, &refused)?;
        }
        // A script with the interpreter /proc/self/exe makes a container runtime execute itself.
        let script = "printf '#!/proc/self/exe\\n' > /tmp/x; chmod 755 /tmp/x; exec /tmp/x";
        lab.boxed().user(user).run(&["/bin/sh", "-c", script])?;
        lab.boxed().user(user).run(&["/proc/self/exe"])?;
        checks.holds(digest()? == before, "the program of Belljar was changed from a box")?;
    }
    checks.held()
}

/// Tests that a box cannot open files by handle.
pub(crate) fn c24(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    refuse_all(
        lab,
        &mut checks,
        &[("call open_by_handle_at", "errno EPERM"), ("call name_to_handle_at", "errno EPERM")],
    )?;
    checks.held()
}

/// Tests that a box cannot access kernel settings and information in /proc and /sys.
pub(crate) fn c25(lab: &Lab) -> Trial {
    const SETTINGS: &[&str] = &[
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/sysrq",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/user/max_user_namespaces",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
    ];
    const INFORMATION: &[&str] = &[
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/keys",
        "/proc/key-users",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/kallsyms",
        "/proc/modules",
        "/proc/slabinfo",
        "/proc/vmallocinfo",
        "/proc/pagetypeinfo",
        "/proc/iomem",
        "/proc/interrupts",
        "/proc/config.gz",
        "/proc/cmdline",
        "/proc/partitions",
        "/proc/diskstats",
    ];
    const MISSING: &[&str] =
        &["/sys/kernel", "/sys/fs/cgroup", "/sys/firmware", "/sys/class", "/sys/block"];
    let mut checks = Checks::default();
    let writes: Vec<String> = SETTINGS.iter().map(|path| format!("open-to-write {path}")).collect();
    let reads: Vec<String> = INFORMATION.iter().map(|path| format!("read {path}")).collect();
    let stats: Vec<String> = MISSING.iter().map(|path| format!("list {path}")).collect();
    let there = |path: &&&str| fs::metadata(path).is_ok();
    let count = SETTINGS.iter().chain(INFORMATION).filter(there).count();
    checks.control(count >= 12, format_args!("only {count} of these files exist outside"))?;
    if lab.root {
        let outside = lab.outside("open-to-write /proc/sys/kernel/hostname")?;
        checks.control(outside == "ok", format_args!("a kernel setting outside: {outside}"))?;
    }
    let shut = ["errno EACCES", "errno EPERM", "errno ENOENT", "errno EROFS"];
    for user in ["1000", "0"] {
        let boxed = lab.boxed().user(user);
        let acts: Vec<&str> = writes.iter().chain(&stats).map(String::as_str).collect();
        for (act, answer) in acts.iter().zip(boxed.acts(&acts)?) {
            checks.one_of(format_args!("{act} as uid {user}"), &answer, &shut)?;
        }
        let acts: Vec<&str> = reads.iter().map(String::as_str).collect();
        for (act, answer) in acts.iter().zip(boxed.acts(&acts)?) {
            // An empty file is as good as an error.
            let silent = answer == "ok" || shut.contains(&answer.as_str());
            checks.holds(silent, format_args!("{act} as uid {user}: {answer}"))?;
        }
    }
    checks.held()
}

/// Tests that the state directory of Belljar cannot be mounted in a box under any path.
pub(crate) fn c26(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let work_dir = lab.directory("c26")?;
    let runs = lab.state.join("runs");
    fs::create_dir_all(&runs).during("create the state directory")?;
    let link = work_dir.join("innocent");
    symlink(&lab.state, &link).during("create a symbolic link")?;
    let chain = work_dir.join("chain");
    symlink(&link, &chain).during("create a symbolic link")?;
    let mut refused = |how: String, boxed: Boxed<'_>| {
        let ended = boxed.run(&["/probe", "me"])?;
        let code = ended.code;
        checks
            .holds(matches!(code, Some(2 | 125)), format_args!("{how}: {code:?} {}", ended.line()))
    };
    for place in [&lab.state, &runs, &link, &chain, &link.join("runs")] {
        let shown = place.display();
        for mode in ["overlay", "direct", "read-only"] {
            let boxed = lab.boxed().workspace(place).options(&["--mode", mode]);
            refused(format!("--workspace {shown} --mode {mode}"), boxed)?;
        }
        for access in ["ro", "rw"] {
            let boxed = lab.boxed().mount(place, &format!("/state:{access}"));
            refused(format!("--mount {shown}:/state:{access}"), boxed)?;
        }
        refused(format!("--rootfs {shown}"), lab.boxed().option("--rootfs").option(place))?;
    }
    let fine = lab.boxed().mount(&work_dir, "/work_dir:ro").act("list /work_dir")?;
    checks.control(
        fine.starts_with("ok"),
        format_args!("a directory next to the state directory: {fine}"),
    )?;
    // In a mounted parent directory, the state directory is hidden.
    let whole = lab.outside(&format!("list {}", lab.state.display()))?;
    checks.control(whole.contains("runs"), format_args!("the state outside: {whole}"))?;
    let inside: [(&str, Boxed<'_>); 4] = [
        ("/above/state", lab.boxed().mount(&lab.dir, "/above:ro")),
        ("/above/state", lab.boxed().mount(&lab.dir, "/above:rw")),
        ("/workspace/state", lab.boxed().direct(&lab.dir)),
        ("/workspace/state", lab.boxed().workspace(&lab.dir)),
    ];
    for (path, boxed) in inside {
        let ended = boxed.run(&probe_args(&format!("list {path}")))?;
        let hidden = matches!(ended.code, Some(2 | 125)) || ended.line() == "ok";
        checks.holds(hidden, format_args!("the state at {path}: {}", ended.line()))?;
    }
    // A link in a workspace is dangling, since the path does not exist in the box.
    let top = repository(lab, "c26")?;
    symlink(&lab.state, top.join("state")).during("create a symbolic link")?;
    for mode in ["overlay", "direct"] {
        let boxed = lab.boxed().workspace(&top).options(&["--mode", mode]);
        checks.exactly(
            "a link to the state directory",
            &boxed.act("list /workspace/state")?,
            "errno ENOENT",
        )?;
    }
    checks.held()
}

/// Tests that a box finds no files or kernel objects of an earlier run.
pub(crate) fn c27(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let top = repository(lab, "c27")?;
    let plant = "for place in /tmp /dev/shm \"$HOME\" \"$HOME/.cache\" \"$HOME/.config\" /workspace; do \
                 mkdir -p $place; echo poison > $place/poison; done; \
                 cat /tmp/poison /dev/shm/poison \"$HOME\"/poison /workspace/poison";
    for (first, second) in [("1000", "1000"), ("0", "1000"), ("1000", "0")] {
        let boxed = lab.boxed().workspace(&top);
        let planted = boxed.clone().user(first).run(&["/bin/sh", "-c", plant])?.stdout_text();
        let all = planted.lines().filter(|line| *line == "poison").count();
        checks.control(all == 4, format_args!("cannot plant files in the first run: {planted}"))?;
        let look = "find / -xdev -name poison 2>/dev/null; \
                    ls -A /tmp /dev/shm \"$HOME\" \"$HOME/.cache\" 2>/dev/null | grep poison; \
                    ls /workspace/poison 2>/dev/null; echo looked";
        let found = boxed.user(second).run(&["/bin/sh", "-c", look])?.stdout_text();
        checks.exactly("files found by the second run", found.trim_end(), "looked")?;
    }
    // IPC objects do not outlive their box.
    let acts = ["shm-make 0x62656c6c", "msg-make 0x62656c6c", "sem-make 0x62656c6c"];
    let made = lab.boxed().acts(&acts)?;
    // Without a cgroup nothing counts System V message queues, so the call is refused.
    let refused = "errno ENOSYS";
    let is_made =
        |(at, answer): (usize, &String)| answer.starts_with("ok") || (at == 1 && answer == refused);
    checks.control(made.iter().enumerate().all(is_made), format_args!("{made:?}"))?;
    let acts = ["shm-find 0x62656c6c", "msg-find 0x62656c6c", "sem-find 0x62656c6c"];
    for ((act, answer), made) in acts.iter().zip(lab.boxed().acts(&acts)?).zip(&made) {
        let absent = if made == refused { refused } else { "errno ENOENT" };
        checks.exactly(act, &answer, absent)?;
    }
    checks.held()
}
