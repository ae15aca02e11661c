//! Limits that the kernel holds for the box as a whole.
//!
//! A box gets a cgroup beneath the supervisor's own, so that whatever limits the supervisor limits
//! its boxes too. Where the user may not make one, [`crate::standin`] does what can be done without.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_init::janitor::{self, Directory, Setting};
use belljar_model::{Limits, RunId};

/// Init is in the cgroup too.
const OUR_PROCESSES: u32 = 1;
/// How often the kernel refills the CPU quota, in microseconds; its own default.
const PERIOD: u64 = 100_000;

/// The cgroup of one box: where it is, or will be once the janitor has made it.
#[derive(Debug)]
pub(crate) enum Cgroup {
    /// Joined through the `tasks` files.
    V1 { memory: PathBuf, pids: PathBuf, cpu: PathBuf },
    /// The directory is where init is born.
    V2 { directory: PathBuf },
}

/// What the kernel has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) peak_memory: Option<u64>,
    pub(crate) memory_kills: u64,
    pub(crate) refused_forks: u64,
}

impl Cgroup {
    /// Finds out what this process may make. `None`: nothing.
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

    /// Every directory that has to go at the end.
    pub(crate) fn directories(&self) -> Vec<&Path> {
        match self {
            Self::V1 { memory, pids, cpu } => vec![memory, pids, cpu],
            Self::V2 { directory } => vec![directory],
        }
    }

    /// For people: which mechanism it is.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::V1 { .. } => "cgroup v1: memory, pids, cpu",
            Self::V2 { .. } => "cgroup v2: memory, pids, cpu",
        }
    }

    /// How to make it, in the order of [`Self::directories`].
    pub(crate) fn recipe(&self, limits: &Limits) -> Vec<Directory> {
        let memory_bytes = limits.memory.as_u64().to_string();
        let processes = (limits.pids + OUR_PROCESSES).to_string();
        let quota = u64::from(limits.cpus.millis()) * PERIOD / 1000;
        let set = |file: &str, value: &str| Setting {
            file: file.to_owned(),
            value: value.to_owned(),
            optional: false,
        };
        let try_set = |file: &str, value: &str| Setting { optional: true, ..set(file, value) };
        let made = |path: &Path, files: Vec<Setting>, door: Option<&str>| Directory {
            path: path.as_os_str().as_bytes().to_vec(),
            files,
            door: door.map(str::to_owned),
        };
        match self {
            Self::V1 { memory, pids, cpu } => {
                let of_memory = vec![
                    set("memory.limit_in_bytes", &memory_bytes),
                    // Only where swap is accounted; without it there is nothing to limit.
                    try_set("memory.memsw.limit_in_bytes", &memory_bytes),
                ];
                let of_cpu = vec![set("cpu.cfs_quota_us", &quota.to_string())];
                vec![
                    made(memory, of_memory, Some("tasks")),
                    made(pids, vec![set("pids.max", &processes)], Some("tasks")),
                    made(cpu, of_cpu, Some("tasks")),
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
                vec![made(directory, files, None)]
            }
        }
    }

    /// Whether init must be born in it, instead of joining it later.
    pub(crate) fn is_birthplace(&self) -> bool {
        match self {
            Self::V1 { .. } => false,
            Self::V2 { .. } => true,
        }
    }

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

    /// Kills what is left, which is nothing after init is gone, and removes the directories.
    pub(crate) fn remove(&self) {
        self.directories().into_iter().for_each(janitor::remove);
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind `key` in a file of `key value` lines.
fn field(path: &Path, key: &str) -> u64 {
    let content = std::fs::read_to_string(path).unwrap_or_default();
    let value = content.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// One line of mountinfo(5), as far as it concerns us.
struct Mounted<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn mounted(line: &str) -> Option<Mounted<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let mut after = after.split(' ');
    let (root, point) = (before.next()?, before.next()?);
    let kind = after.next()?;
    Some(Mounted { root, point, kind, options: after.nth(1)? })
}

/// Our own cgroup's directory on a mounted hierarchy, seen from where it is mounted.
fn directory(mount: &Mounted<'_>, own: &str) -> PathBuf {
    let beneath = own.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(own);
    Path::new(mount.point).join(beneath.trim_start_matches('/'))
}

fn v1_parent(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let mount =
        mounts.lines().filter_map(mounted).find(|m| m.kind == "cgroup" && has(m.options))?;
    let own = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        has(controllers).then_some(path)
    })?;
    Some(directory(&mount, own))
}

/// The nearest cgroup at or above ours in which we may make one with all three controllers.
fn v2_parent(mounts: &str, own: &str) -> Option<PathBuf> {
    let mount = mounts.lines().filter_map(mounted).find(|mount| mount.kind == "cgroup2")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = directory(&mount, own);
    own.ancestors()
        .take_while(|place| place.starts_with(mount.point))
        .filter(|place| writable(place) && writable(&place.join("cgroup.procs")))
        .find(|place| enable(place))
        .map(Path::to_path_buf)
}

/// Whether children of `place` have the controllers, switching them on where that is allowed: the
/// kernel refuses it for a cgroup that has processes of its own, unless it is the root.
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
    fn the_own_cgroup_is_found_on_every_hierarchy() {
        let check = |controller, expect: Option<&str>| {
            assert_eq!(v1_parent(MOUNTS, OWN, controller), expect.map(PathBuf::from));
        };
        check("memory", Some("/sys/fs/cgroup/memory/user/1"));
        check("cpu", Some("/sys/fs/cgroup/cpu,cpuacct"));
        check("pids", Some("/sys/fs/cgroup/pids/x"));
        check("hugetlb", None);
    }

    #[test]
    fn counters_are_read_by_their_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        std::fs::write(&file, "low 0\noom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!(field(&file, "oom_kill"), 2);
        assert_eq!(field(&file, "oom"), 3);
        assert_eq!(field(&file, "absent"), 0);
        assert_eq!(field(&dir.path().join("missing"), "oom"), 0);
    }
}
