//! Finds an agent's program on the host, and the host directories that it needs to run in a box.
//!
//! Every box has the system directories. A program outside of them is mounted read-only at its own path:
//! its installation directory, or only its file if the directory also contains other programs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Component, Path, PathBuf};

use belljar_model::{Access, Mount};
use serde::{Deserialize, Serialize};

use crate::host::{HostEnv, real_path};

/// The program of an agent on the host, and the paths to mount for it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgram {
    /// The path of the program, with all symbolic links resolved.
    pub path: PathBuf,
    /// The paths outside of the system directories that the box needs.
    pub mounted: Vec<PathBuf>,
    /// The directories of the program and its interpreter, for the variable `PATH`.
    pub search_dirs: Vec<PathBuf>,
    /// A second path at which the program's file is mounted, with the name that users call it by.
    pub alias: Option<PathBuf>,
}

/// The host directories that every box has.
const SYSTEM_DIRS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"];

/// Finds a program in the directories of the operator's `PATH`.
pub fn find(host: &HostEnv, name: &str) -> Option<AgentProgram> {
    let home = host.user_home();
    let home = home.as_deref();
    let called = host.find_program(name)?;
    let path = real_path(&called)?;
    let mut found = AgentProgram { path: path.clone(), ..AgentProgram::default() };
    found.mount(&path, home);
    if let Some(interpreter) = interpreter(host, &path) {
        let real = real_path(&interpreter)?;
        found.mount(&real, home);
        // The interpreter of a virtual environment is a link: the box needs the link and its target.
        found.mount(&interpreter, home);
        found.add_search_dir(&interpreter);
    }
    found.mounted.sort();
    found.mounted.dedup();
    let all = found.mounted.clone();
    let is_within = |path: &PathBuf| all.iter().any(|dir| dir != path && path.starts_with(dir));
    found.mounted.retain(|path| !is_within(path));
    found.make_callable(&called, home);
    Some(found)
}

impl AgentProgram {
    fn mount(&mut self, path: &Path, home: Option<&Path>) {
        if !is_in_system_dir(path) {
            self.mounted.push(installation(path, home));
        }
    }

    fn add_search_dir(&mut self, program: &Path) {
        if let Some(dir) = program.parent().filter(|dir| !is_in_system_dir(dir)) {
            self.search_dirs.push(dir.to_owned());
        }
    }

    /// Makes the program available in the box under the name that it has on the host.
    fn make_callable(&mut self, called: &Path, home: Option<&Path>) {
        if is_in_system_dir(called) {
            return;
        }
        let is_mounted = |step: &PathBuf| self.mounted.iter().any(|dir| step.starts_with(dir));
        let has_name = |step: &PathBuf| step.file_name() == called.file_name();
        let steps = link_steps(called);
        if let Some(step) = steps.into_iter().find(|step| has_name(step) && is_mounted(step)) {
            return self.add_search_dir(&step);
        }
        self.add_search_dir(called);
        let dir = called.parent().unwrap_or(called);
        let is_bin = dir.file_name().is_some_and(|name| name == "bin" || name == ".bin");
        if is_bin && !is_shared(dir, home) {
            self.mounted.push(dir.to_owned());
        } else {
            self.alias = Some(called.to_owned());
        }
    }

    /// Returns the read-only mounts for the program. Skips paths that are not valid for a mount.
    pub fn mounts(&self) -> impl Iterator<Item = Mount> {
        let mount = |from: &PathBuf, to: &PathBuf| {
            Mount::new(from.clone(), to.clone(), Access::ReadOnly).ok()
        };
        let mounted = self.mounted.iter().filter_map(move |path| mount(path, path));
        mounted.chain(self.alias.iter().filter_map(move |alias| mount(&self.path, alias)))
    }
}

/// Returns the path of a program and the target of each symbolic link that leads to its file.
///
/// The parent directory of each returned path has all its links resolved.
fn link_steps(called: &Path) -> Vec<PathBuf> {
    const MAX_LINKS: usize = 16;
    let real = |path: &Path| Some(real_path(path.parent()?)?.join(path.file_name()?));
    let follow = |step: &PathBuf| real(&step.parent()?.join(step.read_link().ok()?));
    std::iter::successors(real(called), follow).take(MAX_LINKS).collect()
}

