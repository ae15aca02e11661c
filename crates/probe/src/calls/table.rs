//! The calls that a box must refuse, with arguments that do no harm where they are granted.
//!
//! Most calls look at their arguments before they look at the caller's privileges, or the other way
//! round; the arguments are chosen so that a kernel which gets to see the call answers something else
//! than a filter would: success where that changes nothing, else `ENOENT`, `EINVAL`, `EBADF`, `EFAULT`.
//! Nothing here mounts, sets a clock, loads code or ends a process outside the child that tries it.

use belljar_sys::probe::{Arg, Field};

use super::{Row, Step, step};

const NOWHERE: Arg<'static> = Arg::Bytes(b"/belljar-probe/nowhere\0");
const NOTHING: Arg<'static> = Arg::Bytes(b"\0");
const ROOT: Arg<'static> = Arg::Bytes(b"/\0");
/// Zeroes for any structure that the kernel reads or fills.
const ZEROES: Arg<'static> = Arg::Bytes(&[0; 512]);
const NO_FD: Arg<'static> = Arg::int(-1);
const HERE: Arg<'static> = Arg::int(-100); // AT_FDCWD
const BEYOND: Arg<'static> = Arg::Word(0x4000); // a flag bit that no version of the call knows

const ZERO: Arg<'static> = Arg::Word(0);
const ONE: Arg<'static> = Arg::Word(1);

/// A time whose fraction is two whole seconds, which no clock accepts.
const BAD_TIME: Arg<'static> = Arg::Struct(&[Field::Word(0), Field::Word(2_000_000_000)]);
/// `struct timex` that asks for a tick of zero, which no kernel accepts.
const BAD_TICK: Arg<'static> = Arg::Bytes(&{
    let mut timex = [0_u8; 256];
    timex[1] = 0x40; // modes = ADJ_TICK
    timex
});
/// `struct perf_event_attr` for a software clock of this process, user space only.
const SOFT_CLOCK: Arg<'static> = Arg::Bytes(&{
    let mut attr = [0_u8; 64];
    attr[0] = 1; // PERF_TYPE_SOFTWARE
    attr[4] = 64; // PERF_ATTR_SIZE_VER0
    attr[40] = 0x60; // exclude_kernel, exclude_hv
    attr
});
/// A classic BPF program of one instruction, `return SECCOMP_RET_ALLOW`, and its header.
const ALLOW_ALL: Arg<'static> =
    Arg::Struct(&[Field::Word(1), Field::Bytes(&[6, 0, 0, 0, 0, 0, 0xff, 0x7f])]);
/// `_LINUX_CAPABILITY_VERSION_3` for the caller, and the first capability of the list, `CAP_CHOWN`.
const CAP_HEADER: Arg<'static> = Arg::Bytes(&[0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0]);
const CAP_CHOWN: Arg<'static> =
    Arg::Struct(&[Field::Word(0x1_0000_0001), Field::Word(0), Field::Word(0)]);

const NEWUSER: u64 = libc::CLONE_NEWUSER as u64;
const CLONE_ARGS_USER: Arg<'static> = clone_args(&[
    Field::Word(NEWUSER),
    Field::Word(0),
    Field::Word(0),
    Field::Word(0),
    Field::Word(libc::SIGCHLD as u64),
    Field::Word(0),
    Field::Word(0),
    Field::Word(0),
]);
const CLONE_ARGS_PLAIN: Arg<'static> = clone_args(&[
    Field::Word(0),
    Field::Word(0),
    Field::Word(0),
    Field::Word(0),
    Field::Word(libc::SIGCHLD as u64),
    Field::Word(0),
    Field::Word(0),
    Field::Word(0),
]);

const fn clone_args(fields: &'static [Field<'static>; 8]) -> Arg<'static> {
    Arg::Struct(fields)
}

const fn unshare(name: &'static str, flag: &'static [Step]) -> Row {
    Row { name, steps: flag }
}

const fn one(name: &'static str, steps: &'static [Step; 1]) -> Row {
    Row { name, steps }
}

