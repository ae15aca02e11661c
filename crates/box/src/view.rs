//! The allow-list of host files that a box sees, as data.
//!
//! A box sees nothing of `/home`, `/root`, `/run`, `/var`, `/opt` or `/sys`, and only those files of
//! `/etc` that programs need to start. A path that is not listed does not exist inside the box.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use belljar_init::plan::{Access, ProcMask, Source, Step};
use belljar_model::Limits;

use crate::privilege::Ids;

/// The path of the payload's home directory inside a box.
pub const HOME: &str = "/home/user";
/// The path of the workspace inside a box.
pub const WORKSPACE: &str = "/workspace";
/// The default `PATH` of programs inside a box.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The host name inside a box.
pub const HOSTNAME: &str = "belljar";

/// The host directories with programs and libraries, which a box sees read-only. A symbolic link
/// stays a link.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"];

/// The entries of `/etc` that are mounted read-only, each with the programs that use it. A final
/// `*` matches any suffix.
///
/// No entry contains private keys: a payload of a plain user has the groups of that user.
const ETC: [(&str, &str); 24] = [
    ("alternatives", "Debian: program alternatives"),
    ("ld.so.cache", "the dynamic linker"),
    ("ssl/certs", "CA certificates"),
    ("ssl/openssl.cnf", "OpenSSL at startup"),
    ("pki/tls/certs", "CA certificates on Fedora"),
    ("pki/ca-trust", "CA certificates on Fedora"),
    ("ca-certificates/extracted", "CA certificates on Arch"),
    ("crypto-policies", "TLS settings on Fedora"),
    ("java*", "settings of the Java runtime"),
    ("perl", "Perl's module path"),
    ("python3*", "Debian's Python"),
    ("fonts", "fontconfig"),
    ("terminfo", "terminals"),
    ("bash.bashrc", "interactive shells"),
    ("profile", "login shells"),
    ("inputrc", "line editing"),
    ("services", "ports by name"),
    ("protocols", "protocols by name"),
    ("mime.types", "web servers and mailers"),
    ("debian_version", "tools that check the Debian release"),
    ("localtime", "the time zone"),
    ("magic", "file(1)"),
    ("maven", "settings of Maven"),
    ("manpath.config", "the manual"),
];

/// The entries of [`ETC`] that a box with a network does not get, because it trusts its own
/// authority.
const AUTHORITIES: [&str; 4] =
    ["ssl/certs", "pki/tls/certs", "pki/ca-trust", "ca-certificates/extracted"];

/// Returns the steps that mount the host's system files in a box.
pub(crate) fn system_steps(net: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = SYSTEM.iter().filter_map(|path| expose(Path::new(path))).collect();
    let etc = Path::new("/etc");
    let names: Vec<OsString> = std::fs::read_dir(etc)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect())
        .unwrap_or_default();
    for (pattern, _) in ETC {
        if net && AUTHORITIES.contains(&pattern) {
            continue;
        }
        match pattern.strip_suffix('*') {
            None => steps.extend(expose(&etc.join(pattern))),
            Some(start) => {
                let matching =
                    names.iter().filter(|name| name.as_bytes().starts_with(start.as_bytes()));
                steps.extend(matching.filter_map(|name| expose(&etc.join(name))));
            }
        }
    }
    steps.push(link("/etc/os-release", "/usr/lib/os-release"));
    steps.push(link("/etc/mtab", "/proc/self/mounts"));
    steps
}

/// Returns the step that mounts or links one host path in the box, or `None` if the path is
/// missing.
fn expose(path: &Path) -> Option<Step> {
    let bytes = path.as_os_str().as_bytes().to_vec();
    let kind = std::fs::symlink_metadata(path).ok()?.file_type();
    if kind.is_symlink() {
        let target = std::fs::read_link(path).ok()?.into_os_string();
        return Some(Step::Symlink { path: bytes, target: target.as_bytes().to_vec() });
    }
    let source = Source::Path { path: bytes.clone(), identity: None };
    Some(Step::Bind { source, target: bytes, access: Access::ReadOnly, optional: true })
}

