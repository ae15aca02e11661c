//! The peers: tools that Belljar is compared with. Installs each peer and builds its commands.
//!
//! Each peer gets the same file system view, the same workspace, no network and no capabilities, as far
//! as it supports this. If a peer can be started in several ways, the fastest one is used (the native
//! program of codex instead of its Node launcher).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::lab::{Lab, peers_dir};
use crate::packages::{self, Package};
use crate::shell::{as_from_a_shell, program, run, try_read, uid, which};

/// A measured tool: Belljar or one of its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Belljar,
    Bwrap,
    /// Bubblewrap with `/etc` as one bind mount, as people use it. It is faster than the reference,
    /// because each bind mount costs time.
    BwrapShort,
    Runc,
    Firejail,
    Codex,
    Srt,
}

/// The npm packages of peers. Versions are fixed, so that the results of two runs are comparable.
const NPM: [&str; 4] =
    ["@anthropic-ai/sandbox-runtime@0.0.78", "@openai/codex@0.166.0", "deno@2.9.6", "node@22.23.3"];
/// The Node that runs srt, which needs a newer version than some distributions have.
const NODE: &str = "node_modules/node/bin/node";
/// The newest version of mitmproxy that runs on Python 3.11.
const MITMPROXY: &str = "mitmproxy==11.0.2";
const MITMDUMP: &str = "mitmproxy/bin/mitmdump";
const SRT: &str = "node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js";
const DENO: &str = "node_modules/.bin/deno";
const CODEX: &str =
    "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";

const DEBIAN: &[Package] = &[
    Package { name: "bubblewrap", program: "bwrap", reason: "the reference" },
    Package { name: "runc", program: "runc", reason: "a peer" },
    Package { name: "firejail", program: "firejail", reason: "a peer" },
    Package { name: "nodejs", program: "node", reason: "runs npm, which installs srt and codex" },
    Package { name: "python3-venv", program: "python3", reason: "needed to install mitmproxy" },
    Package { name: "socat", program: "socat", reason: "srt needs it" },
    Package { name: "ripgrep", program: "rg", reason: "srt needs it" },
    Package { name: "wrk", program: "wrk", reason: "the load on the server" },
    Package { name: "curl", program: "curl", reason: "reads a list of the server" },
    Package { name: "strace", program: "strace", reason: "needed for --profile" },
];

/// Installs the peers. A peer that cannot be installed is shown as absent in the reports.
pub(super) fn install() -> Result<()> {
    if let Err(error) = packages::install(DEBIAN) {
        println!("{error:#}");
    }
    let dir = peers_dir()?;
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    if let Err(error) = install_mitmproxy(&dir) {
        println!("{error:#}");
    }
    if [SRT, CODEX, NODE, DENO].iter().all(|file| dir.join(file).exists()) {
        return Ok(());
    }
    if which("npm").is_none() {
        println!("npm is not installed, so srt and codex are not measured");
        return Ok(());
    }
    let mut npm = program("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
        .arg(&dir)
        .args(NPM);
    if let Err(error) = run(&mut npm) {
        println!("{error:#}");
    }
    Ok(())
}

fn install_mitmproxy(dir: &Path) -> Result<()> {
    if dir.join(MITMDUMP).exists() {
        return Ok(());
    }
    let venv = dir.join("mitmproxy");
    run(program("python3").args(["-m", "venv"]).arg(&venv))?;
    run(program(venv.join("bin/pip")).args(["install", "--quiet", MITMPROXY]))
}

/// Returns the path of `mitmdump`, which is mitmproxy without a user interface.
pub(super) fn mitmdump(lab: &Lab) -> PathBuf {
    lab.peers.join(MITMDUMP)
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Belljar => "belljar",
            Self::Bwrap => "bwrap",
            Self::BwrapShort => "bwrap /etc",
            Self::Runc => "runc",
            Self::Firejail => "firejail",
            Self::Codex => "codex",
            Self::Srt => "srt",
        }
    }

    /// Runs one box. The error is the reason why the tool does not work on this machine.
    pub(super) fn try_out(self, lab: &Lab) -> Result<(), String> {
        try_once(self.command(lab, &["/bin/true"]).map_err(|error| format!("{error:#}"))?)
    }

    /// Returns the command that runs `payload` in one box.
    pub(super) fn command(self, lab: &Lab, payload: &[&str]) -> Result<Command> {
        match self {
            Self::Belljar => Ok(lab.box_for(payload)),
            Self::Bwrap => Ok(bwrap(lab, payload, &lab.view.etc)),
            Self::BwrapShort => Ok(bwrap(lab, payload, &["/etc".into()])),
            Self::Runc => runc(lab, payload),
            Self::Firejail => Ok(firejail(lab, payload)),
            Self::Codex => Ok(codex(lab, payload)),
            Self::Srt => srt(lab, payload, &[]),
        }
    }
}

/// Runs a command once. The error is the last line of its stderr.
pub(super) fn try_once(mut command: Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr.trim().lines().last().unwrap_or("failed without a message").to_owned())
}

/// Returns a command that starts in the workspace.
fn in_workspace(lab: &Lab, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = as_from_a_shell(program);
    command.current_dir(&lab.workspace);
    command
}

