//! The host's git, told to start nothing and to believe no configuration but ours.
//!
//! The user's own settings are still read where git insists on it (the format of a repository), so
//! everything in them that names a program is overruled. Commands that would obey filters or external
//! diffs are not used on a repository's own directory at all, see [`mod@super::clone`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::host::HostEnv;
use anyhow::{Context as _, anyhow, bail};
use belljar_model::display;

/// Overrules all that starts a program, goes to the network, or hides something.
const SETTINGS: [(&str, &str); 22] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.sshCommand", "false"),
    ("core.askPass", "false"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.alternateRefsCommand", "false"),
    ("core.quotePath", "true"),
    ("core.bigFileThreshold", "64m"), // larger ones are streamed, and binary to a diff
    ("core.packedGitWindowSize", "16m"),
    ("core.packedGitLimit", "256m"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("commit.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
    // Whose a repository is matters to whoever believes its settings.
    ("safe.directory", "*"),
];

/// What a list that we asked for may be long; a tree of a few objects can have billions of paths.
pub(super) const LIST: u64 = 64 << 20;
/// What one of our git processes may use on objects of a stranger: KiB of memory, seconds.
const BOUNDS: &str = r#"ulimit -v 4194304 && ulimit -t 600 && exec "$0" "$@""#;

/// The git of this machine, with the variables that it inherits.
#[derive(Clone, Debug)]
pub(super) struct GitProgram {
    pub(super) path: PathBuf,
    inherited: Vec<(&'static str, OsString)>,
}

impl GitProgram {
    /// The first git on the search path.
    pub(super) fn find(host: &HostEnv) -> anyhow::Result<Self> {
        let path = host.find_program("git");
        let path = path.context("`git` is not installed (not in PATH), and `--repo` needs it")?;
        let kept = ["PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR"];
        let kept =
            kept.into_iter().filter_map(|name| Some((name, host.variable(name)?.to_owned())));
        Ok(Self { path, inherited: kept.collect() })
    }
}

/// How git is run.
#[derive(Clone, Debug)]
pub(super) struct Git {
    program: GitProgram,
    git_dir: Option<PathBuf>,
    dir: PathBuf,
    vars: Vec<(&'static str, OsString)>,
    settings: Vec<(String, OsString)>,
    own_config: bool,
    bounded: bool,
    user: Option<(u32, u32)>,
}

impl Git {
    /// Git without a repository, in a directory.
    pub(super) fn in_dir(program: &GitProgram, dir: &Path) -> Self {
        Self {
            program: program.clone(),
            git_dir: None,
            dir: dir.to_owned(),
            vars: Vec::new(),
            settings: Vec::new(),
            own_config: false,
            bounded: false,
            user: None,
        }
    }

    pub(super) const fn program(&self) -> &GitProgram {
        &self.program
    }

    /// Git on a repository, by its own directory. That is also where it stands, so that no file of a
    /// checkout is taken for one of its settings.
    pub(super) fn at(program: &GitProgram, git_dir: &Path) -> Self {
        Self { git_dir: Some(git_dir.to_owned()), ..Self::in_dir(program, git_dir) }
    }

    /// Stands in a checkout of the repository.
    pub(super) fn checkout(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.dir);
        self.var("GIT_WORK_TREE", dir)
    }

    pub(super) fn var(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.vars.push((name, value.into()));
        self
    }

    pub(super) fn setting(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// With the configuration of the user who runs us: only to look something up in it.
    pub(super) fn with_own_config(mut self) -> Self {
        self.own_config = true;
        self
    }

    /// With limits, for objects that a stranger made.
    pub(super) fn bounded(mut self) -> Self {
        self.bounded = true;
        self
    }

    /// Run as the owner of a directory, if we are root and it is not root's: what is written there must
    /// not become ours.
    pub(super) fn owned_by(mut self, dir: &Path) -> anyhow::Result<Self> {
        let meta = dir.metadata().with_context(|| format!("look at {}", dir.display()))?;
        let foreign = rustix::process::geteuid().is_root() && meta.uid() != 0;
        self.user = foreign.then(|| (meta.uid(), meta.gid()));
        Ok(self)
    }

    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = if self.bounded {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", BOUNDS]).arg(&self.program.path);
            shell
        } else {
            Command::new(&self.program.path)
        };
        command.env_clear().current_dir(&self.dir).args(args);
        command.envs(self.program.inherited.iter().map(|(name, value)| (name, value)));
        command.envs([
            ("LC_ALL", "C.UTF-8"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_LFS_SKIP_SMUDGE", "1"),
        ]);
        if !self.own_config {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        }
        let fixed = SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), value.into()));
        let mut count = 0;
        for (key, value) in fixed.chain(self.settings.iter().cloned()) {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command.envs(self.git_dir.iter().map(|dir| ("GIT_DIR", dir)));
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What it says, up to a length; more is an error.
    pub(super) fn bytes<S: AsRef<OsStr>>(&self, args: &[S]) -> anyhow::Result<Vec<u8>> {
        self.answer(args, &[], LIST)
    }

    /// The same, for something that it is told on its input.
    pub(super) fn answer<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: &[u8],
        limit: u64,
    ) -> anyhow::Result<Vec<u8>> {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running::start(command)?;
        let (stdin, stdout, stderr) = child.ends();
        let mut said = Vec::new();
        let complaint = std::thread::scope(|scope| -> anyhow::Result<String> {
            let complaint = scope.spawn(|| complaint(stderr));
            scope.spawn(|| {
                // One that has heard enough is judged by what it says.
                stdin.map(|mut stdin| stdin.write_all(input).ok());
            });
            if let Some(stdout) = stdout {
                stdout.take(limit + 1).read_to_end(&mut said).context("hear git out")?;
            }
            if said.len() as u64 > limit {
                child.kill();
            }
            Ok(complaint.join().unwrap_or_default())
        })?;
        let status = child.wait()?;
        if said.len() as u64 > limit {
            bail!("git {} says more than {} MiB", first(args), limit >> 20);
        }
        judge(args, status, &complaint)?;
        Ok(said)
    }

    /// One line of an answer.
    pub(super) fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> anyhow::Result<String> {
        let said = String::from_utf8(self.bytes(args)?);
        let said = said.map_err(|_| anyhow!("git {} says what is no text", first(args)))?;
        Ok(said.trim_end_matches('\n').to_owned())
    }

    /// A line, if there is an answer.
    pub(super) fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Option<String> {
        self.line(args).ok().filter(|line| !line.is_empty())
    }

    /// Only whether it agrees.
    pub(super) fn agrees<S: AsRef<OsStr>>(&self, args: &[S]) -> bool {
        self.bytes(args).is_ok()
    }

    /// Takes a pack from a file into the repository, whole and sound, or not at all.
    pub(super) fn take_pack(&self, pack: File, strict: bool, limit: u64) -> anyhow::Result<()> {
        let (args, limit) = (index_pack(strict), format!("--max-input-size={limit}"));
        let args: Vec<&str> = args.into_iter().chain([limit.as_str()]).collect();
        let mut command = self.command(&args);
        command.stdin(pack).stderr(Stdio::piped());
        let mut child = Running::start(command)?;
        let complaint = complaint(child.ends().2);
        judge(&args, child.wait()?, &complaint)
    }

    /// Copies what `revisions` name (with `^` for what is there already) from here to `to`.
    pub(super) fn send_pack(&self, revisions: &[String], to: &Self) -> anyhow::Result<()> {
        let pack = ["pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q"];
        let mut command = self.command(&pack);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut from = Running::start(command)?;
        let (stdin, stdout, stderr) = from.ends();
        let index = index_pack(false);
        let mut command = to.command(&index);
        command.stdin(stdout.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::piped());
        let mut into = Running::start(command)?;
        let list = revisions.iter().map(|line| format!("{line}\n")).collect::<String>();
        let (packing, indexing) = std::thread::scope(|scope| {
            let packing = scope.spawn(|| complaint(stderr));
            let written = stdin.map(|mut stdin| stdin.write_all(list.as_bytes()));
            drop(written); // one that does not listen says why
            let indexing = complaint(into.ends().2);
            (packing.join().unwrap_or_default(), indexing)
        });
        let (packed, indexed) = (from.wait()?, into.wait()?);
        judge(&pack, packed, &packing)?;
        judge(&index, indexed, &indexing)
    }
}

/// Objects are checked for what harms a checkout (`--strict`), but for old mistakes that do not.
fn index_pack(strict: bool) -> Vec<&'static str> {
    const STRICT: &str =
        "--strict=zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore";
    let mut args = vec!["index-pack", "--stdin", "--fix-thin"];
    if strict {
        args.extend([STRICT, "--threads=1"]); // each thread would have memory of its own
    }
    args
}

/// A process that does not outlive the interest in it.
struct Running(Option<Child>);

type Ends = (
    Option<std::process::ChildStdin>,
    Option<std::process::ChildStdout>,
    Option<std::process::ChildStderr>,
);

impl Running {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        Ok(Self(Some(command.spawn().context("start git")?)))
    }

    fn ends(&mut self) -> Ends {
        self.0.as_mut().map_or((None, None, None), |child| {
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        })
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().ok(); // or it has ended by itself
        }
    }

    fn wait(mut self) -> anyhow::Result<ExitStatus> {
        let mut child = self.0.take().context("wait for git")?;
        child.wait().context("wait for git")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        self.0.take().map(|mut child| child.wait().ok());
    }
}

/// The beginning of what a process complains about; the rest is read and forgotten.
fn complaint(from: Option<std::process::ChildStderr>) -> String {
    const ENOUGH: u64 = 2048;
    let Some(mut from) = from else { return String::new() };
    let mut text = Vec::new();
    from.by_ref().take(ENOUGH).read_to_end(&mut text).ok(); // what came is enough
    std::io::copy(&mut from, &mut std::io::sink()).ok();
    said(&text)
}

/// What a git said, for a sentence of ours.
pub(super) fn said(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("hint:") && !line.starts_with("warning:")
    });
    let lines: Vec<&str> = lines.map(|line| line.trim_start_matches("fatal: ")).take(4).collect();
    display::safe_line(lines.join("; "))
}

fn judge<S: AsRef<OsStr>>(args: &[S], status: ExitStatus, complaint: &str) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let why = if complaint.is_empty() { status.to_string() } else { complaint.to_owned() };
    Err(anyhow!("git {}: {why}", first(args)))
}

fn first<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.first().map(|arg| arg.as_ref().to_string_lossy().into_owned()).unwrap_or_default()
}
