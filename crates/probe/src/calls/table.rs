//! The system calls that a box must refuse, with arguments that are harmless where a call is allowed.
//!
//! The arguments are chosen so that the kernel returns another result than a seccomp filter: success where
//! the call changes nothing, otherwise `ENOENT`, `EINVAL`, `EBADF` or `EFAULT`. Some calls check their
//! arguments before the privileges of the caller, others after. No call mounts a file system, sets a clock,
//! loads code or ends a process outside the child that makes it.

use belljar_sys::probe::{Arg, Field};

use super::{Row, Step, step};

const MISSING_PATH: Arg<'static> = Arg::Bytes(b"/belljar-probe/nowhere\0");
const EMPTY: Arg<'static> = Arg::Bytes(b"\0");
const ROOT: Arg<'static> = Arg::Bytes(b"/\0");
/// Zero bytes for a structure that the kernel reads or fills.
const ZEROES: Arg<'static> = Arg::Bytes(&[0; 512]);
const NO_FD: Arg<'static> = Arg::int(-1);
const CWD: Arg<'static> = Arg::int(-100); // AT_FDCWD
const UNKNOWN_FLAG: Arg<'static> = Arg::Word(0x4000); // a flag that no kernel supports

const ZERO: Arg<'static> = Arg::Word(0);
const ONE: Arg<'static> = Arg::Word(1);

/// A time with two seconds of nanoseconds, which the kernel refuses.
const INVALID_TIME: Arg<'static> = Arg::Struct(&[Field::Word(0), Field::Word(2_000_000_000)]);
/// A `struct timex` with a tick of zero, which the kernel refuses.
const INVALID_TICK: Arg<'static> = Arg::Bytes(&{
    let mut timex = [0_u8; 256];
    timex[1] = 0x40; // modes = ADJ_TICK
    timex
});
/// A `struct perf_event_attr` for a software clock of this process in user space.
const SOFTWARE_CLOCK: Arg<'static> = Arg::Bytes(&{
    let mut attr = [0_u8; 64];
    attr[0] = 1; // PERF_TYPE_SOFTWARE
    attr[4] = 64; // PERF_ATTR_SIZE_VER0
    attr[40] = 0x60; // exclude_kernel, exclude_hv
    attr
});
/// A `struct sock_fprog` with one instruction: `return SECCOMP_RET_ALLOW`.
const ALLOW_ALL: Arg<'static> =
    Arg::Struct(&[Field::Word(1), Field::Bytes(&[6, 0, 0, 0, 0, 0, 0xff, 0x7f])]);
