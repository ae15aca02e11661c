//! Replaces the worker process with another program, so that the exit status is the program's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use belljar_wire::Program;

/// Executes a program in place of the worker; returns an exit status and message only on failure.
/// Returns only on failure.
///
/// The exit status is that of a shell: 127 for a missing program, 126 for one that cannot run.
pub(super) fn exec(program: &Program) -> (i32, String) {
    let Some((name, arguments)) = program.argv.split_first() else {
        return (126, "the command line is empty".to_owned());
    };
    let error = match prepare(program) {
        Ok(stdin) => run(program, name, arguments, stdin),
        Err(message) => return (126, message),
    };
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    (code, format!("{name}: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "the job of this process is to run the program")]
fn run(program: &Program, name: &str, arguments: &[String], stdin: Stdio) -> io::Error {
    let mut command = Command::new(name);
    command.args(arguments).envs(program.env.iter().cloned()).stdin(stdin);
    if let Some(workdir) = &program.workdir {
        command.current_dir(workdir);
    }
    command.exec()
}

fn prepare(program: &Program) -> Result<Stdio, String> {
    for (path, content) in &program.files {
        write(Path::new(path), content).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    match &program.stdin {
        None => Ok(Stdio::null()),
        Some(text) => input(text)
            .map(Stdio::from)
            .map_err(|error| format!("cannot prepare its input: {error}")),
    }
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())
}

/// Returns an unnamed file with the standard input of the program.
fn input(text: &str) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
