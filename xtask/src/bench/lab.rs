//! The place where contenders run: one workspace, one binary, one view of the system for all.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::dist;
use crate::shell::{as_from_a_shell, read, shown, target_dir};

/// What everybody is asked to show to the program inside: the mounts, links and directories that a
/// box of ours has. The few small files that a box writes by itself (`passwd`, `hosts`) are spared
/// the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Read-only files and directories of the host outside `/etc`, such as `/usr`.
    pub(super) binds: Vec<PathBuf>,
    /// The same of `/etc`.
    pub(super) etc: Vec<PathBuf>,
    /// Target and place of links, such as `usr/bin` at `/bin`.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Empty directories at the top.
    pub(super) dirs: Vec<PathBuf>,
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
    /// Builds the binary as it is shipped (unless given one) and an empty place, and asks a box what it sees.
    pub(super) fn new(binary: Option<PathBuf>) -> Result<Self> {
        Self::of(&binary_or_build(binary)?, "bench-work")
    }

    /// The same for a binary that is there, in a directory of this name below the target directory.
    pub(super) fn of(belljar: &Path, directory: &str) -> Result<Self> {
        let belljar = std::path::absolute(belljar)?;
        let base = target_dir()?.join(directory);
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
        let look = |payload: &[&str]| read(&mut lab.box_for(payload)).context("look into a box");
        lab.view = view(
            &look(&["/bin/cat", "/proc/self/mountinfo"])?,
            &look(&["/bin/ls", "-A", "/"])?,
            &look(&["/bin/ls", "-A", "/etc"])?,
            |path| std::fs::read_link(path).ok(),
        );
        Ok(lab)
    }

    /// Our own contender.
    pub(super) fn box_for(&self, payload: &[&str]) -> Command {
        self.box_with(&["--net", "none"], payload)
    }

    /// The same with other options.
    pub(super) fn box_with(&self, options: &[&str], payload: &[&str]) -> Command {
        let mut command = as_from_a_shell(&self.belljar);
        command.arg("run").args(options).arg("--").args(payload);
        command.env("BELLJAR_HOME", &self.state).current_dir(&self.workspace);
        command
    }

    /// A number that was not given out before.
    pub(super) fn fresh(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

/// The given binary, or one that is built now.
pub(super) fn binary_or_build(binary: Option<PathBuf>) -> Result<PathBuf> {
    binary.map_or_else(dist::shipped, Ok)
}

/// Where npm packages of peers live; kept from run to run.
pub(super) fn peers_dir() -> Result<PathBuf> {
    Ok(target_dir()?.join("bench-peers"))
}

/// The view of a box with this mount table and these entries in `/` and `/etc`.
fn view(mounts: &str, top: &str, etc: &str, link: impl Fn(&Path) -> Option<PathBuf>) -> View {
    // Every contender makes these in its own way.
    let own = ["/proc", "/dev", "/tmp", "/home", "/workspace", "/etc"].map(Path::new);
    let bound: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            let (place, options) = (fields.next()?, fields.next()?);
            options.split(',').any(|option| option == "ro").then(|| PathBuf::from(place))
        })
        .filter(|place| !["/proc", "/dev"].iter().any(|dir| place.starts_with(dir)))
        .filter(|place| place != Path::new("/"))
        .collect();
    let mut view = View::default();
    let names = top.lines().map(|name| Path::new("/").join(name));
    for path in names.chain(etc.lines().map(|name| Path::new("/etc").join(name))) {
        let is_top = path.parent() == Some(Path::new("/"));
        if bound.contains(&path) || own.contains(&path.as_path()) {
            continue;
        } else if let Some(target) = link(&path) {
            view.links.push((target, path));
        } else if is_top {
            view.dirs.push(path);
        }
    }
    (view.etc, view.binds) = bound.into_iter().partition(|path| path.starts_with("/etc"));
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
    fn the_view_is_what_the_box_has() {
        let mounts = "\
74 45 0:40 /root / ro,nosuid - tmpfs none rw
75 74 0:41 /tmp /tmp rw,nosuid - tmpfs none rw
78 74 254:0 /@/usr /usr ro,nosuid - ext4 /dev/vda rw
79 74 254:0 /etc/ssl /etc/ssl ro,nosuid - ext4 /dev/vda rw
97 96 0:40 /covers/.dir /proc/fs ro,nosuid - tmpfs none rw
";
        let link = |path: &Path| match path.to_str().unwrap() {
            "/bin" => Some("usr/bin".into()),
            "/etc/mtab" => Some("/proc/mounts".into()),
            _ => None,
        };
        let view = view(mounts, "bin\netc\nproc\nrun\ntmp\nusr\n", "mtab\npasswd\nssl\n", link);
        let expect = View {
            binds: vec!["/usr".into()],
            etc: vec!["/etc/ssl".into()],
            links: vec![
                ("usr/bin".into(), "/bin".into()),
                ("/proc/mounts".into(), "/etc/mtab".into()),
            ],
            dirs: vec!["/run".into()],
        };
        assert_eq!(view, expect);
    }

    #[test]
    fn a_failing_contender_is_no_sample() {
        assert!(timed(&mut Command::new("/bin/true")).unwrap() > 0.0);
        assert!(timed(&mut Command::new("/bin/false")).is_err());
    }
}