/// Returns the steps that create the box's own system files: users, host names, CPUs.
pub(crate) fn own_files(ids: Ids, cpus: usize) -> Vec<Step> {
    let user = ids.inside;
    let name = user_name(ids);
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut passwd = format!("{name}:x:{user}:{user}::{HOME}:{shell}\n");
    let mut group = format!("{name}:x:{user}:\n");
    if user != 0 {
        passwd.push_str("root:x:0:0:root:/root:/usr/sbin/nologin\n");
        group.push_str("root:x:0:\n");
    }
    passwd.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    group.push_str("nogroup:x:65534:\n");
    let online = if cpus > 1 { format!("0-{}\n", cpus - 1) } else { "0\n".to_owned() };
    vec![
        file("/etc/passwd", passwd),
        file("/etc/group", group),
        file("/etc/hosts", format!("127.0.0.1 localhost {HOSTNAME}\n::1 localhost {HOSTNAME}\n")),
        file("/etc/hostname", format!("{HOSTNAME}\n")),
        file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        // glibc, Go and the JVM read the number of processors here.
        file("/sys/devices/system/cpu/online", online.as_str()),
        file("/sys/devices/system/cpu/possible", online.as_str()),
        file("/sys/devices/system/cpu/present", online),
        directory("/run", 0o755),
        directory("/root", 0o700),
        directory("/mnt", 0o755),
        link("/var/tmp", "/tmp"),
        link("/var/run", "/run"),
    ]
}

/// Returns the step that creates `/etc/resolv.conf`. The address is arbitrary: the broker gets all queries.
pub(crate) fn resolver(net: bool) -> Step {
    let text = if net {
        "# whatever the address, Belljar answers\nnameserver 192.0.2.53\noptions timeout:5 attempts:2\n"
    } else {
        "# this box has no name server\n"
    };
    file("/etc/resolv.conf", text)
}

/// Returns the user name of the payload inside a box.
pub fn user_name(ids: Ids) -> &'static str {
    if ids.inside == 0 { "root" } else { "user" }
}

/// Returns the files of `/proc` that stay visible or are replaced, besides those of processes.
pub(crate) fn proc_mask(limits: &Limits, cpus: usize, boot: u64) -> ProcMask {
    // Also available from cpuid and uname, or part of the box's own namespaces.
    let keep = ["cpuinfo", "version", "filesystems", "sysvipc"];
    let kib = limits.memory.as_u64() / 1024;
    let meminfo = format!(
        "MemTotal: {kib:>14} kB\nMemFree: {kib:>15} kB\nMemAvailable: {kib:>10} kB\n\
         Buffers: {0:>15} kB\nCached: {0:>16} kB\nSwapCached: {0:>12} kB\nSwapTotal: {0:>13} kB\n\
         SwapFree: {0:>14} kB\nShmem: {0:>17} kB\nSReclaimable: {0:>10} kB\n",
        0
    );
    let mut stat = "cpu  0 0 0 0 0 0 0 0 0 0\n".to_owned();
    for cpu in 0..cpus {
        stat.push_str(&format!("cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n"));
    }
    stat.push_str(&format!(
        "intr 0\nctxt 0\nbtime {boot}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n"
    ));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let limit = limits.pids.to_string();
    let replace = [
        ("meminfo", meminfo.as_str()),
        ("stat", &stat),
        ("uptime", "1.00 1.00\n"),
        ("loadavg", "0.00 0.00 0.00 1/1 1\n"),
        ("swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
        ("sys/kernel/osrelease", &release),
        ("sys/kernel/ostype", "Linux\n"),
        ("sys/kernel/hostname", HOSTNAME),
        ("sys/kernel/pid_max", "4194304\n"),
        ("sys/kernel/threads-max", &limit),
        ("sys/kernel/ngroups_max", "65536\n"),
        ("sys/kernel/cap_last_cap", "40\n"),
        ("sys/vm/overcommit_memory", "0\n"),
        ("sys/vm/max_map_count", "65530\n"),
        ("sys/fs/pipe-max-size", "1048576\n"),
        ("sys/net/core/somaxconn", "4096\n"),
    ];
    ProcMask {
        keep: keep.iter().map(|name| name.as_bytes().to_vec()).collect(),
        replace: replace
            .iter()
            .map(|(path, content)| (path.as_bytes().to_vec(), content.as_bytes().to_vec()))
            .collect(),
    }
}

pub(crate) fn file(path: &str, content: impl Into<Vec<u8>>) -> Step {
    Step::File { path: path.into(), content: content.into() }
}

fn directory(path: &str, mode: u32) -> Step {
    Step::Dir { path: path.into(), mode }
}

fn link(path: &str, target: &str) -> Step {
    Step::Symlink { path: path.into(), target: target.into() }
}
