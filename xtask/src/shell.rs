//! Starting other programs, with errors that say which one failed and how.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};

/// The top of the tree this binary was built from.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the root")
}

/// The cargo that started us, so that the pinned toolchain stays the pinned toolchain.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    if let Some(worker) = WORKER.get() {
        command.env("BELLJAR_WORKER", worker);
    }
    command
}

static WORKER: OnceLock<PathBuf> = OnceLock::new();

/// Has every cargo from here on embed this worker, instead of building a static one.
pub(crate) fn embed_worker(file: PathBuf) {
    WORKER.get_or_init(|| file);
}

/// A program found on `PATH`, started at the top of the tree.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// A program as a user's shell would start it: nothing of what `cargo run` adds to the environment.
/// Above all no `LD_LIBRARY_PATH`, which makes every dynamic program start slower.
pub(crate) fn as_from_a_shell(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env_clear();
    for kept in ["PATH", "HOME", "USER", "LANG", "TERM"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    command
}

/// Runs to the end with our own terminal; anything but success is an error that shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to stdout; stderr goes to our own.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", shown(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("read `{}`", shown(command)))
}

/// What it wrote to stdout if it ran and succeeded; what it complains about is thrown away.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output =
        command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Whether it ran and succeeded. What it says is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Where `name` would be found on `PATH` and the directories that a plain user's `PATH` often lacks.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| {
            file.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// The effective user id, as the kernel shows it in the owner of `/proc/self`.
pub(crate) fn uid() -> Result<u32> {
    Ok(std::fs::metadata("/proc/self").context("read /proc/self")?.uid())
}

/// Where cargo puts what it builds here.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let text = read(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text).context("cargo metadata")?;
    let dir = metadata.get("target_directory").and_then(|dir| dir.as_str());
    Ok(dir.context("cargo metadata names no target directory")?.into())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The options a command was given, taken out of `args` one by one; what is left over is an error.
#[derive(Debug)]
pub(crate) struct Args(Vec<String>);

impl Args {
    /// Prints `help` and returns nothing when that was asked for.
    pub(crate) fn new(args: &[String], help: &str) -> Option<Self> {
        if args.iter().any(|arg| arg == "--help" || arg == "-h") {
            print!("{help}");
            return None;
        }
        Some(Self(args.to_vec()))
    }

    /// Whether the flag `name` was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|arg| arg != name);
        self.0.len() != before
    }

    /// The value of `name VALUE` or `name=VALUE`.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>> {
        let Some(at) = self.0.iter().position(|arg| {
            arg == name || arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
        }) else {
            return Ok(None);
        };
        let arg = self.0.remove(at);
        if let Some((_, value)) = arg.split_once('=') {
            return Ok(Some(value.to_owned()));
        }
        if at >= self.0.len() {
            bail!("`{name}` needs a value");
        }
        Ok(Some(self.0.remove(at)))
    }

    /// What is not an option, in order.
    pub(crate) fn words(self) -> Result<Vec<String>> {
        if let Some(unknown) = self.0.iter().find(|arg| arg.starts_with('-')) {
            bail!("no option `{unknown}`; --help lists them");
        }
        Ok(self.0)
    }

    /// At most one word.
    pub(crate) fn word(self) -> Result<Option<String>> {
        let mut words = self.words()?.into_iter();
        let first = words.next();
        if let Some(extra) = words.next() {
            bail!("did not expect `{extra}`");
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn options_are_taken_in_any_order_and_both_spellings() {
        let mut given = args(&["name", "--seconds", "5", "--quick", "--out=x=y"]);
        assert_eq!(given.value("--seconds").unwrap().as_deref(), Some("5"));
        assert_eq!(given.value("--out").unwrap().as_deref(), Some("x=y"));
        assert!(given.flag("--quick"));
        assert!(!given.flag("--quick"));
        assert_eq!(given.word().unwrap().as_deref(), Some("name"));
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        assert!(args(&["--seconds"]).value("--seconds").is_err());
        assert!(args(&["--nonsense"]).words().is_err());
        assert!(args(&["one", "two"]).word().is_err());
    }

    #[test]
    fn a_failing_program_is_named_with_its_status() {
        let error = run(program("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed: exit status: 3");
        let error = read(&mut program("no-such-program")).unwrap_err();
        assert_eq!(error.to_string(), "start `no-such-program`");
    }

    #[test]
    fn programs_are_found_by_name_only_when_they_can_run() {
        assert!(which("sh").is_some());
        assert!(which("no-such-program").is_none());
    }
}
