//! Runs the host's git with fixed settings, so that git starts no other program.
//!
//! git runs only in git directories whose configuration Belljar wrote; see [`mod@super::view`] and
//! [`mod@super::clone`]. Only `git config` reads the settings of a user's repository, and it starts no
//! program. As a second defence, this module overrides every setting that names a program.

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

/// Settings that override every git setting that starts a program, uses the network or hides files.
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
    // git may use repositories of other owners: the settings of the repository are overridden here.
    ("safe.directory", "*"),
];

/// The maximum output of one git command, in bytes. A few objects can describe billions of paths.
pub(super) const MAX_OUTPUT: u64 = 64 << 20;
/// The maximum memory of a git process on untrusted objects, in KiB.
const MAX_MEMORY: u32 = 4 << 20;
/// The shell command that limits the KiB of memory and the seconds of CPU time of a git process.
const LIMITED_EXEC: &str = r#"ulimit -v "$0" && ulimit -t 600 && exec "$@""#;

/// The git program of the host, with the environment variables that it inherits.
#[derive(Clone, Debug)]
pub(super) struct GitProgram {
    pub(super) path: PathBuf,
    inherited: Vec<(&'static str, OsString)>,
}

impl GitProgram {
    /// Finds git in the directories of `PATH`.
    pub(super) fn find(host: &HostEnv) -> anyhow::Result<Self> {
        let path = host.find_program("git");
        let path = path.context("cannot find `git` in PATH; install git, which `--repo` needs")?;
        let kept = ["PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR"];
        let kept =
            kept.into_iter().filter_map(|name| Some((name, host.variable(name)?.to_owned())));
        Ok(Self { path, inherited: kept.collect() })
    }

    /// Returns the directory for temporary files of all users.
    pub(super) fn temporary_dir(&self) -> PathBuf {
        let dir = self.inherited.iter().find(|(name, _)| *name == "TMPDIR");
        dir.map_or_else(|| PathBuf::from("/tmp"), |(_, dir)| PathBuf::from(dir))
    }
}

/// Returns the user and group id of the owner of `dir` if this process is root and the owner is not.
pub(super) fn foreign_owner(dir: &Path) -> anyhow::Result<Option<(u32, u32)>> {
    let meta =
        dir.metadata().with_context(|| format!("cannot read the owner of {}", dir.display()))?;
    let is_foreign = rustix::process::geteuid().is_root() && meta.uid() != 0;
    Ok(is_foreign.then(|| (meta.uid(), meta.gid())))
}

/// A git command line without its arguments: repository, directory, variables, settings and limits.
#[derive(Clone, Debug)]
pub(super) struct Git {
    program: GitProgram,
    git_dir: Option<PathBuf>,
    dir: PathBuf,
    vars: Vec<(&'static str, OsString)>,
    settings: Vec<(String, OsString)>,
    /// Whether git reads the global configuration of the user.
    user_config: bool,
    /// The maximum memory in KiB, if memory and CPU time are limited.
    limited: Option<u32>,
    /// The user and group id to run git as, if they differ from those of this process.
    user: Option<(u32, u32)>,
}

impl Git {
    /// Returns a git command that runs in a directory and searches for the repository from there.
    pub(super) fn in_dir(program: &GitProgram, dir: &Path) -> Self {
        Self {
            program: program.clone(),
            git_dir: None,
            dir: dir.to_owned(),
            vars: Vec::new(),
            settings: Vec::new(),
            user_config: false,
            limited: None,
            user: None,
        }
    }

    /// Returns a git command for the repository with the git directory `git_dir`.
    ///
    /// git runs in that directory, so that no file of a checkout is used as configuration.
    pub(super) fn at(program: &GitProgram, git_dir: &Path) -> Self {
        Self { git_dir: Some(git_dir.to_owned()), ..Self::in_dir(program, git_dir) }
    }

    /// Runs git in a checkout of the repository.
    pub(super) fn checkout(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.dir);
        self.var("GIT_WORK_TREE", dir)
    }

