//! The directories in which the measured tools run, and the file system view that all of them get.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::dist;
use crate::shell::{as_from_a_shell, read, shown, target_dir};

/// The mounts, links and directories that a box of Belljar has. All other tools are configured to show
/// the same, except the few small files that a box creates (`passwd`, `hosts`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Read-only mounts of host files and directories outside of `/etc`, such as `/usr`.
    pub(super) binds: Vec<PathBuf>,
    /// Read-only mounts of host files and directories in `/etc`.
    pub(super) etc: Vec<PathBuf>,
    /// Targets and paths of symbolic links, such as `usr/bin` at `/bin`.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Empty directories in the root directory.
    pub(super) dirs: Vec<PathBuf>,
}

/// The measured binary and the directories of one benchmark run.
#[derive(Debug)]
pub(super) struct Lab {
    pub(super) belljar: PathBuf,
    /// The state directory of Belljar.
    pub(super) state: PathBuf,
    pub(super) workspace: PathBuf,
    /// The directory in which npm installs peers. It also has their home directory.
    pub(super) peers: PathBuf,
    /// Configuration and temporary files of peers.
    pub(super) scratch: PathBuf,
    pub(super) view: View,
    counter: AtomicU64,
}

impl Lab {
    /// Builds the release binary unless a binary is given, creates empty directories, and reads the
    /// file system view from a box.
    pub(super) fn new(binary: Option<PathBuf>) -> Result<Self> {
        Self::of(&binary_or_build(binary)?, "bench-work")
    }

    /// Creates the directories for an existing binary, below the target directory under this name.
    pub(super) fn of(belljar: &Path, directory: &str) -> Result<Self> {
        let belljar = std::path::absolute(belljar)?;
        let base = target_dir()?.join(directory);
        if base.exists() {
            std::fs::remove_dir_all(&base)
                .with_context(|| format!("cannot remove {}", base.display()))?;
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
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        for number in 0..20 {
            std::fs::write(
                lab.workspace.join(format!("file-{number}.txt")),
                "some text\n".repeat(40),
            )?;
        }
        let output_of = |payload: &[&str]| {
            read(&mut lab.box_for(payload)).context("cannot read the file system view of a box")
        };
        lab.view = view(
            &output_of(&["/bin/cat", "/proc/self/mountinfo"])?,
            &output_of(&["/bin/ls", "-A", "/"])?,
            &output_of(&["/bin/ls", "-A", "/etc"])?,
            |path| std::fs::read_link(path).ok(),
        );
        Ok(lab)
    }

    /// Returns a command that runs a program in a box of Belljar without a network.
    pub(super) fn box_for(&self, payload: &[&str]) -> Command {
        self.box_with(&["--net", "none"], payload)
    }

    /// Returns a command that runs a program in a box of Belljar with these options.
    pub(super) fn box_with(&self, options: &[&str], payload: &[&str]) -> Command {
        let mut command = as_from_a_shell(&self.belljar);
        command.arg("run").args(options).arg("--").args(payload);
        command.env("BELLJAR_HOME", &self.state).current_dir(&self.workspace);
        command
    }

    /// Returns a number that was not returned before.
    pub(super) fn unique_number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns the given binary, or builds the release binary.
pub(super) fn binary_or_build(binary: Option<PathBuf>) -> Result<PathBuf> {
    binary.map_or_else(dist::release_binary, Ok)
}

/// Returns the directory of the npm packages of peers, which is kept between runs.
pub(super) fn peers_dir() -> Result<PathBuf> {
    Ok(target_dir()?.join("bench-peers"))
}

/// Returns the view of a box with this mount table and these entries in `/` and `/etc`.
fn view(mounts: &str, top: &str, etc: &str, link: impl Fn(&Path) -> Option<PathBuf>) -> View {
    // Each tool creates these directories in its own way.
    let excluded = ["/proc", "/dev", "/tmp", "/home", "/workspace", "/etc"].map(Path::new);
    let bound: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            let (path, options) = (fields.next()?, fields.next()?);
            options.split(',').any(|option| option == "ro").then(|| PathBuf::from(path))
        })
        .filter(|path| !["/proc", "/dev"].iter().any(|dir| path.starts_with(dir)))
        .filter(|path| path != Path::new("/"))
        .collect();
    let mut view = View::default();
    let names = top.lines().map(|name| Path::new("/").join(name));
    for path in names.chain(etc.lines().map(|name| Path::new("/etc").join(name))) {
        let is_top = path.parent() == Some(Path::new("/"));
        if bound.contains(&path) || excluded.contains(&path.as_path()) {
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

/// Runs a command without input and output, and returns the duration in milliseconds.
pub(super) fn timed(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
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
    fn view_has_the_read_only_mounts_links_and_directories_of_a_box() {
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
    fn timed_fails_for_a_command_with_a_nonzero_exit_status() {
        assert!(timed(&mut Command::new("/bin/true")).unwrap() > 0.0);
        assert!(timed(&mut Command::new("/bin/false")).is_err());
    }
}
