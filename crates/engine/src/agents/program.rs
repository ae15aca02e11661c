//! Where an agent's program is on this machine, and what of the machine it needs to run in a box.
//!
//! A box has the programs of the system. One that was installed elsewhere is shown at its own path,
//! read-only: the directory that it was installed into, or the file alone where that directory is not
//! its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Component, Path, PathBuf};

use belljar_model::{Access, Mount};

use crate::host::{HostEnv, real_path};

/// A program, and what must be shown for it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct AgentProgram {
    /// With every link resolved.
    pub path: PathBuf,
    /// What it is outside of the system's directories.
    pub shown: Vec<PathBuf>,
    /// Directories in which it and its interpreter are found.
    pub search: Vec<PathBuf>,
    /// Where its file is shown as well, by the name that it is called by.
    pub placed: Option<PathBuf>,
}

/// What every box has.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store"];

/// Looks for a program where the operator's shell would.
pub fn find(host: &HostEnv, name: &str) -> Option<AgentProgram> {
    let home = host.user_home();
    let home = home.as_deref();
    let called = host.find_program(name)?;
    let path = real_path(&called)?;
    let mut found = AgentProgram { path: path.clone(), ..AgentProgram::default() };
    found.show(&path, home);
    if let Some(interpreter) = interpreter(host, &path) {
        let real = real_path(&interpreter)?;
        found.show(&real, home);
        // One in a virtual environment is a link: both ends must be there.
        found.show(&interpreter, home);
        found.search(&interpreter);
    }
    found.shown.sort();
    found.shown.dedup();
    let all = found.shown.clone();
    let is_within = |path: &PathBuf| all.iter().any(|it| it != path && path.starts_with(it));
    found.shown.retain(|path| !is_within(path));
    found.call(&called, home);
    Some(found)
}

impl AgentProgram {
    fn show(&mut self, path: &Path, home: Option<&Path>) {
        if !is_of_the_system(path) {
            self.shown.push(prefix(path, home));
        }
    }

    fn search(&mut self, program: &Path) {
        if let Some(dir) = program.parent().filter(|dir| !is_of_the_system(dir)) {
            self.search.push(dir.to_owned());
        }
    }

    /// Sees to it that the program is found in the box by the name that it has here.
    fn call(&mut self, called: &Path, home: Option<&Path>) {
        if is_of_the_system(called) {
            return;
        }
        let is_shown = |step: &PathBuf| self.shown.iter().any(|shown| step.starts_with(shown));
        let is_named = |step: &PathBuf| step.file_name() == called.file_name();
        if let Some(step) = steps(called).into_iter().find(|it| is_named(it) && is_shown(it)) {
            return self.search(&step);
        }
        self.search(called);
        let dir = called.parent().unwrap_or(called);
        let of_links = dir.file_name().is_some_and(|name| name == "bin" || name == ".bin");
        if of_links && !is_shared(dir, home) {
            self.shown.push(dir.to_owned());
        } else {
            self.placed = Some(called.to_owned());
        }
    }

    /// What to mount; a path that a mount cannot have is left out.
    pub fn mounts(&self) -> impl Iterator<Item = Mount> {
        let mount = |from: &PathBuf, to: &PathBuf| {
            Mount::new(from.clone(), to.clone(), Access::ReadOnly).ok()
        };
        let shown = self.shown.iter().filter_map(move |path| mount(path, path));
        shown.chain(self.placed.iter().filter_map(move |at| mount(&self.path, at)))
    }
}

/// Where a program is, and where each link in its place leads, with no link on the way there.
fn steps(called: &Path) -> Vec<PathBuf> {
    const MOST: usize = 16;
    let real = |path: &Path| Some(real_path(path.parent()?)?.join(path.file_name()?));
    let follow = |step: &PathBuf| real(&step.parent()?.join(step.read_link().ok()?));
    std::iter::successors(real(called), follow).take(MOST).collect()
}

fn is_of_the_system(path: &Path) -> bool {
    SYSTEM.iter().any(|tree| path.starts_with(tree))
}

/// The program that a script names in its first line.
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

/// The directory that a program was installed into, or its file if that directory holds other things.
fn prefix(path: &Path, home: Option<&Path>) -> PathBuf {
    let modules = |part: &Component<'_>| part.as_os_str() == "node_modules";
    let whole = if path.components().any(|part| modules(&part)) {
        // With what it depends on, which npm puts beside it.
        let mut upto: PathBuf = path.components().take_while(|part| !modules(part)).collect();
        upto.push("node_modules");
        Some(upto)
    } else {
        let dir = path.parent();
        let in_bin = dir.filter(|dir| dir.file_name().is_some_and(|name| name == "bin"));
        in_bin.and_then(Path::parent).map(Path::to_owned)
    };
    whole.filter(|dir| !is_shared(dir, home)).unwrap_or_else(|| path.to_owned())
}

/// Whether a directory holds more than one installation.
fn is_shared(dir: &Path, home: Option<&Path>) -> bool {
    let inner = [".", ".local", ".local/bin", "bin"];
    let homes = home.into_iter().flat_map(|home| inner.map(|inner| home.join(inner)));
    dir.components().count() < 3 || homes.into_iter().any(|it| it.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_behind_links_is_called_where_its_installation_is() {
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
            let mut found = AgentProgram { shown: vec![real.clone()], ..AgentProgram::default() };
            found.call(&top.join(called), None);
            assert_eq!(found.search, [real.join(".bin")], "{called}");
            assert_eq!((found.shown, found.placed), (vec![real.clone()], None), "{called}");
        }
    }

    #[test]
    fn what_is_shown_is_the_installation_and_never_a_home() {
        for (path, shown) in [
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
            let got = prefix(Path::new(path), Some(Path::new("/h/u")));
            assert_eq!(got, Path::new(shown), "{path}");
        }
    }
}
