//! Converts command-line arguments into specs of boxes and runs, with absolute paths.
//!
//! This module does not access the file system. The engine checks later whether a directory exists and
//! can be a workspace.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_model::spec::{
    Argv, BoxSpec, RunSpec, SpecError, SpecVersion, TerminalSize, WorkspaceSpec,
};

use crate::cli::RunArgs;
use crate::cli::boxes::UpOptions;

/// The directory, home and configuration file that a command was invoked with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation<'a> {
    /// The absolute path of the current directory, which relative paths are resolved against.
    pub(crate) directory: &'a Path,
    /// The user's home directory, which replaces `~` in a path.
    pub(crate) home: Option<&'a Path>,
    /// The value of the option `--config`.
    pub(crate) config: Option<&'a Path>,
}

/// Returns the spec of a box from the arguments of `belljar up`.
pub(crate) fn box_spec(
    options: &UpOptions,
    command: &[OsString],
    invocation: Invocation<'_>,
) -> Result<BoxSpec, SpecError> {
    // Destructured without `..`: a new option that is not handled here does not compile.
    let UpOptions {
        template,
        agent,
        workspace,
        no_workspace,
        repo,
        branch,
        uncommitted,
        git_identity,
        box_options,
        health,
        no_tty,
    } = options;
    let workspace = match repo {
        Some(repo) => WorkspaceSpec::Clone {
            repo: invocation.directory.join(repo),
            branch: branch.clone(),
            uncommitted: *uncommitted,
        },
        None => directory(workspace.as_deref(), *no_workspace, invocation),
    };
    let program = match command {
        [] => None,
        words => Some(Argv::new(words).map_err(SpecError::Program)?),
    };
    let spec = BoxSpec {
        template: template.clone(),
        overrides: box_options.overrides().anchored(invocation.directory, invocation.home),
        workspace,
        agent: agent.clone(),
        program,
        terminal: !no_tty,
        health: health.clone(),
        git_identity: git_identity.clone(),
        config_file: config_file(invocation),
        ..BoxSpec::default()
    };
    spec.check()?;
    Ok(spec)
}

/// Returns the spec of a run from the arguments of `belljar run` and the size of the run's terminal.
pub(crate) fn run_spec(
    args: &RunArgs,
    terminal: Option<TerminalSize>,
    invocation: Invocation<'_>,
) -> Result<RunSpec, SpecError> {
    // Destructured without `..`: a new option that is not handled here does not compile.
    let RunArgs {
        template,
        workspace,
        no_workspace,
        box_options,
        tty: _,    // the caller has already used it to choose `terminal`
        no_tty: _, // the caller has already used it to choose `terminal`
        name,
        json: _, // affects only the output
        command,
    } = args;
    let on = BoxSpec {
        template: template.clone(),
        overrides: box_options.overrides().anchored(invocation.directory, invocation.home),
        workspace: directory(workspace.as_deref(), *no_workspace, invocation),
        config_file: config_file(invocation),
        ..BoxSpec::default()
    };
    let program = Argv::new(command).map_err(SpecError::Program)?;
    let version = SpecVersion::default();
    let spec = RunSpec { version, name: name.clone(), on, program, terminal };
    spec.check()?;
    Ok(spec)
}

/// Returns the workspace for the options `--workspace` and `--no-workspace`.
fn directory(path: Option<&Path>, no_workspace: bool, invocation: Invocation<'_>) -> WorkspaceSpec {
    match path {
        _ if no_workspace => WorkspaceSpec::None,
        Some(path) => WorkspaceSpec::Directory(invocation.directory.join(path)),
        None => WorkspaceSpec::Directory(invocation.directory.to_owned()),
    }
}

/// Returns the absolute path of the file that `--config` names.
fn config_file(invocation: Invocation<'_>) -> Option<PathBuf> {
    invocation.config.map(|path| invocation.directory.join(path))
}
