//! Finds and reads the operator's belljar.toml and the project's, which can only tighten the operator's.
//!
//! A tenant other than `local` has a policy of its own in the place of the operator's file. Of the operator's
//! file, only the settings of the machine and the limits of the tenant apply to it.

pub mod section;

use std::path::{Path, PathBuf};

use anyhow::Context;
use belljar_model::net::SecretDecl;
use belljar_model::{Config, Scope, Template};
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;

const FILE: &str = "belljar.toml";
/// The maximum size of a configuration file in bytes, far above the size of any real file.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// A configuration file that was read, with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The owner of the file: `operator`, `tenant` or `project`.
    pub scope: String,
    pub file: PathBuf,
    pub text: String,
}

/// Loads the configuration for a workspace, and returns it with the files that it was read from.
///
/// `file` replaces the operator's file at the default path.
pub fn load_from(
    host: &HostEnv,
    file: Option<&Path>,
    workspace: Option<&Path>,
) -> Result<(Config, Vec<Source>), EngineError> {
    let mut sources = Vec::new();
    let operator = operator(host, file, &mut sources)?;
    tightened(operator, workspace, sources)
}

/// Loads the configuration of a tenant other than `local` for a workspace: the policy of the tenant, with the
/// operator's settings for the machine. `file` is the operator's file.
pub(crate) fn load_of_tenant(
    host: &HostEnv,
    file: Option<&Path>,
    policy: &Path,
    workspace: Option<&Path>,
) -> Result<(Config, Vec<Source>), EngineError> {
    let mut sources = Vec::new();
    let operator = load_operator(host, file)?;
    let own = match read_into(policy, Scope::Tenant, &mut sources)? {
        Some(own) => own,
        None => Config::parse("", policy, Scope::Tenant).kind(ErrorKind::Broken)?,
    };
    tightened(own.on_machine_of(&operator), workspace, sources)
}

/// Loads the operator's configuration, without that of a project or of a tenant.
pub(crate) fn load_operator(host: &HostEnv, file: Option<&Path>) -> Result<Config, EngineError> {
    operator(host, file, &mut Vec::new())
}

/// Reads the secrets that a file with declarations contains. A file that does not exist has none.
pub(crate) fn read_declared(file: &Path, scope: Scope) -> Result<Vec<SecretDecl>, EngineError> {
    let Some(config) = read(file, scope)? else { return Ok(Vec::new()) };
    Ok(config.declared_secrets().filter_map(|name| config.secret(name).cloned()).collect())
}

/// Returns a configuration, tightened by the file of the project in a workspace.
fn tightened(
    config: Config,
    workspace: Option<&Path>,
    mut sources: Vec<Source>,
) -> Result<(Config, Vec<Source>), EngineError> {
    let Some(file) = project_file(workspace) else { return Ok((config, sources)) };
    if same_file(&file, config.file()) {
        return Ok((config, sources));
    }
    match read_into(&file, Scope::Project, &mut sources)? {
        Some(project) => Ok((config.tighten(&project).kind(ErrorKind::Invalid)?, sources)),
        None => Ok((config, sources)),
    }
}

/// Returns the template with this name. The error for an unknown name lists all templates.
pub fn template(config: &Config, name: &str) -> Result<Template, EngineError> {
    let unknown = || {
        invalid(format!(
            "--template: unknown template {name:?}; the known templates are: {}",
            config.names().join(", ")
        ))
    };
    config.template(name).ok_or_else(unknown)
}

/// Reads the operator's configuration: `--config`, the file at the default path, or the built-in one.
fn operator(
    host: &HostEnv,
    file: Option<&Path>,
    sources: &mut Vec<Source>,
) -> Result<Config, EngineError> {
    if let Some(file) = file {
        let missing = || anyhow::anyhow!("--config: the file {} does not exist", file.display());
        return read_into(file, Scope::Operator, sources)?
            .ok_or_else(missing)
            .kind(ErrorKind::Invalid);
    }
    let Some(file) = host.config_file() else { return Ok(Config::built_in()) };
    Ok(read_into(&file, Scope::Operator, sources)?.unwrap_or_else(Config::built_in))
}

/// The identities of all configuration files, to detect that one of them changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFingerprint([Option<FileIdentity>; 4]);

/// The device, inode, modification time (seconds and nanoseconds) and size of a file.
type FileIdentity = (u64, u64, i64, i64, u64);

impl ConfigFingerprint {
    /// Returns the identities of the operator's file, of the policy of a tenant, of the declarations of
    /// secrets, and of the project's file.
    pub(crate) fn of(
        host: &HostEnv,
        file: Option<&Path>,
        [policy, declared]: [Option<PathBuf>; 2],
        workspace: Option<&Path>,
    ) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let operator = file.map(Path::to_owned).or_else(|| host.config_file());
        let identity = |path: Option<PathBuf>| {
            let meta = path?.metadata().ok()?;
            Some((meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
        };
        let project = project_file(workspace);
        Self([operator, policy, declared, project].map(identity))
    }
}

/// Returns the path of the project's belljar.toml, if the workspace has one.
pub fn project_file(workspace: Option<&Path>) -> Option<PathBuf> {
    workspace.map(|workspace| workspace.join(FILE)).filter(|file| file.symlink_metadata().is_ok())
}

/// Reads and checks one configuration file. Returns `None` if the file does not exist.
pub fn read(file: &Path, scope: Scope) -> Result<Option<Config>, EngineError> {
    read_into(file, scope, &mut Vec::new())
}

/// Returns the text of the operator's configuration file, or `None` if the file does not exist.
pub fn read_text(file: &Path) -> Result<Option<String>, EngineError> {
    match read_bounded(file, Scope::Operator) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read
            .map(Some)
            .with_context(|| format!("cannot read {}", file.display()))
            .kind(ErrorKind::Invalid),
    }
}

fn read_into(
    file: &Path,
    scope: Scope,
    sources: &mut Vec<Source>,
) -> Result<Option<Config>, EngineError> {
    let text = match read_bounded(file, scope) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read
            .with_context(|| format!("cannot read {}", file.display()))
            .kind(ErrorKind::Invalid)?,
    };
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let config = Config::parse(&text, &absolute, scope).kind(ErrorKind::Invalid)?;
    let scope = match scope {
        Scope::Operator => "operator",
        Scope::Tenant => "tenant",
        Scope::Project => "project",
    };
    sources.push(Source { scope: scope.to_owned(), file: absolute, text });
    Ok(Some(config))
}

fn read_bounded(file: &Path, scope: Scope) -> std::io::Result<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // A box may have put a pipe or a symbolic link into the project. NONBLOCK does not wait for a pipe,
    // and NOFOLLOW refuses a link. The operator's own file may be a link.
    let flags = match scope {
        Scope::Operator => rustix::fs::OFlags::NONBLOCK,
        Scope::Tenant | Scope::Project => {
            rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW
        }
    };
    let flags = i32::try_from(flags.bits()).map_err(std::io::Error::other)?;
    let opened = std::fs::File::options().read(true).custom_flags(flags).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(std::io::Error::other("the path is not a regular file"));
    }
    let mut text = String::new();
    opened.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

/// Returns whether both paths lead to the same existing file.
pub fn same_file(left: &Path, right: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (left.metadata(), right.metadata()) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
        _ => false,
    }
}