fn is_in_system_dir(path: &Path) -> bool {
    SYSTEM_DIRS.iter().any(|dir| path.starts_with(dir))
}

/// Returns the interpreter that a script names in its `#!` line.
fn interpreter(host: &HostEnv, path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    BufReader::new(file).take(256).read_until(b'\n', &mut line).ok()?;
    let line = std::str::from_utf8(&line).ok()?.trim_end().strip_prefix("#!")?;
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if Path::new(program).file_name()? != "env" {
        return Some(PathBuf::from(program));
    }
    host.find_program(words.find(|word| !word.starts_with('-') && !word.contains('='))?)
}

/// Returns the installation directory of a program, or its file if the directory has other contents.
fn installation(path: &Path, home: Option<&Path>) -> PathBuf {
    let modules = |part: &Component<'_>| part.as_os_str() == "node_modules";
    let whole = if path.components().any(|part| modules(&part)) {
        // The whole `node_modules`, because npm installs the dependencies of the program next to it.
        let mut dir: PathBuf = path.components().take_while(|part| !modules(part)).collect();
        dir.push("node_modules");
        Some(dir)
    } else {
        let dir = path.parent();
        let in_bin = dir.filter(|dir| dir.file_name().is_some_and(|name| name == "bin"));
        in_bin.and_then(Path::parent).map(Path::to_owned)
    };
    whole.filter(|dir| !is_shared(dir, home)).unwrap_or_else(|| path.to_owned())
}

/// Returns whether a directory can contain more than one installation.
fn is_shared(dir: &Path, home: Option<&Path>) -> bool {
    let inner = [".", ".local", ".local/bin", "bin"];
    let homes = home.into_iter().flat_map(|home| inner.map(|inner| home.join(inner)));
    dir.components().count() < 3 || homes.into_iter().any(|path| path.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_program_behind_links_is_found_in_its_installation_directory() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let top = real_path(dir.path()).unwrap();
        let real = top.join("real/node_modules");
        std::fs::create_dir_all(real.join(".bin")).unwrap();
        std::fs::create_dir(real.join("agent")).unwrap();
        std::fs::write(real.join("agent/cli.js"), "").unwrap();
        symlink("../agent/cli.js", real.join(".bin/agent")).unwrap();
        symlink(top.join("real"), top.join("linked")).unwrap();
        std::fs::create_dir(top.join("bin")).unwrap();
        symlink(top.join("linked/node_modules/.bin/agent"), top.join("bin/agent")).unwrap();
        for called in
            ["linked/node_modules/.bin/agent", "bin/agent", "real/node_modules/.bin/agent"]
        {
            let mut found = AgentProgram { mounted: vec![real.clone()], ..AgentProgram::default() };
            found.make_callable(&top.join(called), None);
            assert_eq!(found.search_dirs, [real.join(".bin")], "{called}");
            assert_eq!((found.mounted, found.alias), (vec![real.clone()], None), "{called}");
        }
    }

    #[test]
    fn installation_is_never_a_home_directory_or_a_shared_directory() {
        for (path, expected) in [
            (
                "/h/u/.npm-global/lib/node_modules/@x/y/bin/y.js",
                "/h/u/.npm-global/lib/node_modules",
            ),
            ("/h/u/.nvm/versions/node/v22.1.0/bin/node", "/h/u/.nvm/versions/node/v22.1.0"),
            ("/h/u/.local/share/pipx/venvs/aider/bin/aider", "/h/u/.local/share/pipx/venvs/aider"),
            ("/h/u/.local/share/claude/versions/2.1.3", "/h/u/.local/share/claude/versions/2.1.3"),
            ("/h/u/.local/bin/tool", "/h/u/.local/bin/tool"),
            ("/h/u/bin/tool", "/h/u/bin/tool"),
            ("/opt/tool/bin/tool", "/opt/tool"),
            ("/opt/bin/tool", "/opt/bin/tool"),
        ] {
            let got = installation(Path::new(path), Some(Path::new("/h/u")));
            assert_eq!(got, Path::new(expected), "{path}");
        }
    }
}