fn bwrap(lab: &Lab, payload: &[&str], etc: &[PathBuf]) -> Command {
    let mut command = in_workspace(lab, "bwrap");
    command.args([
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--cap-drop",
        "ALL",
    ]);
    command.args(["--uid", "1000", "--gid", "1000", "--hostname", "box"]);
    command.args([
        "--setenv",
        "PATH",
        "/usr/local/bin:/usr/bin:/bin",
        "--setenv",
        "HOME",
        "/home/user",
    ]);
    for dir in lab.view.binds.iter().chain(etc) {
        command.arg("--ro-bind").args([dir, dir]);
    }
    // If all of `/etc` is mounted, its links already exist.
    let whole_etc = etc.iter().any(|path| path == Path::new("/etc"));
    for (target, link) in &lab.view.links {
        if !(whole_etc && link.starts_with("/etc")) {
            command.arg("--symlink").args([target, link]);
        }
    }
    for dir in &lab.view.dirs {
        command.arg("--dir").arg(dir);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home/user"]);
    command.arg("--bind").arg(&lab.workspace).args(["/workspace", "--chdir", "/workspace", "--"]);
    command.args(payload);
    command
}

fn firejail(lab: &Lab, payload: &[&str]) -> Command {
    let mut command = in_workspace(lab, "firejail");
    command.args(["--quiet", "--noprofile", "--net=none", "--private-dev", "--private-tmp"]);
    command.args(["--caps.drop=all", "--nonewprivs", "--seccomp", "--"]).args(payload);
    command
}

fn codex(lab: &Lab, payload: &[&str]) -> Command {
    let mut command = in_workspace(lab, lab.peers.join(CODEX));
    command.args(["sandbox", "--"]).args(payload);
    let home = lab.peers.join("home");
    command.env("HOME", &home).env("CODEX_HOME", home);
    command
}

/// Returns the command for srt with a proxy for these domains, or without a network if there are none.
pub(super) fn srt(lab: &Lab, payload: &[&str], domains: &[&str]) -> Result<Command> {
    let settings = lab.scratch.join(format!("srt-{}.json", domains.len()));
    if !settings.exists() {
        let content = json!({
            "network": { "allowedDomains": domains, "deniedDomains": [] },
            "filesystem": { "denyRead": [], "allowWrite": ["."], "denyWrite": [] },
        });
        std::fs::write(&settings, content.to_string())?;
    }
    let mut command = in_workspace(lab, lab.peers.join(NODE));
    command.arg(lab.peers.join(SRT)).arg("-s").arg(settings).args(payload);
    command.env("HOME", lab.peers.join("home"));
    Ok(command)
}

fn runc(lab: &Lab, payload: &[&str]) -> Result<Command> {
    anyhow::ensure!(
        uid()? == 0,
        "runc is measured only as root, because a rootless bundle would differ"
    );
    let bundle = lab.scratch.join(format!("bundle-{}", payload.join("-").replace('/', "")));
    if !bundle.exists() {
        write_bundle(lab, &bundle, payload)
            .with_context(|| format!("cannot create {}", bundle.display()))?;
    }
    let mut command = in_workspace(lab, "runc");
    command.arg("--root").arg(lab.scratch.join("runc")).args(["run", "--bundle"]).arg(bundle);
    command.arg(format!("belljar-bench-{}-{}", std::process::id(), lab.unique_number()));
    Ok(command)
}

/// Writes an OCI bundle for runc. Its root file system has only mount points and links.
fn write_bundle(lab: &Lab, bundle: &Path, payload: &[&str]) -> Result<()> {
    let root = bundle.join("rootfs");
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let read_only: Vec<&PathBuf> = lab.view.binds.iter().chain(&lab.view.etc).collect();
    let mount_points = ["/proc", "/dev", "/tmp", "/home/user", "/workspace", "/etc"].map(Path::new);
    for dir in mount_points.into_iter().chain(lab.view.dirs.iter().map(PathBuf::as_path)) {
        std::fs::create_dir_all(inside(dir))?;
    }
    for path in &read_only {
        if path.is_dir() {
            std::fs::create_dir_all(inside(path))?;
        } else {
            std::fs::write(inside(path), "")?;
        }
    }
    for (target, link) in &lab.view.links {
        std::os::unix::fs::symlink(target, inside(link))?;
    }
    let tmpfs = |path: &str, mode: &str| json!({ "destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", mode] });
    let bind = |from: &Path, to: &Path, access: &str| json!({ "destination": to, "type": "bind", "source": from, "options": ["bind", access, "nosuid", "nodev"] });
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
        tmpfs("/dev", "mode=755"),
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"] }),
        tmpfs("/tmp", "mode=1777"),
        tmpfs("/home/user", "mode=777"),
        bind(&lab.workspace, Path::new("/workspace"), "rw"),
    ];
    mounts.extend(read_only.iter().map(|path| bind(path, path, "ro")));
    let config = oci_config(payload, &mounts);
    std::fs::write(bundle.join("config.json"), config.to_string())?;
    Ok(())
}

fn oci_config(payload: &[&str], mounts: &[Value]) -> Value {
    let namespaces: Vec<Value> = ["pid", "network", "ipc", "uts", "mount", "cgroup"]
        .iter()
        .map(|kind| json!({ "type": kind }))
        .collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 1000 },
            "args": payload,
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user"],
            "cwd": "/workspace",
            "capabilities": {},
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "box",
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "resources": { "memory": { "limit": 2_147_483_648_u64 }, "pids": { "limit": 512 } },
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
        },
    })
}

/// Returns the versions of the installed peers, for the notes of a report.
pub(super) fn versions() -> String {
    let first_line = |name: &&str| {
        let text = try_read(program(name).arg("--version"))?;
        text.lines().next().map(str::to_owned)
    };
    let debian = ["bwrap", "runc", "firejail"].iter().filter_map(first_line);
    let pinned = NPM.into_iter().chain([MITMPROXY]).map(str::to_owned);
    debian.chain(pinned).collect::<Vec<_>>().join("; ")
}