/// A header of capset(2), version 3, for the calling thread.
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
    // A new user namespace gives the capability to mount, so all steps run in one child.
    Row {
        name: "mount-in-user-namespace",
        steps: &[
            step(libc::SYS_unshare, &[Arg::Word(NEWUSER | libc::CLONE_NEWNS as u64)]),
            step(
                libc::SYS_mount,
                &[Arg::Bytes(b"none\0"), ROOT, EMPTY, Arg::Word(libc::MS_REC | libc::MS_PRIVATE)],
            ),
            step(
                libc::SYS_mount,
                &[Arg::Bytes(b"none\0"), Arg::Bytes(b"/tmp\0"), Arg::Bytes(b"tmpfs\0"), ZERO],
            ),
        ],
    },
    // mounts, old and new interface
    one("mount", &[step(libc::SYS_mount, &[EMPTY, MISSING_PATH, Arg::Bytes(b"tmpfs\0"), ZERO])]),
    one("umount2", &[step(libc::SYS_umount2, &[MISSING_PATH, ZERO])]),
    one("pivot_root", &[step(libc::SYS_pivot_root, &[MISSING_PATH, MISSING_PATH])]),
    one("chroot", &[step(libc::SYS_chroot, &[MISSING_PATH])]),
    one("fsopen", &[step(libc::SYS_fsopen, &[Arg::Bytes(b"belljar-no-such\0"), ZERO])]),
    one("fsconfig", &[step(libc::SYS_fsconfig, &[NO_FD, ZERO, ZERO, ZERO, ZERO])]),
    one("fsmount", &[step(libc::SYS_fsmount, &[NO_FD, ZERO, ZERO])]),
    one("fspick", &[step(libc::SYS_fspick, &[CWD, MISSING_PATH, ZERO])]),
    one("move_mount", &[step(libc::SYS_move_mount, &[NO_FD, EMPTY, NO_FD, EMPTY, ZERO])]),
    one("open_tree", &[step(libc::SYS_open_tree, &[CWD, ROOT, Arg::Word(0x80000)])]),
    one("mount_setattr", &[step(libc::SYS_mount_setattr, &[NO_FD, EMPTY, ZERO, ZEROES, ZERO])]),
    // BPF, page faults in user space, performance counters
    one("bpf", &[step(libc::SYS_bpf, &[ZERO, ZEROES, Arg::Word(72)])]),
    one("userfaultfd", &[step(libc::SYS_userfaultfd, &[ONE])]), // UFFD_USER_MODE_ONLY
    one(
        "perf_event_open",
        &[step(libc::SYS_perf_event_open, &[SOFTWARE_CLOCK, ZERO, NO_FD, NO_FD, ZERO])],
    ),
    // A filter without a listener is harmless; with a listener another process decides about calls.
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
            &[Arg::Bytes(b"user\0"), Arg::Bytes(b"belljar-probe\0"), EMPTY, ONE, Arg::int(-2)],
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
    one("kexec_load", &[step(libc::SYS_kexec_load, &[ZERO, ZERO, ZERO, UNKNOWN_FLAG])]),
    one(
        "kexec_file_load",
        &[step(libc::SYS_kexec_file_load, &[NO_FD, NO_FD, ZERO, ZERO, UNKNOWN_FLAG])],
    ),
    one("init_module", &[step(libc::SYS_init_module, &[ZERO, ZERO, EMPTY])]),
    one("finit_module", &[step(libc::SYS_finit_module, &[NO_FD, EMPTY, UNKNOWN_FLAG])]),
    one(
        "delete_module",
        &[step(libc::SYS_delete_module, &[Arg::Bytes(b"belljar_no_such\0"), Arg::Word(0o4000)])],
    ),
    // the machine
    one("reboot", &[step(libc::SYS_reboot, &[ZERO, ZERO, ZERO, ZERO])]),
    one("swapon", &[step(libc::SYS_swapon, &[MISSING_PATH, ZERO])]),
    one("swapoff", &[step(libc::SYS_swapoff, &[MISSING_PATH])]),
    one("acct", &[step(libc::SYS_acct, &[MISSING_PATH])]),
    one("syslog", &[step(libc::SYS_syslog, &[Arg::Word(10), ZERO, ZERO])]), // SIZE_BUFFER
    one("quotactl", &[step(libc::SYS_quotactl, &[Arg::Word(0x8000_0100), ZERO, ZERO, ZERO])]), // Q_SYNC
    one("sethostname", &[step(libc::SYS_sethostname, &[ZEROES, Arg::Word(65)])]),
    one("setdomainname", &[step(libc::SYS_setdomainname, &[ZEROES, Arg::Word(65)])]),
    one("settimeofday", &[step(libc::SYS_settimeofday, &[INVALID_TIME, ZERO])]),
    one("clock_settime", &[step(libc::SYS_clock_settime, &[ZERO, INVALID_TIME])]),
    one("clock_adjtime", &[step(libc::SYS_clock_adjtime, &[ZERO, INVALID_TICK])]),
    one("adjtimex", &[step(libc::SYS_adjtimex, &[INVALID_TICK])]),
    one("nfsservctl", &[step(libc::SYS_nfsservctl, &[ZERO, ZERO, ZERO])]),
    one("lookup_dcookie", &[step(libc::SYS_lookup_dcookie, &[ZERO, ZEROES, Arg::Word(512)])]),
    // In a new session, so that the terminal of the caller is not hung up.
    Row { name: "vhangup", steps: &[step(libc::SYS_setsid, &[]), step(libc::SYS_vhangup, &[])] },
    // NUMA memory, other processes
    one("mbind", &[step(libc::SYS_mbind, &[ZERO, ZERO, ZERO, ZERO, ZERO, ZERO])]),
    one("migrate_pages", &[step(libc::SYS_migrate_pages, &[ZERO, ZERO, ZERO, ZERO])]),
    one("move_pages", &[step(libc::SYS_move_pages, &[ZERO, ZERO, ZERO, ZERO, ZERO, ZERO])]),
    one("kcmp", &[step(libc::SYS_kcmp, &[ZERO, ZERO, ZERO, ZERO, ZERO])]),
    one("process_madvise", &[step(libc::SYS_process_madvise, &[NO_FD, ZERO, ZERO, ZERO, ZERO])]),
    one("ptrace-me", &[step(libc::SYS_ptrace, &[ZERO, ZERO, ZERO, ZERO])]),
    // files without a path
    one("open_by_handle_at", &[step(libc::SYS_open_by_handle_at, &[CWD, ZEROES, ZERO])]),
    one(
        "name_to_handle_at",
        &[step(libc::SYS_name_to_handle_at, &[CWD, ROOT, ZEROES, ZEROES, ZERO])],
    ),
    one("fanotify_init", &[step(libc::SYS_fanotify_init, &[Arg::Word(0x200), ZERO])]),
    // ids, capabilities and personality
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
    one("uselib", &[step(libc::SYS_uselib, &[MISSING_PATH])]),
];
