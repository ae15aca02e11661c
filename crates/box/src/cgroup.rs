//! Limits that the kernel enforces for all processes of a box together.
//!
//! A box gets a cgroup below the cgroup of its supervisor, so that limits of the supervisor also apply to
//! its boxes. If the user cannot create a cgroup, [`crate::standin`] enforces the limits.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_init::janitor::{self, CgroupSpec, Setting};
use belljar_model::{Limits, RunId};

/// The number of Belljar's own processes in the cgroup: only init.
const OUR_PROCESSES: u32 = 1;
/// The period of the CPU quota in microseconds; the default of the kernel.
const PERIOD: u64 = 100_000;

/// The paths of the cgroup of one box, which the janitor creates.
#[derive(Clone, Debug)]
pub(crate) enum Cgroup {
    /// The box uses cgroup v1: init joins through the `tasks` file of each controller.
    V1 { memory: PathBuf, pids: PathBuf, cpu: PathBuf },
    /// The box uses cgroup v2: clone3(2) creates init directly in the directory.
    V2 { directory: PathBuf },
}

/// Counters that the kernel keeps for the cgroup of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) peak_memory: Option<u64>,
    pub(crate) memory_kills: u64,
    pub(crate) refused_forks: u64,
}

impl Cgroup {
    /// Returns the cgroup that this process can create for a run, or `None` without permission.
    pub(crate) fn find(run: RunId) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("belljar-{run}");
        let v1 = |controller| {
            let parent = v1_parent(&mounts, &own, controller)?;
            writable(&parent).then(|| parent.join(&name))
        };
        if let (Some(memory), Some(pids), Some(cpu)) = (v1("memory"), v1("pids"), v1("cpu")) {
            return Some(Self::V1 { memory, pids, cpu });
        }
        let parent = v2_parent(&mounts, &own)?;
        Some(Self::V2 { directory: parent.join(name) })
    }

    /// Returns all directories of the box's cgroup, which are removed at the end.
    pub(crate) fn directories(&self) -> Vec<&Path> {
        match self {
            Self::V1 { memory, pids, cpu } => vec![memory, pids, cpu],
            Self::V2 { directory } => vec![directory],
        }
    }

    /// Returns a description of the cgroup version and controllers for people.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::V1 { .. } => "cgroup v1: memory, pids, cpu",
            Self::V2 { .. } => "cgroup v2: memory, pids, cpu",
        }
    }

    /// Returns the cgroup directories and settings for the janitor, in the order of
    /// [`Self::directories`].
    pub(crate) fn directory_specs(&self, limits: &Limits) -> Vec<CgroupSpec> {
        let memory_bytes = limits.memory.as_u64().to_string();
        let buffers = socket_buffers(limits.memory.as_u64()).to_string();
        let processes = (limits.pids + OUR_PROCESSES).to_string();
        let quota = u64::from(limits.cpus.millis()) * PERIOD / 1000;
        let set = |file: &str, value: &str| Setting {
            file: file.to_owned(),
            value: value.to_owned(),
            optional: false,
        };
        let try_set = |file: &str, value: &str| Setting { optional: true, ..set(file, value) };
        let spec = |path: &Path, files: Vec<Setting>, door: Option<&str>| CgroupSpec {
            path: path.as_os_str().as_bytes().to_vec(),
            files,
            join_file: door.map(str::to_owned),
        };
        match self {
            Self::V1 { memory, pids, cpu } => {
                let memory_settings = vec![
                    set("memory.limit_in_bytes", &memory_bytes),
                    // The file exists only where the kernel accounts swap.
                    try_set("memory.memsw.limit_in_bytes", &memory_bytes),
                    // cgroup v1 counts the buffers of TCP and UDP sockets only if this limit is set, and
                    // not as part of the memory.
                    set("memory.kmem.tcp.limit_in_bytes", &buffers),
                ];
                let cpu_settings = vec![set("cpu.cfs_quota_us", &quota.to_string())];
                vec![
                    spec(memory, memory_settings, Some("tasks")),
                    spec(pids, vec![set("pids.max", &processes)], Some("tasks")),
                    spec(cpu, cpu_settings, Some("tasks")),
                ]
            }
            Self::V2 { directory } => {
                let files = vec![
                    set("memory.max", &memory_bytes),
                    try_set("memory.swap.max", "0"),
                    set("memory.oom.group", "1"),
                    set("pids.max", &processes),
                    set("cpu.max", &format!("{quota} {PERIOD}")),
                ];
                vec![spec(directory, files, None)]
            }
        }
    }

    /// Returns whether init must be created in the cgroup, instead of joining it later.
    pub(crate) fn needs_clone_into(&self) -> bool {
        match self {
            Self::V1 { .. } => false,
            Self::V2 { .. } => true,
        }
    }

    /// Reads the kernel's counters of the cgroup.
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::V1 { memory, pids, .. } => Counts {
                peak_memory: number(&memory.join("memory.max_usage_in_bytes")),
                memory_kills: field(&memory.join("memory.oom_control"), "oom_kill"),
                refused_forks: field(&pids.join("pids.events"), "max"),
            },
            Self::V2 { directory } => Counts {
                peak_memory: number(&directory.join("memory.peak")),
                memory_kills: field(&directory.join("memory.events"), "oom_kill"),
                refused_forks: field(&directory.join("pids.events"), "max"),
            },
        }
    }

    /// Kills remaining processes of the cgroup (none after init has ended) and removes its
    /// directories.
    pub(crate) fn remove(&self) {
        self.directories().into_iter().for_each(janitor::remove);
    }
}

