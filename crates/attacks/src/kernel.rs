//! Attacks through system calls that a box refuses for every user.

use crate::boxed::probe_args;
use crate::lab::Lab;
use crate::trial::{Checks, Step, Trial};

/// An operation of the probe and its expected result in a box.
type Refusal<'a> = (&'a str, &'a str);

const EPERM: &str = "errno EPERM";
const ENOSYS: &str = "errno ENOSYS";
const KILLED: &str = "killed SIGSYS";

/// Tries every operation outside a box, inside as a plain user, and inside as root.
///
/// The control is a different result outside: success for a harmless act, else an error of the kernel
/// about the arguments, which a filter never returns. For a plain user of the host, the kernel refuses
/// some acts with the same `EPERM`. These acts are tried in a box without the filter too, and those that
/// remain without a control are reported.
pub(crate) fn refuse_all(lab: &Lab, checks: &mut Checks, refusals: &[Refusal<'_>]) -> Step {
    let acts: Vec<&str> = refusals.iter().map(|(act, _)| *act).collect();
    let outside = lab.all_outside(&acts)?;
    let weakened = lab.boxed().weaken("seccomp").acts(&acts)?;
    let mut alike = Vec::new();
    for user in ["1000", "0"] {
        let inside = lab.boxed().user(user).acts(&acts)?;
        for (place, (act, want)) in refusals.iter().enumerate() {
            let answer = |answers: &[String]| answers.get(place).cloned().unwrap_or_default();
            checks.exactly(format_args!("{act} as uid {user}"), &answer(&inside), want)?;
            if [answer(&outside), answer(&weakened)].iter().all(|answer| answer == want) {
                alike.push(*act);
            }
        }
    }
    alike.sort_unstable();
    alike.dedup();
    // A plain user lacks the capability for some acts, but never for all.
    let excusable = if lab.root { alike.is_empty() } else { alike.len() < refusals.len() };
    checks.control(
        excusable,
        format_args!("without a box the kernel returns the same error for {alike:?}"),
    )?;
    if !alike.is_empty() {
        checks
            .unproven(format_args!("outside a box this user is refused too: {}", alike.join(", ")));
    }
    Ok(())
}

/// Tests that a box cannot use io_uring.
pub(crate) fn d01(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    refuse_all(
        lab,
        &mut checks,
        &[
            ("call io_uring_setup", ENOSYS),
            ("call io_uring_enter", ENOSYS),
            ("call io_uring_register", ENOSYS),
        ],
    )?;
    checks.held()
}

/// Tests that calls through the 32-bit and x32 system call tables kill the process.
pub(crate) fn d02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    if cfg!(not(target_arch = "x86_64")) {
        // Other architectures reach 32-bit calls by another instruction set, not by an instruction.
        return Ok(crate::Verdict::NotHere {
            why: "only x86-64 has these system call tables".to_owned(),
        });
    }
    // In the 32-bit table 20 is getpid, 310 is unshare and 359 is socket; 39 is the x32 getpid.
    let [getpid, unshare, socket] = ["int80 20", "int80 310 0x10000000", "int80 359 16 3 0"];
    let outside = lab.all_outside(&[getpid, unshare, socket, "x32 39"])?;
    let answers: Vec<&str> = outside.iter().map(String::as_str).collect();
    // A kernel without 32-bit support returns ENOSYS or faults; a filter kills instead.
    checks.control(!answers.contains(&KILLED), format_args!("outside: {answers:?}"))?;
    if !answers.iter().take(3).all(|answer| answer.starts_with("ok")) {
        checks.note("this kernel has no 32-bit system calls");
    }
    for user in ["1000", "0"] {
        let acts = [getpid, unshare, socket, "x32 39", "x32 272 0x10000000"];
        let inside = lab.boxed().user(user).acts(&acts)?;
        for (act, answer) in acts.iter().zip(&inside) {
            checks.exactly(format_args!("{act} as uid {user}"), answer, KILLED)?;
        }
    }
    let weakened = lab.boxed().weaken("seccomp").act(getpid)?;
    let outside = answers.first().copied().unwrap_or_default();
    let alike = weakened.starts_with("ok") == outside.starts_with("ok");
    checks.control(alike, format_args!("{getpid} without the filter: {weakened}"))?;
    checks.held()
}

