//! From arguments to specs: what was typed, and where, as a value that needs neither.
//!
//! Only text is worked on here. Whether a directory exists and may be a workspace is checked by whoever
//! makes the box.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_model::spec::{
    Argv, BoxSpec, RunSpec, SpecError, SpecVersion, TerminalSize, WorkspaceSpec,
};

use crate::cli::RunArgs;
use crate::cli::boxes::UpOptions;

/// Where something was typed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedIn<'a> {
    /// The current directory, absolute: relative paths begin here.
    pub(crate) directory: &'a Path,
    /// The user's home directory, which `~` in a path means.
    pub(crate) home: Option<&'a Path>,
    /// The value of `--config`.
    pub(crate) config: Option<&'a Path>,
}

/// The box that `belljar up` was asked for.
pub(crate) fn box_spec(
    options: &UpOptions,
    command: &[OsString],
    typed_in: TypedIn<'_>,
) -> Result<BoxSpec, SpecError> {
    // Destructured without `..`, so that a new option cannot be forgotten here.
    let UpOptions {
        template,
        agent,
        workspace,
        no_workspace,
        repo,
        branch,
        uncommitted,
        git_identity,
        furnish,
        health,
        no_tty,
    } = options;
    let workspace = match repo {
        Some(repo) => WorkspaceSpec::Clone {
            repo: typed_in.directory.join(repo),
            branch: branch.clone(),
            uncommitted: *uncommitted,
        },
        None => directory(workspace.as_deref(), *no_workspace, typed_in),
    };
    let program = match command {
        [] => None,
        words => Some(Argv::new(words).map_err(SpecError::Program)?),
    };
    let spec = BoxSpec {
        template: template.clone(),
        overrides: furnish.overrides().anchored(typed_in.directory, typed_in.home),
        workspace,
        agent: agent.clone(),
        program,
        terminal: !no_tty,
        health: health.clone(),
        git_identity: git_identity.clone(),
        config_file: config_file(typed_in),
        ..BoxSpec::default()
    };
    spec.check()?;
    Ok(spec)
}

/// The run that `belljar run` was asked for, with the terminal that it gets.
pub(crate) fn run_spec(
    args: &RunArgs,
    terminal: Option<TerminalSize>,
    typed_in: TypedIn<'_>,
) -> Result<RunSpec, SpecError> {
    // Destructured without `..`, so that a new option cannot be forgotten here.
    let RunArgs {
        template,
        workspace,
        no_workspace,
        furnish,
        tty: _,    // decided by the caller, who knows the terminal
        no_tty: _, // the same
        name,
        json: _, // how the result is printed
        command,
    } = args;
    let on = BoxSpec {
        template: template.clone(),
        overrides: furnish.overrides().anchored(typed_in.directory, typed_in.home),
        workspace: directory(workspace.as_deref(), *no_workspace, typed_in),
        config_file: config_file(typed_in),
        ..BoxSpec::default()
    };
    let program = Argv::new(command).map_err(SpecError::Program)?;
    let version = SpecVersion::default();
    let spec = RunSpec { version, name: name.clone(), on, program, terminal };
    spec.check()?;
    Ok(spec)
}

fn directory(asked: Option<&Path>, none: bool, typed_in: TypedIn<'_>) -> WorkspaceSpec {
    match asked {
        _ if none => WorkspaceSpec::None,
        Some(path) => WorkspaceSpec::Directory(typed_in.directory.join(path)),
        None => WorkspaceSpec::Directory(typed_in.directory.to_owned()),
    }
}

fn config_file(typed_in: TypedIn<'_>) -> Option<PathBuf> {
    typed_in.config.map(|path| typed_in.directory.join(path))
}