    /// Sets an environment variable for git.
    pub(super) fn var(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.vars.push((name, value.into()));
        self
    }

    /// Sets a git configuration key for this command.
    pub(super) fn setting(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// Lets git read the user's global configuration. Use this to look up settings only.
    pub(super) fn with_user_config(mut self) -> Self {
        self.user_config = true;
        self
    }

    /// Limits memory and CPU time of git, for untrusted objects.
    pub(super) fn limited(mut self) -> Self {
        self.limited = Some(MAX_MEMORY);
        self
    }

    /// Limits memory of git to half of that, for commands that hold the paths of hostile trees in memory.
    pub(super) fn limited_more(mut self) -> Self {
        self.limited = Some(MAX_MEMORY / 2);
        self
    }

    /// Runs git with another user id and group id, so that new files do not belong to root.
    pub(super) const fn run_as(mut self, user: (u32, u32)) -> Self {
        self.user = Some(user);
        self
    }

    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = if let Some(memory) = self.limited {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", LIMITED_EXEC, &memory.to_string()]).arg(&self.program.path);
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
        if !self.user_config {
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

    /// Runs git and returns its standard output. More than [`MAX_OUTPUT`] bytes are an error.
    pub(super) fn output<S: AsRef<OsStr>>(&self, args: &[S]) -> anyhow::Result<Vec<u8>> {
        self.output_with_input(args, &[], MAX_OUTPUT)
    }

    /// Runs git with `input` on its standard input and returns its standard output.
    ///
    /// More than `limit` bytes of output are an error.
    pub(super) fn output_with_input<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: &[u8],
        limit: u64,
    ) -> anyhow::Result<Vec<u8>> {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = GitProcess::start(command)?;
        let (stdin, stdout, stderr) = child.take_streams();
        let mut output = Vec::new();
        let stderr_text = std::thread::scope(|scope| -> anyhow::Result<String> {
            let stderr_text = scope.spawn(|| stderr_text(stderr));
            scope.spawn(|| {
                // A git process that closes its input early is judged by its exit status.
                stdin.map(|mut stdin| stdin.write_all(input).ok());
            });
            if let Some(stdout) = stdout {
                stdout
                    .take(limit + 1)
                    .read_to_end(&mut output)
                    .context("cannot read the output of git")?;
            }
            if output.len() as u64 > limit {
                child.kill();
            }
            Ok(stderr_text.join().unwrap_or_default())
        })?;
        let status = child.wait()?;
        if output.len() as u64 > limit {
            bail!(
                "the output of git {} exceeds the limit of {} MiB",
                subcommand(args),
                limit >> 20
            );
        }
        check_status(args, status, &stderr_text)?;
        Ok(output)
    }

    /// Runs git and returns its output as text without the final line break.
    pub(super) fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> anyhow::Result<String> {
        let text = String::from_utf8(self.output(args)?);
        let text =
            text.map_err(|_| anyhow!("the output of git {} is not valid UTF-8", subcommand(args)))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Runs git and returns its output as text; `None` if git fails or prints nothing.
    pub(super) fn query<S: AsRef<OsStr>>(&self, args: &[S]) -> Option<String> {
        self.line(args).ok().filter(|line| !line.is_empty())
    }

    /// Runs git and returns whether it succeeded.
    pub(super) fn succeeds<S: AsRef<OsStr>>(&self, args: &[S]) -> bool {
        self.output(args).is_ok()
    }

    /// Adds all objects of a pack file to the repository, or none of them if one is invalid.
    pub(super) fn import_pack(&self, pack: File, strict: bool, limit: u64) -> anyhow::Result<()> {
        let (args, limit) = (index_pack(strict), format!("--max-input-size={limit}"));
        let args: Vec<&str> = args.into_iter().chain([limit.as_str()]).collect();
        let mut command = self.command(&args);
        command.stdin(pack).stderr(Stdio::piped());
        let mut child = GitProcess::start(command)?;
        let stderr_text = stderr_text(child.take_streams().2);
        check_status(&args, child.wait()?, &stderr_text)
    }

    /// Copies the objects that `revisions` name to the repository `to`.
    ///
    /// A revision that starts with `^` excludes objects that `to` already has.
    pub(super) fn send_pack(&self, revisions: &[String], to: &Self) -> anyhow::Result<()> {
        let pack = ["pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q"];
        let mut command = self.command(&pack);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut from = GitProcess::start(command)?;
        let (stdin, stdout, stderr) = from.take_streams();
        let index = index_pack(false);
        let mut command = to.command(&index);
        command.stdin(stdout.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::piped());
        let mut into = GitProcess::start(command)?;
        let list = revisions.iter().map(|line| format!("{line}\n")).collect::<String>();
        let (packing, indexing) = std::thread::scope(|scope| {
            let packing = scope.spawn(|| stderr_text(stderr));
            let written = stdin.map(|mut stdin| stdin.write_all(list.as_bytes()));
            drop(written); // a git process that does not read its input reports why on its standard error
            let indexing = stderr_text(into.take_streams().2);
            (packing.join().unwrap_or_default(), indexing)
        });
        let (packed, indexed) = (from.wait()?, into.wait()?);
        check_status(&pack, packed, &packing)?;
        check_status(&index, indexed, &indexing)
    }
}

/// Returns the arguments of `git index-pack`. With `strict`, git refuses objects that harm a checkout.
///
/// Three harmless mistakes of old git versions are accepted.
fn index_pack(strict: bool) -> Vec<&'static str> {
    const STRICT: &str =
        "--strict=zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore";
    let mut args = vec!["index-pack", "--stdin", "--fix-thin"];
    if strict {
        args.extend([STRICT, "--threads=1"]); // each thread would use memory of its own
    }
    args
}

/// A git process that is killed and reaped when the value is dropped.
struct GitProcess(Option<Child>);

/// The standard streams of a git process.
type ChildStreams = (
    Option<std::process::ChildStdin>,
    Option<std::process::ChildStdout>,
    Option<std::process::ChildStderr>,
);

impl GitProcess {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        Ok(Self(Some(command.spawn().context("cannot start git")?)))
    }

    fn take_streams(&mut self) -> ChildStreams {
        self.0.as_mut().map_or((None, None, None), |child| {
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        })
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().ok(); // fails if the process has already exited
        }
    }