/// Returns the limit for the buffers of all TCP and UDP sockets of a box on cgroup v1.
fn socket_buffers(memory: u64) -> u64 {
    const LEAST: u64 = 1 << 20; // enough for a few connections, whatever the memory limit
    (memory / 4).max(LEAST)
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number after `key` in a file of `key value` lines, or 0.
fn field(path: &Path, key: &str) -> u64 {
    let content = std::fs::read_to_string(path).unwrap_or_default();
    let value = content.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The fields of a mountinfo(5) line that identify a cgroup mount.
struct MountInfo<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn parse_mount(line: &str) -> Option<MountInfo<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let mut after = after.split(' ');
    let (root, point) = (before.next()?, before.next()?);
    let kind = after.next()?;
    Some(MountInfo { root, point, kind, options: after.nth(1)? })
}

/// Returns the directory of the cgroup `own` on a mounted hierarchy.
fn directory(mount: &MountInfo<'_>, own: &str) -> PathBuf {
    let beneath = own.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(own);
    Path::new(mount.point).join(beneath.trim_start_matches('/'))
}

fn v1_parent(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let mount =
        mounts.lines().filter_map(parse_mount).find(|m| m.kind == "cgroup" && has(m.options))?;
    let own = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        has(controllers).then_some(path)
    })?;
    Some(directory(&mount, own))
}

/// Returns the nearest cgroup, from that of this process upwards, that accepts a child with all
/// three controllers.
fn v2_parent(mounts: &str, own: &str) -> Option<PathBuf> {
    let mount = mounts.lines().filter_map(parse_mount).find(|mount| mount.kind == "cgroup2")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = directory(&mount, own);
    own.ancestors()
        .take_while(|place| place.starts_with(mount.point))
        .filter(|place| writable(place) && writable(&place.join("cgroup.procs")))
        .find(|place| enable(place))
        .map(Path::to_path_buf)
}

/// Enables the cgroup controllers for children of `place`, and returns whether all three are
/// enabled.
///
/// The kernel refuses this for a cgroup that contains processes, except for the root cgroup.
fn enable(place: &Path) -> bool {
    let control = place.join("cgroup.subtree_control");
    let complete = || {
        let on = std::fs::read_to_string(&control).unwrap_or_default();
        ["memory", "pids", "cpu"].iter().all(|name| on.split_whitespace().any(|have| have == *name))
    };
    complete() || (std::fs::write(&control, "+memory +pids +cpu").is_ok() && complete())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
33 24 0:29 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
    const OWN: &str = "4:memory:/user/1\n3:cpu,cpuacct:/\n2:pids:/docker/abc/x\n0::/a/b\n";

    #[test]
    fn own_cgroup_is_found_on_every_v1_hierarchy() {
        let check = |controller, expect: Option<&str>| {
            assert_eq!(v1_parent(MOUNTS, OWN, controller), expect.map(PathBuf::from));
        };
        check("memory", Some("/sys/fs/cgroup/memory/user/1"));
        check("cpu", Some("/sys/fs/cgroup/cpu,cpuacct"));
        check("pids", Some("/sys/fs/cgroup/pids/x"));
        check("hugetlb", None);
    }

    #[test]
    fn cgroup_counter_is_matched_by_its_full_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        std::fs::write(&file, "low 0\noom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!(field(&file, "oom_kill"), 2);
        assert_eq!(field(&file, "oom"), 3);
        assert_eq!(field(&file, "absent"), 0);
        assert_eq!(field(&dir.path().join("missing"), "oom"), 0);
    }
}
