//! Becomes another program: the same process, so that its end is the program's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use belljar_wire::Program;

/// Does not come back when it succeeds. The number is what a shell says: 127 for a program that is not
/// there, 126 for one that cannot be run.
pub(super) fn become_it(program: &Program) -> (i32, String) {
    let Some((name, arguments)) = program.argv.split_first() else {
        return (126, "there is no program to run".to_owned());
    };
    let error = match prepare(program) {
        Ok(stdin) => run(program, name, arguments, stdin),
        Err(message) => return (126, message),
    };
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    (code, format!("{name}: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "this is what the job is, inside its box")]
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
        Some(text) => input(text).map(Stdio::from).map_err(|error| format!("its input: {error}")),
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

/// A file that has no name.
fn input(text: &str) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
