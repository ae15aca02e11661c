//! Reads and writes `changes.json` and `earlier.json` atomically.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::at;
use crate::change::Changes;
use crate::layers::Layers;

const CHANGES: &str = "changes.json";
pub(super) const EARLIER: &str = "earlier.json";

/// The reason why a JSON file of the run could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {name} of the run")]
    Read { name: &'static str, source: io::Error },
    #[error("cannot parse {name} of the run")]
    Damaged { name: &'static str, source: serde_json::Error },
}

impl Changes {
    /// Loads the list of changes that the end of the run stored, if there is one.
    pub fn load(layers: &Layers) -> Result<Option<Self>, LoadError> {
        read(layers, CHANGES)
    }

    pub(super) fn save(&self, layers: &Layers) -> io::Result<()> {
        write(layers, CHANGES, self)
    }
}

/// Reads and parses a JSON file of the run; `None` if it does not exist.
pub(super) fn read<T: DeserializeOwned>(
    layers: &Layers,
    name: &'static str,
) -> Result<Option<T>, LoadError> {
    match at::file(layers.run(), name.as_bytes()) {
        Ok((fd, _)) => serde_json::from_reader(BufReader::new(File::from(fd)))
            .map(Some)
            .map_err(|source| LoadError::Damaged { name, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadError::Read { name, source }),
    }
}

/// Writes a JSON file of the run: to a temporary file, which is synced and renamed.
pub(super) fn write(layers: &Layers, name: &str, value: &impl Serialize) -> io::Result<()> {
    let new = format!("{name}.new");
    match at::unlink(layers.run(), new.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = BufWriter::new(File::from(at::create(layers.run(), new.as_bytes(), 0o600)?));
    serde_json::to_writer(&mut file, value)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    at::rename(layers.run(), new.as_bytes(), layers.run(), name.as_bytes())?;
    Ok(rustix::fs::fsync(layers.run())?)
}

/// Removes `changes.json`, so that the next seal reads the changes again.
pub(super) fn remove(layers: &Layers) -> io::Result<()> {
    at::unlink(layers.run(), CHANGES.as_bytes())?;
    Ok(rustix::fs::fsync(layers.run())?)
}