/// Tests that a box cannot inject input into the operator's terminal.
///
/// `TIOCSTI` is 0x5412, `TIOCLINUX` is 0x541c. The kernel uses only the lower half of the number, so the
/// filter must do so too.
pub(crate) fn d03(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let push = [
        "ioctl - 0x5412 x",
        "ioctl - 0x100005412 x",
        "ioctl - 0x541c x",
        "ioctl - 0x5423 x", // TIOCSETD: line disciplines are rarely reviewed kernel code
    ];
    for act in push {
        // On the program's own terminal: success, or EIO if the kernel has disabled it.
        let starter = ["on-terminal"];
        let program = crate::command::Program::new(&lab.probe).args(act.split_whitespace());
        let outside = program.through(&lab.probe, &starter).run()?.line();
        let possible = ["ok 0", "errno EIO", "errno ENOTTY", "errno EINVAL"];
        let possible = possible.iter().any(|answer| outside.ends_with(answer));
        checks.control(possible, format_args!("{act} outside: {outside}"))?;
        // With the box's own terminal, and without one while Belljar runs in a terminal of the host.
        for (user, option) in [("1000", "--tty"), ("0", "--tty"), ("1000", "--no-tty")] {
            let command = lab.boxed().user(user).option(option).command(&probe_args(act));
            let inside = command.through(&lab.probe, &starter).run()?.line();
            checks.exactly(format_args!("{act} with {option}"), &last(&inside), EPERM)?;
        }
    }
    let open = lab.boxed().option("--no-tty").command(&probe_args("open /dev/tty"));
    let open = open.through(&lab.probe, &["on-terminal"]).run()?.line();
    checks.exactly("the controlling terminal", &last(&open), "errno ENXIO")?;
    checks.held()
}

/// Returns the last line of a terminal's output without the carriage return.
fn last(text: &str) -> String {
    text.lines().next_back().unwrap_or_default().trim_end().to_owned()
}

/// Tests that a box cannot create namespaces.
pub(crate) fn d04(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    refuse_all(
        lab,
        &mut checks,
        &[
            ("call clone3-user", ENOSYS),
            ("call clone3-plain", ENOSYS),
            ("call clone-user", EPERM),
            ("call unshare-user", EPERM),
            ("call unshare-mount", EPERM),
            ("call unshare-pid", EPERM),
            ("call unshare-net", EPERM),
            ("call unshare-ipc", EPERM),
            ("call unshare-uts", EPERM),
            ("call unshare-cgroup", EPERM),
            ("call unshare-time", EPERM),
            ("call setns", EPERM),
        ],
    )?;
    // Second layer: the box's user namespace forbids nested ones.
    for act in ["call clone3-user", "call unshare-user"] {
        let answer = lab.boxed().weaken("seccomp").act(act)?;
        checks.exactly(format_args!("{act} without the filter"), &answer, "errno ENOSPC")?;
    }
    checks.held()
}

/// Tests that a box cannot mount in a nested user namespace.
pub(crate) fn d05(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let act = "call mount-in-user-namespace";
    let outside = lab.outside(act)?;
    let without = lab.boxed().weaken("seccomp").weaken("nested-userns").act(act)?;
    checks.control(
        outside.starts_with("ok") || without.starts_with("ok"),
        format_args!("{act} outside: {outside}; without both defences: {without}"),
    )?;
    for user in ["1000", "0"] {
        let boxed = lab.boxed().user(user);
        checks.exactly(act, &boxed.act(act)?, EPERM)?;
        let unfiltered = boxed.clone().weaken("seccomp").act(act)?;
        checks.exactly(
            "mount in a user namespace without the filter",
            &unfiltered,
            "errno ENOSPC",
        )?;
        let nested = boxed.weaken("nested-userns").act(act)?;
        checks.exactly("mount in a user namespace with only the filter", &nested, EPERM)?;
    }
    checks.held()
}

/// Tests that the seccomp filter also applies to programs in memory, copied programs and renamed
/// ones.
pub(crate) fn d13(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let act = "call unshare-user";
    let outside = lab.outside(&format!("run-from-memory {act}"))?;
    checks.control(outside == lab.outside(act)?, format_args!("from memory outside: {outside}"))?;
    let ways = [
        format!("run-from-memory {act}"),
        format!("run /proc/self/root/probe {act}"),
        format!("run /proc/self/exe {act}"),
    ];
    for way in &ways {
        checks.exactly(way, &lab.boxed().act(way)?, EPERM)?;
    }
    let copy = format!("cp /probe /tmp/harmless && exec /tmp/harmless {act}");
    let copied = lab.boxed().run(&["/bin/sh", "-c", &copy])?.line();
    checks.exactly("a copy under another name", &copied, EPERM)?;
    // Running a program from memory is allowed, since language runtimes do it.
    let socket = lab.boxed().act("run-from-memory socket unix stream 0")?;
    checks.control(socket == "ok", format_args!("an allowed act from memory: {socket}"))?;
    checks.held()
}

