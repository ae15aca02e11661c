//! Every attack, in the order of `docs/threat-model.md`.

use crate::trial::Attack;
use crate::{
    bombs, deputies, handoff, kernel, network, paths, processes, rootfs, secrets, sockets, state,
    supervisor, surface,
};

pub static ATTACKS: &[Attack] = &[
    Attack {
        id: "A02",
        title: "no rule means no network, however it is said",
        trial: network::a02,
    },
    Attack {
        id: "A18",
        title: "every socket family and type beside local TCP and UDP",
        trial: network::a18,
    },
    Attack { id: "A19", title: "proxy variables set, unset or overruled", trial: network::a19 },
    Attack {
        id: "B16",
        title: "a secret in the environment, files, memory image or state of a run",
        trial: secrets::b16,
    },
    Attack {
        id: "B17",
        title: "the supervisor's and init's environment through /proc",
        trial: secrets::b17,
    },
    Attack { id: "C01", title: "settings of an agent that do not exist yet", trial: handoff::c01 },
    Attack { id: "C02", title: "git hooks and git's configuration", trial: handoff::c02 },
    Attack {
        id: "C03",
        title: "git settings that run programs, while Belljar diffs and applies",
        trial: deputies::c03,
    },
    Attack {
        id: "C04",
        title: "submodules, worktrees, attributes and alternates of git",
        trial: handoff::c04,
    },
    Attack { id: "C05", title: "a bare repository planted in the workspace", trial: handoff::c05 },
    Attack {
        id: "C06",
        title: "files that editors, shells, builds and CI execute",
        trial: handoff::c06,
    },
    Attack { id: "C07", title: "replaced interpreters, tools and caches", trial: handoff::c07 },
    Attack { id: "C08", title: "a project file that turns the box off", trial: deputies::c08 },
    Attack { id: "C09", title: "a flag that turns the box off", trial: deputies::c09 },
    Attack { id: "C10", title: "links in the workspace that lead outside", trial: paths::c10 },
    Attack {
        id: "C11",
        title: "a directory exchanged for a link while apply writes",
        trial: paths::c11,
    },
    Attack {
        id: "C12",
        title: "a working directory that becomes a writable root",
        trial: state::c12,
    },
    Attack {
        id: "C13",
        title: "mount targets of a root file system that are links",
        trial: rootfs::c13,
    },
    Attack { id: "C14", title: "devices and masks replaced by links", trial: rootfs::c14 },
    Attack { id: "C15", title: "descriptors that Belljar was started with", trial: state::c15 },
    Attack {
        id: "C16",
        title: "the runtime's own program through /proc/self/exe",
        trial: state::c16,
    },
    Attack { id: "C17", title: "hard links to and renames of protected files", trial: paths::c17 },
    Attack { id: "C18", title: "names that a list of patterns misses", trial: handoff::c18 },
    Attack {
        id: "C19",
        title: "a read rule that one tool heeds and another does not",
        trial: secrets::c19,
    },
    Attack { id: "C20", title: "the policy file swapped by the box", trial: deputies::c20 },
    Attack {
        id: "C21",
        title: "Belljar installed inside the writable workspace",
        trial: deputies::c21,
    },
    Attack { id: "C22", title: "set-user-id files and device nodes", trial: paths::c22 },
    Attack {
        id: "C23",
        title: "too many, too large, too deep, too strange files",
        trial: paths::c23,
    },
    Attack { id: "C24", title: "files opened by handle", trial: state::c24 },
    Attack { id: "C25", title: "kernel knobs and sights in /proc and /sys", trial: state::c25 },
    Attack { id: "C26", title: "the state directory given to a box", trial: state::c26 },
    Attack { id: "C27", title: "what one run leaves for the next", trial: state::c27 },
    Attack { id: "D01", title: "io_uring", trial: kernel::d01 },
    Attack { id: "D02", title: "32-bit and x32 system calls", trial: kernel::d02 },
    Attack { id: "D03", title: "keys pushed into a terminal", trial: kernel::d03 },
    Attack { id: "D04", title: "new namespaces by every call", trial: kernel::d04 },
    Attack { id: "D05", title: "mounts in a nested user namespace", trial: kernel::d05 },
    Attack { id: "D06", title: "Unix sockets with a path", trial: sockets::d06 },
    Attack { id: "D07", title: "Unix sockets without a path", trial: sockets::d07 },
    Attack { id: "D08", title: "descriptors handed over sockets", trial: sockets::d08 },
    Attack { id: "D09", title: "memory and descriptors of other processes", trial: processes::d09 },
    Attack {
        id: "D10",
        title: "arguments changed after a judge looked at them",
        trial: supervisor::d10,
    },
    Attack { id: "D11", title: "a judge that fails or hangs", trial: supervisor::d11 },
    Attack {
        id: "D12",
        title: "a supervisor that runs out of descriptors",
        trial: supervisor::d12,
    },
    Attack { id: "D13", title: "programs from memory, copies and other names", trial: kernel::d13 },
    Attack { id: "D14", title: "a layer that is silently absent", trial: kernel::d14 },
    Attack {
        id: "D15",
        title: "the rest of the kernel's dangerous calls, one by one",
        trial: kernel::d15,
    },
    Attack {
        id: "D16",
        title: "fork, memory, disk, file, timer and terminal bombs",
        trial: bombs::d16,
    },
    Attack {
        id: "D17",
        title: "processes that outlive the box or its supervisor",
        trial: processes::d17,
    },
    Attack { id: "D18", title: "endless, senseless and forged output", trial: bombs::d18 },
    Attack {
        id: "D19",
        title: "shared memory, queues, host name, clock and priorities",
        trial: processes::d19,
    },
    Attack { id: "D20", title: "signals and scheduling of other processes", trial: processes::d20 },
    Attack { id: "D21", title: "the doors of known kernel exploits", trial: kernel::d21 },
    Attack {
        id: "D22",
        title: "bytes that make the host's side fall over",
        trial: supervisor::d22,
    },
    Attack { id: "F13", title: "terminal escapes in what Belljar prints", trial: surface::f13 },
    Attack {
        id: "F15",
        title: "arguments, names and variables that steer programs",
        trial: surface::f15,
    },
];
