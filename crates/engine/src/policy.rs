//! Checks which directories a box may use as workspace and which mounts it may have.

pub mod explain;
pub mod learn;
pub mod preview;
pub mod project;
pub mod render;
pub mod replay;
pub mod tenant;

use std::path::Path;

use anyhow::Context as _;
use belljar_box::Workspace;
use belljar_model::{Access, Mode, Template};

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::scope::Scoped;

/// Opens the workspace of a box: the directory `requested`, or else the current directory.
///
/// The current directory is refused if it contains the user's home directory.
pub fn choose_workspace(
    state: &Scoped,
    current_dir: &Path,
    requested: Option<&Path>,
) -> Result<Workspace, EngineError> {
    let workspace = open_workspace(state, requested.unwrap_or(current_dir))?;
    let contains_home =
        state.host().user_home().is_some_and(|home| home.starts_with(&workspace.path));
    if contains_home && requested.is_none() {
        return Err(invalid(format!(
            "the current directory {} contains your home directory with all its keys: change into a project directory, or use --workspace DIR or --no-workspace",
            workspace.path.display()
        )));
    }
    Ok(workspace)
}

/// Opens a directory as the workspace of a box.
///
/// The root directory of the host and Belljar's state directory are refused.
pub fn open_workspace(state: &Scoped, requested: &Path) -> Result<Workspace, EngineError> {
    let (place, path) =
        belljar_box::open(requested).context("--workspace").kind(ErrorKind::Invalid)?;
    if !path.is_dir() {
        return Err(invalid(format!("--workspace {}: not a directory", requested.display())));
    }
    if path == Path::new("/") {
        return Err(invalid(
            "the workspace cannot be the root of the host (`/`): choose another directory with --workspace",
        ));
    }
    if path.starts_with(state.root()) {
        return Err(invalid(format!(
            "--workspace {}: the directory is part of Belljar's own state",
            path.display()
        )));
    }
    Ok(Workspace { place, path, layers: None, scratch: false })
}

/// Opens a directory that Belljar wrote for one box, in its own state.
pub fn open_checkout(dir: &Path) -> Result<Workspace, EngineError> {
    let opened = belljar_box::open(dir).context("cannot open the files of the commit");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(Workspace { place, path, layers: None, scratch: false })
}

/// Refuses a box that could write to the `belljar` program file.
///
/// Such a box could replace the program that isolates the next box.
pub fn refuse_own_program(
    host: &HostEnv,
    template: &Template,
    workspace: Option<&Path>,
) -> Result<(), EngineError> {
    let program = &host.own_program;
    if !program.is_absolute() {
        let text = "cannot find the path of the belljar program, so cannot check that no box can write to it";
        return Err(EngineError::message(ErrorKind::Broken, text));
    }
    let writable = template.mounts.iter().filter(|mount| mount.access() == Access::ReadWrite);
    if let Some(workspace) = workspace.filter(|_| template.mode == Mode::Direct)
        && program.starts_with(workspace)
    {
        return Err(invalid(format!(
            "--mode direct: the box could replace the program {}; use --mode overlay, or install belljar elsewhere",
            program.display()
        )));
    }
    for mount in writable {
        let (_, real) =
            belljar_box::open(mount.source()).context("--mount").kind(ErrorKind::Invalid)?;
        if program.starts_with(&real) {
            return Err(invalid(format!(
                "--mount {mount}: the box could replace the program {}; mount it read-only",
                program.display()
            )));
        }
    }
    Ok(())
}
