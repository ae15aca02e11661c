//! What a box may be given: its workspace, and what its template may not open.

pub mod explain;
pub mod learn;
pub mod render;

use std::path::Path;

use anyhow::Context as _;
use belljar_box::Workspace;
use belljar_model::{Access, Mode, Template};

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::scope::Scoped;

/// The directory that was named, or else the one we are in, unless that would give away a whole home.
pub fn choose_workspace(
    state: &Scoped,
    here: &Path,
    asked: Option<&Path>,
) -> Result<Workspace, EngineError> {
    let workspace = open_workspace(state, asked.unwrap_or(here))?;
    let whole_home = state.host().user_home().is_some_and(|home| home.starts_with(&workspace.path));
    if whole_home && asked.is_none() {
        return Err(invalid(format!(
            "{} holds your home directory with all its keys: change into a project, or choose with --workspace DIR or --no-workspace",
            workspace.path.display()
        )));
    }
    Ok(workspace)
}

/// Opens a directory that was named as a workspace.
pub fn open_workspace(state: &Scoped, asked: &Path) -> Result<Workspace, EngineError> {
    let (place, path) = belljar_box::open(asked).context("--workspace").kind(ErrorKind::Invalid)?;
    if !path.is_dir() {
        return Err(invalid(format!("--workspace {}: not a directory", asked.display())));
    }
    if path == Path::new("/") {
        return Err(invalid(
            "the workspace cannot be the root of the host: choose a directory with --workspace",
        ));
    }
    if path.starts_with(state.home()) {
        return Err(invalid(format!(
            "--workspace {}: this is Belljar's own state",
            path.display()
        )));
    }
    Ok(Workspace { place, path, layers: None, scratch: false })
}

/// A box that can write our own program could replace what confines the next one.
pub fn refuse_own_program(
    host: &HostEnv,
    template: &Template,
    workspace: Option<&Path>,
) -> Result<(), EngineError> {
    let own = &host.own_program;
    if !own.is_absolute() {
        let text = "cannot find our own program, which no box may be able to write to";
        return Err(EngineError::message(ErrorKind::Broken, text));
    }
    let writable = template.mounts.iter().filter(|mount| mount.access() == Access::ReadWrite);
    if let Some(workspace) = workspace.filter(|_| template.mode == Mode::Direct)
        && own.starts_with(workspace)
    {
        return Err(invalid(format!(
            "--mode direct: the box could replace {}; use overlay, or install it elsewhere",
            own.display()
        )));
    }
    for mount in writable {
        let (_, real) =
            belljar_box::open(mount.source()).context("--mount").kind(ErrorKind::Invalid)?;
        if own.starts_with(&real) {
            return Err(invalid(format!(
                "--mount {mount}: the box could replace {}",
                own.display()
            )));
        }
    }
    Ok(())
}
