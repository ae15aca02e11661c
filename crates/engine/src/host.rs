//! The environment of the user and the host, as the embedding program passes it to the engine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::{EngineError, invalid};

/// The environment variable that names the state directory.
pub const HOME_VARIABLE: &str = "BELLJAR_HOME";

/// The environment of the embedding program.
#[derive(Clone, Debug, Default)]
pub struct HostEnv {
    /// All environment variables. A template names the variables that a box inherits.
    pub variables: BTreeMap<OsString, OsString>,
    /// The path of the running program. No box can write to it.
    pub own_program: PathBuf,
    /// The program that the engine starts for its own processes, such as the broker.
    pub roles: RoleProgram,
}

/// The program that the engine starts for its own processes, such as the broker.
///
/// The `main` function of this program must call `Role::parse` first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RoleProgram {
    /// The running program.
    #[default]
    SelfExe,
    /// Another program, for an embedding program that does not handle roles itself.
    Path(PathBuf),
}

impl HostEnv {
    pub fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        own_program: PathBuf,
    ) -> Self {
        let variables = variables.into_iter().collect();
        Self { variables, own_program, roles: RoleProgram::default() }
    }

    /// Returns the path of the program to execute for a process of the engine.
    pub fn role_program(&self) -> &Path {
        match &self.roles {
            // The executable of this process, even if an upgrade replaced the file on disk.
            RoleProgram::SelfExe => Path::new("/proc/self/exe"),
            RoleProgram::Path(path) => path,
        }
    }

    pub fn variable(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns the user's home directory: the variable `HOME`, if it is an absolute path.
    pub fn user_home(&self) -> Option<PathBuf> {
        self.absolute("HOME")
    }

    /// Returns the absolute directories of the variable `PATH`.
    pub fn search_path(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let path = self.variable("PATH").unwrap_or_default();
        std::env::split_paths(path).filter(|dir| dir.is_absolute())
    }

    /// Returns the first executable file of this name in the directories of `PATH`.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        self.search_path().map(|dir| dir.join(name)).find(|file| is_executable(file))
    }

    /// Returns the default path of the operator's configuration file.
    pub fn config_file(&self) -> Option<PathBuf> {
        let dir =
            self.absolute("XDG_CONFIG_HOME").or_else(|| Some(self.user_home()?.join(".config")));
        Some(dir?.join("belljar").join("belljar.toml"))
    }

    /// Returns the state directory: `BELLJAR_HOME`, or `belljar` in the XDG state directory.
    pub fn state_dir(&self) -> Result<PathBuf, EngineError> {
        if let Some(home) = self.variable(HOME_VARIABLE) {
            let home = PathBuf::from(home);
            return match home.is_absolute() {
                true => Ok(home),
                false => Err(invalid("BELLJAR_HOME must be an absolute path")),
            };
        }
        let xdg = self.absolute("XDG_STATE_HOME");
        let base = xdg.or_else(|| Some(self.user_home()?.join(".local/state")));
        let not_set = || {
            invalid(
                "cannot find the state directory: neither BELLJAR_HOME nor HOME is set; set one of them",
            )
        };
        Ok(base.ok_or_else(not_set)?.join("belljar"))
    }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the path with all symbolic links resolved, or `None` if it cannot be opened.
pub(crate) fn real_path(path: &Path) -> Option<PathBuf> {
    belljar_box::open(path).ok().map(|(_, real)| real)
}
