//! Starts other programs and parses command-line options. Errors name the program and its exit status.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};

/// Returns the root directory of the repository that this program was built from.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is one level below the root")
}

/// Returns a command for the cargo that started this program, so that the pinned toolchain is used.
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

/// Makes all later cargo commands embed this worker instead of building a static one.
pub(crate) fn embed_worker(file: PathBuf) {
    WORKER.get_or_init(|| file);
}

/// Returns a command for a program on `PATH`, with the root of the repository as working directory.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Returns a command without the variables that `cargo run` adds to the environment. One of them,
/// `LD_LIBRARY_PATH`, makes every dynamically linked program start slower.
pub(crate) fn as_from_a_shell(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env_clear();
    for name in ["PATH", "HOME", "USER", "LANG", "TERM"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// Runs a command with inherited stdin, stdout and stderr. Fails unless its exit status is 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout; stderr is inherited. Fails unless its exit status is 0.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", shown(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("cannot read the output of `{}`", shown(command)))
}

/// Runs a command and returns its stdout if its exit status is 0. Its stderr is discarded.
pub(crate) fn try_read(command: &mut Command) -> Option<String> {
    let output =
        command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Runs a command, discards its output, and returns whether its exit status is 0.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Finds an executable file on `PATH`, in `/usr/sbin` or in `/sbin`.
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

/// Returns the effective user id, which is the owner of `/proc/self`.
pub(crate) fn uid() -> Result<u32> {
    Ok(std::fs::metadata("/proc/self").context("cannot read /proc/self")?.uid())
}

/// Returns the target directory of cargo.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let text = read(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).context("cannot parse the output of cargo metadata")?;
    let dir = metadata.get("target_directory").and_then(|dir| dir.as_str());
    Ok(dir.context("cargo metadata has no target directory")?.into())
}

/// Returns a command as text for messages: the file name of the program and its arguments.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let parts = std::iter::once(program).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The command-line arguments of an xtask command. Each method removes the arguments that it parses.
#[derive(Debug)]
pub(crate) struct Args(Vec<String>);

impl Args {
    /// Returns the arguments, or prints `help` and returns `None` if they contain `--help` or `-h`.
    pub(crate) fn new(args: &[String], help: &str) -> Option<Self> {
        if args.iter().any(|arg| arg == "--help" || arg == "-h") {
            print!("{help}");
            return None;
        }
        Some(Self(args.to_vec()))
    }

    /// Removes a flag and returns whether it was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|arg| arg != name);
        self.0.len() != before
    }

    /// Removes the option `name VALUE` or `name=VALUE` and returns its value.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>> {
        let Some(index) = self.0.iter().position(|arg| {
            arg == name || arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
        }) else {
            return Ok(None);
        };
        let arg = self.0.remove(index);
        if let Some((_, value)) = arg.split_once('=') {
            return Ok(Some(value.to_owned()));
        }
        if index >= self.0.len() {
            bail!("`{name}` needs a value");
        }
        Ok(Some(self.0.remove(index)))
    }

    /// Returns the remaining arguments. Fails if one of them is an option.
    pub(crate) fn positionals(self) -> Result<Vec<String>> {
        if let Some(unknown) = self.0.iter().find(|arg| arg.starts_with('-')) {
            bail!("unknown option `{unknown}`; use --help for a list");
        }
        Ok(self.0)
    }

    /// Returns the only remaining argument, if any. Fails if there are several or one is an option.
    pub(crate) fn positional(self) -> Result<Option<String>> {
        let mut args = self.positionals()?.into_iter();
        let first = args.next();
        if let Some(extra) = args.next() {
            bail!("unexpected argument `{extra}`; use --help for the usage");
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Args {
        Args(args.iter().map(|&arg| arg.to_owned()).collect())
    }

    #[test]
    fn command_line_options_are_accepted_in_any_order_with_a_space_or_an_equals_sign() {
        let mut given = args(&["name", "--seconds", "5", "--quick", "--out=x=y"]);
        assert_eq!(given.value("--seconds").unwrap().as_deref(), Some("5"));
        assert_eq!(given.value("--out").unwrap().as_deref(), Some("x=y"));
        assert!(given.flag("--quick"));
        assert!(!given.flag("--quick"));
        assert_eq!(given.positional().unwrap().as_deref(), Some("name"));
    }

    #[test]
    fn command_line_rejects_unknown_options_missing_values_and_extra_arguments() {
        assert!(args(&["--seconds"]).value("--seconds").is_err());
        assert!(args(&["--nonsense"]).positionals().is_err());
        assert!(args(&["one", "two"]).positional().is_err());
    }

    #[test]
    fn error_of_a_failed_command_has_the_command_and_its_exit_status() {
        let error = run(program("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed: exit status: 3");
        let error = read(&mut program("no-such-program")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program`");
    }

    #[test]
    fn which_finds_executables_on_path() {
        assert!(which("sh").is_some());
        assert!(which("no-such-program").is_none());
    }
}