    fn wait(mut self) -> anyhow::Result<ExitStatus> {
        let mut child = self.0.take().context("cannot wait for git")?;
        child.wait().context("cannot wait for git")
    }
}

impl Drop for GitProcess {
    fn drop(&mut self) {
        self.kill();
        self.0.take().map(|mut child| child.wait().ok());
    }
}

/// Reads the standard error of a git process and returns the beginning; the rest is discarded.
fn stderr_text(from: Option<std::process::ChildStderr>) -> String {
    const MAX_STDERR: u64 = 2048;
    let Some(mut from) = from else { return String::new() };
    let mut text = Vec::new();
    from.by_ref().take(MAX_STDERR).read_to_end(&mut text).ok(); // a part of the text is enough
    std::io::copy(&mut from, &mut std::io::sink()).ok();
    summary(&text)
}

/// Shortens the error output of git to one line for an error message.
pub(super) fn summary(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("hint:") && !line.starts_with("warning:")
    });
    let lines: Vec<&str> = lines.map(|line| line.trim_start_matches("fatal: ")).take(4).collect();
    display::safe_line(lines.join("; "))
}

/// Returns an error with git's error output unless the exit status is a success.
fn check_status<S: AsRef<OsStr>>(
    args: &[S],
    status: ExitStatus,
    stderr_text: &str,
) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let why = if stderr_text.is_empty() { status.to_string() } else { stderr_text.to_owned() };
    Err(anyhow!("git {} failed: {why}", subcommand(args)))
}

/// Returns the first argument, which is the name of the git command.
fn subcommand<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.first().map(|arg| arg.as_ref().to_string_lossy().into_owned()).unwrap_or_default()
}