/// Tests that the isolation layers that a run reports are the enforced ones.
pub(crate) fn d14(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let whole = lab.boxed().act_json("me")?;
    let all = [
        "namespaces",
        "time-namespace",
        "read-only-system",
        "proc-mask",
        "seccomp",
        "landlock",
        "capabilities",
        "no-new-privs",
        "nested-userns",
        "rlimits",
        "self-test",
    ];
    for layer in all {
        checks.exactly(layer, whole.layer(layer), "in_force")?;
    }
    let output = whole.ended.stdout_text();
    checks.holds(output.contains("Seccomp=2"), format_args!("no filter in force: {output}"))?;
    checks.holds(output.contains("NoNewPrivs=1"), format_args!("no_new_privs is off: {output}"))?;
    for layer in ["seccomp", "landlock", "proc-mask", "nested-userns", "self-test"] {
        let weak = lab.boxed().weaken(layer).act_json("me")?;
        checks.exactly(layer, weak.layer(layer), "weakened")?;
        let off = weak.ended.stdout_text().contains("Seccomp=0");
        checks.control(
            off == (layer == "seccomp"),
            format_args!("weakening {layer} changes the wrong layer"),
        )?;
    }
    // Landlock alone: device number 0:0, which the file system lets any user create.
    let alone = lab.boxed().weaken("seccomp");
    let refused = alone.act("mknod /tmp/node c 0 0")?;
    checks.exactly("a device node with only Landlock", &refused, "errno EACCES")?;
    let granted = alone.weaken("landlock").act("mknod /tmp/node c 0 0")?;
    checks.control(granted == "ok", format_args!("a device node without Landlock: {granted}"))?;
    for layer in ["namespaces", "read-only-system", "capabilities", "no-new-privs", "rlimits"] {
        let refused = lab.boxed().weaken(layer).run(&["/probe", "me"])?;
        checks.holds(refused.code == Some(2), format_args!("`--weaken {layer}` is accepted"))?;
    }
    checks.held()
}

/// Tests that a box cannot make other dangerous system calls.
pub(crate) fn d15(lab: &Lab) -> Trial {
    const CALLS: &[&str] = &[
        "bpf",
        "userfaultfd",
        "perf_event_open",
        "keyctl",
        "add_key",
        "request_key",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "personality",
        "personality-exec",
        "quotactl",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "move_mount",
        "open_tree",
        "mount_setattr",
        "swapon",
        "swapoff",
        "syslog",
        "acct",
        "reboot",
        "sethostname",
        "setdomainname",
        "settimeofday",
        "clock_settime",
        "clock_adjtime",
        "adjtimex",
        "nfsservctl",
        "lookup_dcookie",
        "mbind",
        "migrate_pages",
        "move_pages",
        "fanotify_init",
        #[cfg(target_arch = "x86_64")]
        "iopl",
        #[cfg(target_arch = "x86_64")]
        "ioperm",
        #[cfg(target_arch = "x86_64")]
        "modify_ldt",
        #[cfg(target_arch = "x86_64")]
        "uselib",
    ];
    let mut checks = Checks::default();
    let acts: Vec<String> = CALLS.iter().map(|name| format!("call {name}")).collect();
    let mut refusals: Vec<Refusal<'_>> = acts.iter().map(|act| (act.as_str(), EPERM)).collect();
    // The second step of these acts is the dangerous one.
    refusals.extend(["call seccomp-notify", "call vhangup"].map(|act| (act, "errno EPERM at 1")));
    refuse_all(lab, &mut checks, &refusals)?;
    checks.held()
}

/// Tests that a box cannot make the system calls of known kernel exploits. Kernel bugs elsewhere
/// remain a risk.
pub(crate) fn d21(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    refuse_all(
        lab,
        &mut checks,
        &[
            ("call unshare-user", EPERM),
            ("call bpf", EPERM),
            ("call io_uring_setup", ENOSYS),
            ("call keyctl", EPERM),
            ("call userfaultfd", EPERM),
            ("socket netlink raw 12", "errno EAFNOSUPPORT"), // nfnetlink
            ("socket packet raw 768", "errno EAFNOSUPPORT"),
            ("socket xdp raw 0", "errno EAFNOSUPPORT"),
        ],
    )?;
    let doctor = lab.belljar(&["doctor", "--json"]).run()?.stdout_text();
    checks.holds(doctor.contains("kernel"), "`doctor` does not report the kernel version")?;
    checks.residual(
        "kernel bugs in features that every program needs (pipes, memory, files) are reachable; \
         only a tier with its own kernel prevents this",
    )
}
