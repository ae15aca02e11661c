//! The place where contenders run: one workspace, one binary, one view of the system for all.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::dist;
use crate::shell::{as_from_a_shell, read, shown, target_dir};

/// What everybody is asked to show to the program inside.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Read-only directories of the host, such as `/usr`.
    pub(super) binds: Vec<PathBuf>,
    /// Links at the top, such as `/bin` to `usr/bin`.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Files and directories of the host's `/etc`.
    pub(super) etc: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Lab {
    pub(super) belljar: PathBuf,
    /// Belljar's state directory.
    pub(super) state: PathBuf,
    pub(super) workspace: PathBuf,
    /// Where npm puts peers, and the home that they get.
    pub(super) peers: PathBuf,
    /// Configuration and run-time state of peers.
    pub(super) scratch: PathBuf,
    pub(super) view: View,
    counter: AtomicU64,
}

impl Lab {
    /// Builds the release binary (unless given one) and an empty place, and asks a box what it sees.
    pub(super) fn new(binary: Option<PathBuf>) -> Result<Self> {
        let belljar = match binary {
            Some(file) => std::path::absolute(file)?,
            None => dist::release()?,
        };
        let base = target_dir()?.join("bench-work");
        if base.exists() {
            std::fs::remove_dir_all(&base).with_context(|| format!("empty {}", base.display()))?;
        }
        let mut lab = Self {
            belljar,
            state: base.join("state"),
            workspace: base.join("workspace"),
            peers: peers_dir()?,
            scratch: base.join("scratch"),
            view: View::default(),
            counter: AtomicU64::new(0),
        };
        for dir in [&lab.state, &lab.workspace, &lab.scratch, &lab.peers.join("home")] {
            std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        }
        for number in 0..20 {
            std::fs::write(
                lab.workspace.join(format!("file-{number}.txt")),
                "some text\n".repeat(40),
            )?;
        }
        let list = |dir: &str| read(&mut lab.box_for(&["/bin/ls", "-A", dir]));
        let (top, etc) = (list("/").context("look into a box")?, list("/etc")?);
        lab.view = view(&top, &etc, Path::new("/"));
        Ok(lab)
    }

    /// Our own contender.
    pub(super) fn box_for(&self, payload: &[&str]) -> Command {
        let mut command = as_from_a_shell(&self.belljar);
        command.args(["run", "--net", "none", "--"]).args(payload);
        command.env("BELLJAR_HOME", &self.state).current_dir(&self.workspace);
        command
    }

    /// A number that was not given out before.
    pub(super) fn fresh(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

/// Where npm packages of peers live; kept from run to run.
pub(super) fn peers_dir() -> Result<PathBuf> {
    Ok(target_dir()?.join("bench-peers"))
}

/// The part of the host that shows in a box with these entries. What a box makes up by itself
/// (`/proc`, `/dev`, `/tmp`, the home, the workspace) every contender makes in its own way.
fn view(top: &str, etc: &str, host: &Path) -> View {
    const OWN: [&str; 8] = ["proc", "dev", "tmp", "home", "workspace", "etc", "run", "sys"];
    let mut view = View::default();
    for name in top.lines().filter(|name| !OWN.contains(name)) {
        let path = host.join(name);
        if let Ok(target) = std::fs::read_link(&path) {
            view.links.push((target, path));
        } else if path.is_dir() {
            view.binds.push(path);
        }
    }
    view.etc =
        etc.lines().map(|name| host.join("etc").join(name)).filter(|path| path.exists()).collect();
    view
}

/// Runs to the end without input or output; how long that took, in milliseconds.
pub(super) fn timed(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().with_context(|| format!("start `{}`", shown(command)))?;
    let took = started.elapsed();
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(took.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_holds_only_what_comes_from_the_host() {
        let host = std::env::temp_dir().join(format!("xtask-view-{}", std::process::id()));
        std::fs::create_dir_all(host.join("usr/bin")).unwrap();
        std::fs::create_dir_all(host.join("etc/ssl")).unwrap();
        std::fs::create_dir_all(host.join("proc")).unwrap();
        std::os::unix::fs::symlink("usr/bin", host.join("bin")).unwrap();
        let view = view("bin\nproc\nusr\nworkspace\n", "ssl\nmade-up\n", &host);
        let expect = View {
            binds: vec![host.join("usr")],
            links: vec![("usr/bin".into(), host.join("bin"))],
            etc: vec![host.join("etc/ssl")],
        };
        std::fs::remove_dir_all(&host).unwrap();
        assert_eq!(view, expect);
    }

    #[test]
    fn a_failing_contender_is_no_sample() {
        assert!(timed(&mut Command::new("/bin/true")).unwrap() > 0.0);
        assert!(timed(&mut Command::new("/bin/false")).is_err());
    }
}
