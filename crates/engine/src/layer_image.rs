//! The image that holds the layers of a run of root, so that the kernel enforces its disk limit.
//!
//! Creating and removing an image costs time, so only runs whose limit differs from the default get one. At
//! the end of the run the upper layer is copied to the run directory, and the image is deleted: changes that
//! wait for review are ordinary files. If the run was killed, the next command that reads the run does this.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_box::{ImageError, LayerImage, LayerSync, OverlayLayers, Privilege, Workspace};
use belljar_model::Limits;
use belljar_workspace::LAYER_IMAGE;

/// The time for which a reader waits until a killed box has ended.
const WAIT: Duration = Duration::from_secs(10);

/// Creates the image of a run and gives the workspace its layers. Returns `None` if this run gets no image,
/// or this machine cannot create one: the layers are then ordinary directories.
pub(crate) fn create(
    run_dir: &Path,
    workspace: &mut Workspace,
    limits: &Limits,
) -> anyhow::Result<Option<LayerImage>> {
    let is_default = limits.disk == Limits::default().disk;
    if is_default || Privilege::of_this_process() != Privilege::Root {
        return Ok(None);
    }
    let stat =
        rustix::fs::fstat(&workspace.place).context("cannot read the identity of the workspace")?;
    let (owner, mode) = ((stat.st_uid, stat.st_gid), stat.st_mode & 0o777);
    let path = run_dir.join(LAYER_IMAGE);
    match LayerImage::create(&path, limits.disk.as_u64(), owner, mode) {
        Ok(image) => {
            let (dir, sync) = (run_dir.to_owned(), LayerSync::Skipped);
            workspace.layers = Some(OverlayLayers { dir, sync, image: Some(image.for_box()) });
            Ok(Some(image))
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::warn!("a watcher replaces the kernel's disk limit: {error:#}");
            Ok(None)
        }
    }
}

/// Copies the upper layer of a run that has ended to the run directory, and deletes the image.
pub(crate) fn export(image: LayerImage, run_dir: &Path) -> anyhow::Result<()> {
    belljar_workspace::take_upper(image.root(), run_dir)
        .context("cannot copy the changes of the box out of its image")?;
    image.remove().context("cannot delete the image of the box")
}

/// Copies the upper layer out of the image that a killed run has left, if any.
pub(crate) fn recover(run_dir: &Path) -> anyhow::Result<()> {
    let (path, deadline) = (run_dir.join(LAYER_IMAGE), Instant::now() + WAIT);
    loop {
        match LayerImage::open(&path) {
            Ok(None) => return Ok(()),
            Ok(Some(image)) => return export(image, run_dir),
            Err(ImageError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10)); // the kernel sends no event
            }
            Err(error) => return Err(error).context("cannot open the image of the box"),
        }
    }
}

/// Checks whether a run directory has an image with files that were not copied yet.
pub(crate) fn exists(run_dir: &Path) -> bool {
    run_dir.join(LAYER_IMAGE).symlink_metadata().is_ok_and(|meta| meta.size() > 0)
}
