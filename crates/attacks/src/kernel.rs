//! System calls that a box refuses, whoever asks and by whichever door.

use crate::boxed::words;
use crate::lab::Lab;
use crate::trial::{Checks, Step, Trial};

/// An act of the probe and the one answer that a box may give to it.
type Refusal<'a> = (&'a str, &'a str);

const EPERM: &str = "errno EPERM";
const ENOSYS: &str = "errno ENOSYS";
const KILLED: &str = "killed SIGSYS";

/// Tries every act outside, inside as a plain user, and inside as root.
///
/// The control is that the answer outside is another one: success where the act is harmless, else the
/// complaint of a kernel that looked at the arguments, which a filter never does. As a plain user of the
/// host the kernel itself refuses some of them with the same `EPERM`; then a box without the filter is
/// asked too, and what is left without a control is counted and said.
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
    // A plain user lacks the capability for some of them, but never for all.
    let excusable = if lab.root { alike.is_empty() } else { alike.len() < refusals.len() };
    checks.control(excusable, format_args!("a kernel without us says the same to {alike:?}"))?;
    if !alike.is_empty() {
        checks.unproven(format_args!("this user is refused outside as well: {}", alike.join(", ")));
    }
    Ok(())
}

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

/// On x86-64 the same kernel serves two more tables of calls, with other numbers for the same things.
pub(crate) fn d02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    if cfg!(not(target_arch = "x86_64")) {
        // The 32-bit door of other machines is another instruction set, not an instruction.
        return Ok(crate::Verdict::NotHere { why: "only x86-64 has these doors".to_owned() });
    }
    // In the 32-bit table 20 is getpid, 310 is unshare and 359 is socket; 39 is the x32 getpid.
    let [getpid, unshare, socket] = ["int80 20", "int80 310 0x10000000", "int80 359 16 3 0"];
    let outside = lab.all_outside(&[getpid, unshare, socket, "x32 39"])?;
    let answers: Vec<&str> = outside.iter().map(String::as_str).collect();
    // A kernel without 32-bit support answers ENOSYS or faults; a kill by a filter is neither.
    checks.control(!answers.contains(&KILLED), format_args!("outside: {answers:?}"))?;
    if !answers.iter().take(3).all(|answer| answer.starts_with("ok")) {
        checks.note("this kernel has no 32-bit table");
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

/// Keys pushed into the terminal that the operator types into. `TIOCSTI` is 0x5412, `TIOCLINUX` 0x541c;
/// the kernel looks at the lower half of the number only, so a filter must too.
pub(crate) fn d03(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let push = [
        "ioctl - 0x5412 x",
        "ioctl - 0x100005412 x",
        "ioctl - 0x541c x",
        "ioctl - 0x5423 x", // TIOCSETD: line disciplines are kernel code that nobody looks at
    ];
    for act in push {
        // With a terminal of one's own: granted, or EIO where the kernel has it switched off.
        let starter = ["on-terminal"];
        let program = crate::command::Program::new(&lab.probe).args(act.split_whitespace());
        let outside = program.through(&lab.probe, &starter).run()?.line();
        let possible = ["ok 0", "errno EIO", "errno ENOTTY", "errno EINVAL"];
        let possible = possible.iter().any(|answer| outside.ends_with(answer));
        checks.control(possible, format_args!("{act} outside: {outside}"))?;
        // A terminal of the box's own, and none at all while Belljar is started in one of the host's.
        for (user, option) in [("1000", "--tty"), ("0", "--tty"), ("1000", "--no-tty")] {
            let command = lab.boxed().user(user).option(option).command(&words(act));
            let inside = command.through(&lab.probe, &starter).run()?.line();
            checks.exactly(format_args!("{act} with {option}"), &last(&inside), EPERM)?;
        }
    }
    let open = lab.boxed().option("--no-tty").command(&words("open /dev/tty"));
    let open = open.through(&lab.probe, &["on-terminal"]).run()?.line();
    checks.exactly("the controlling terminal", &last(&open), "errno ENXIO")?;
    checks.held()
}

/// What was said last; a terminal puts a carriage return before each end of line.
fn last(text: &str) -> String {
    text.lines().next_back().unwrap_or_default().trim_end().to_owned()
}

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
    // Behind the filter stands a second refusal: no user namespace fits into the box's own.
    for act in ["call clone3-user", "call unshare-user"] {
        let answer = lab.boxed().weaken("seccomp").act(act)?;
        checks.exactly(format_args!("{act} without the filter"), &answer, "errno ENOSPC")?;
    }
    checks.held()
}

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
        checks.exactly("the same without the filter", &unfiltered, "errno ENOSPC")?;
        let nested = boxed.weaken("nested-userns").act(act)?;
        checks.exactly("the same with only the filter", &nested, EPERM)?;
    }
    checks.held()
}

/// A program is confined by where it runs, not by what its file is called.
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
    // Running from memory as such is what runtimes do, and is allowed.
    let socket = lab.boxed().act("run-from-memory socket unix stream 0")?;
    checks.control(socket == "ok", format_args!("an allowed act from memory: {socket}"))?;
    checks.held()
}

/// Which layers hold is told and true; what was weakened is told as weakened.
pub(crate) fn d14(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let whole = lab.boxed().tell_act("me")?;
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
    let said = whole.ended.stdout_text();
    checks.holds(said.contains("Seccomp=2"), format_args!("no filter in force: {said}"))?;
    checks.holds(said.contains("NoNewPrivs=1"), format_args!("no_new_privs is off: {said}"))?;
    for layer in ["seccomp", "landlock", "proc-mask", "nested-userns", "self-test"] {
        let weak = lab.boxed().weaken(layer).tell_act("me")?;
        checks.exactly(layer, weak.layer(layer), "weakened")?;
        let off = weak.ended.stdout_text().contains("Seccomp=0");
        checks.control(off == (layer == "seccomp"), format_args!("weakening {layer} shows"))?;
    }
    // Landlock alone: a device number that the file system lets anyone make.
    let alone = lab.boxed().weaken("seccomp");
    let refused = alone.act("mknod /tmp/node c 0 0")?;
    checks.exactly("a node with only Landlock", &refused, "errno EACCES")?;
    let granted = alone.weaken("landlock").act("mknod /tmp/node c 0 0")?;
    checks.control(granted == "ok", format_args!("a node without Landlock: {granted}"))?;
    for layer in ["namespaces", "read-only-system", "capabilities", "no-new-privs", "rlimits"] {
        let refused = lab.boxed().weaken(layer).run(&["/probe", "me"])?;
        checks.holds(refused.code == Some(2), format_args!("`--weaken {layer}` is taken"))?;
    }
    checks.held()
}

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
    // The second step of these is the one that counts.
    refusals.extend(["call seccomp-notify", "call vhangup"].map(|act| (act, "errno EPERM at 1")));
    refuse_all(lab, &mut checks, &refusals)?;
    checks.held()
}

/// A bug in the kernel itself is beyond any filter; the doors that such bugs were reached by are shut.
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
    checks.holds(doctor.contains("kernel"), "`doctor` does not say how old the kernel is")?;
    checks.residual(
        "a bug in what every program needs of the kernel (pipes, memory, files) is reachable; \
         only a tier with a kernel of its own stops it",
    )
}