pub(super) const ROWS: &[Row] = &[
    // io_uring
    one("io_uring_setup", &[step(libc::SYS_io_uring_setup, &[ONE, ZEROES])]),
    one("io_uring_enter", &[step(libc::SYS_io_uring_enter, &[NO_FD, ZERO, ZERO, ZERO])]),
    one("io_uring_register", &[step(libc::SYS_io_uring_register, &[NO_FD, ZERO, ZERO, ZERO])]),
    // namespaces
    unshare("unshare-user", &[step(libc::SYS_unshare, &[Arg::Word(NEWUSER)])]),
    unshare("unshare-mount", &[step(libc::SYS_unshare, &[Arg::Word(libc::CLONE_NEWNS as u64)])]),
    unshare("unshare-pid", &[step(libc::SYS_unshare, &[Arg::Word(libc::CLONE_NEWPID as u64)])]),
    unshare("unshare-net", &[step(libc::SYS_unshare, &[Arg::Word(libc::CLONE_NEWNET as u64)])]),
    unshare("unshare-ipc", &[step(libc::SYS_unshare, &[Arg::Word(libc::CLONE_NEWIPC as u64)])]),
    unshare("unshare-uts", &[step(libc::SYS_unshare, &[Arg::Word(libc::CLONE_NEWUTS as u64)])]),
    unshare(
        "unshare-cgroup",
        &[step(libc::SYS_unshare, &[Arg::Word(libc::CLONE_NEWCGROUP as u64)])],
    ),
    unshare("unshare-time", &[step(libc::SYS_unshare, &[Arg::Word(0x80)])]), // CLONE_NEWTIME
    one("clone-user", &[step(libc::SYS_clone, &[Arg::Word(NEWUSER | libc::SIGCHLD as u64)])]),
    one("clone3-user", &[step(libc::SYS_clone3, &[CLONE_ARGS_USER, Arg::Word(64)])]),
    one("clone3-plain", &[step(libc::SYS_clone3, &[CLONE_ARGS_PLAIN, Arg::Word(64)])]),
    one("setns", &[step(libc::SYS_setns, &[NO_FD, ZERO])]),
    // A user namespace of one's own gives the capabilities to mount: the whole way at once.
    Row {
        name: "mount-in-user-namespace",
        steps: &[
            step(libc::SYS_unshare, &[Arg::Word(NEWUSER | libc::CLONE_NEWNS as u64)]),
            step(
                libc::SYS_mount,
                &[Arg::Bytes(b"none\0"), ROOT, NOTHING, Arg::Word(libc::MS_REC | libc::MS_PRIVATE)],
            ),
            step(
                libc::SYS_mount,
                &[Arg::Bytes(b"none\0"), Arg::Bytes(b"/tmp\0"), Arg::Bytes(b"tmpfs\0"), ZERO],
            ),
        ],
    },
    // the old and the new mount interface
    one("mount", &[step(libc::SYS_mount, &[NOTHING, NOWHERE, Arg::Bytes(b"tmpfs\0"), ZERO])]),
    one("umount2", &[step(libc::SYS_umount2, &[NOWHERE, ZERO])]),
    one("pivot_root", &[step(libc::SYS_pivot_root, &[NOWHERE, NOWHERE])]),
    one("chroot", &[step(libc::SYS_chroot, &[NOWHERE])]),
    one("fsopen", &[step(libc::SYS_fsopen, &[Arg::Bytes(b"belljar-no-such\0"), ZERO])]),
    one("fsconfig", &[step(libc::SYS_fsconfig, &[NO_FD, ZERO, ZERO, ZERO, ZERO])]),
    one("fsmount", &[step(libc::SYS_fsmount, &[NO_FD, ZERO, ZERO])]),
    one("fspick", &[step(libc::SYS_fspick, &[HERE, NOWHERE, ZERO])]),
    one("move_mount", &[step(libc::SYS_move_mount, &[NO_FD, NOTHING, NO_FD, NOTHING, ZERO])]),
    one("open_tree", &[step(libc::SYS_open_tree, &[HERE, ROOT, Arg::Word(0x80000)])]),
    one("mount_setattr", &[step(libc::SYS_mount_setattr, &[NO_FD, NOTHING, ZERO, ZEROES, ZERO])]),
    // programs in the kernel, faults served from outside it, counters
    one("bpf", &[step(libc::SYS_bpf, &[ZERO, ZEROES, Arg::Word(72)])]),
    one("userfaultfd", &[step(libc::SYS_userfaultfd, &[ONE])]), // UFFD_USER_MODE_ONLY
    one(
        "perf_event_open",
        &[step(libc::SYS_perf_event_open, &[SOFT_CLOCK, ZERO, NO_FD, NO_FD, ZERO])],
    ),
    // Without a listener a filter is harmless; with one, another process decides about calls.
    Row {
        name: "seccomp-notify",
        steps: &[
            step(libc::SYS_prctl, &[Arg::Word(libc::PR_SET_NO_NEW_PRIVS as u64), ONE]),
            step(libc::SYS_seccomp, &[ONE, Arg::Word(8), ALLOW_ALL]), // SET_MODE_FILTER, NEW_LISTENER
        ],
    },
    // keys
    one(
        "add_key",
        &[step(
            libc::SYS_add_key,
            &[Arg::Bytes(b"user\0"), Arg::Bytes(b"belljar-probe\0"), NOTHING, ONE, Arg::int(-2)],
        )],
    ),
    one(
        "request_key",
        &[step(
            libc::SYS_request_key,
            &[Arg::Bytes(b"user\0"), Arg::Bytes(b"belljar-no-such\0"), ZERO, ZERO],
        )],
    ),
    one("keyctl", &[step(libc::SYS_keyctl, &[ZERO, Arg::int(-2), ONE])]), // GET_KEYRING_ID, process
    // kernels and modules
    one("kexec_load", &[step(libc::SYS_kexec_load, &[ZERO, ZERO, ZERO, BEYOND])]),
    one("kexec_file_load", &[step(libc::SYS_kexec_file_load, &[NO_FD, NO_FD, ZERO, ZERO, BEYOND])]),
    one("init_module", &[step(libc::SYS_init_module, &[ZERO, ZERO, NOTHING])]),
    one("finit_module", &[step(libc::SYS_finit_module, &[NO_FD, NOTHING, BEYOND])]),
    one(
        "delete_module",
        &[step(libc::SYS_delete_module, &[Arg::Bytes(b"belljar_no_such\0"), Arg::Word(0o4000)])],
    ),
    // the machine
    one("reboot", &[step(libc::SYS_reboot, &[ZERO, ZERO, ZERO, ZERO])]),
    one("swapon", &[step(libc::SYS_swapon, &[NOWHERE, ZERO])]),
    one("swapoff", &[step(libc::SYS_swapoff, &[NOWHERE])]),
    one("acct", &[step(libc::SYS_acct, &[NOWHERE])]),
    one("syslog", &[step(libc::SYS_syslog, &[Arg::Word(10), ZERO, ZERO])]), // SIZE_BUFFER
    one("quotactl", &[step(libc::SYS_quotactl, &[Arg::Word(0x8000_0100), ZERO, ZERO, ZERO])]), // Q_SYNC
    one("sethostname", &[step(libc::SYS_sethostname, &[ZEROES, Arg::Word(65)])]),
    one("setdomainname", &[step(libc::SYS_setdomainname, &[ZEROES, Arg::Word(65)])]),
    one("settimeofday", &[step(libc::SYS_settimeofday, &[BAD_TIME, ZERO])]),
    one("clock_settime", &[step(libc::SYS_clock_settime, &[ZERO, BAD_TIME])]),
    one("clock_adjtime", &[step(libc::SYS_clock_adjtime, &[ZERO, BAD_TICK])]),
    one("adjtimex", &[step(libc::SYS_adjtimex, &[BAD_TICK])]),
    one("nfsservctl", &[step(libc::SYS_nfsservctl, &[ZERO, ZERO, ZERO])]),
    one("lookup_dcookie", &[step(libc::SYS_lookup_dcookie, &[ZERO, ZEROES, Arg::Word(512)])]),
    // In a session of its own, so that no terminal of the caller's is hung up.
    Row { name: "vhangup", steps: &[step(libc::SYS_setsid, &[]), step(libc::SYS_vhangup, &[])] },
    // memory of and across nodes, other processes
    one("mbind", &[step(libc::SYS_mbind, &[ZERO, ZERO, ZERO, ZERO, ZERO, ZERO])]),
    one("migrate_pages", &[step(libc::SYS_migrate_pages, &[ZERO, ZERO, ZERO, ZERO])]),
    one("move_pages", &[step(libc::SYS_move_pages, &[ZERO, ZERO, ZERO, ZERO, ZERO, ZERO])]),
    one("kcmp", &[step(libc::SYS_kcmp, &[ZERO, ZERO, ZERO, ZERO, ZERO])]),
    one("process_madvise", &[step(libc::SYS_process_madvise, &[NO_FD, ZERO, ZERO, ZERO, ZERO])]),
    one("ptrace-me", &[step(libc::SYS_ptrace, &[ZERO, ZERO, ZERO, ZERO])]),
    // files without a path
    one("open_by_handle_at", &[step(libc::SYS_open_by_handle_at, &[HERE, ZEROES, ZERO])]),
    one(
        "name_to_handle_at",
        &[step(libc::SYS_name_to_handle_at, &[HERE, ROOT, ZEROES, ZEROES, ZERO])],
    ),
    one("fanotify_init", &[step(libc::SYS_fanotify_init, &[Arg::Word(0x200), ZERO])]),
    // what a program may become
    one("personality", &[step(libc::SYS_personality, &[Arg::Word(0x004_0000)])]), // ADDR_NO_RANDOMIZE
    one("personality-exec", &[step(libc::SYS_personality, &[Arg::Word(0x040_0000)])]), // READ_IMPLIES_EXEC
    one("setuid-0", &[step(libc::SYS_setuid, &[ZERO])]),
    one("setgid-0", &[step(libc::SYS_setgid, &[ZERO])]),
    one("setresuid-0", &[step(libc::SYS_setresuid, &[ZERO, ZERO, ZERO])]),
    one("setgroups", &[step(libc::SYS_setgroups, &[ZERO, ZERO])]),
    one("capset", &[step(libc::SYS_capset, &[CAP_HEADER, CAP_CHOWN])]),
    // x86 only
    #[cfg(target_arch = "x86_64")]
    one("iopl", &[step(libc::SYS_iopl, &[Arg::Word(4)])]),
    #[cfg(target_arch = "x86_64")]
    one("ioperm", &[step(libc::SYS_ioperm, &[Arg::Word(0x1_0000), ONE, ONE])]),
    #[cfg(target_arch = "x86_64")]
    one("modify_ldt", &[step(libc::SYS_modify_ldt, &[ZERO, ZEROES, Arg::Word(16)])]),
    #[cfg(target_arch = "x86_64")]
    one("uselib", &[step(libc::SYS_uselib, &[NOWHERE])]),
];
