//! `changes.json`: written whole or not at all.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};

use crate::at;
use crate::change::Changes;
use crate::layers::Layers;

const NAME: &[u8] = b"changes.json";
const NEW: &[u8] = b"changes.json.new";

/// Why a manifest that is there could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("read changes.json of the run")]
    Read { source: io::Error },
    #[error("changes.json of the run is damaged")]
    Damaged { source: serde_json::Error },
}

impl Changes {
    /// What an earlier seal wrote, if there was one.
    pub fn load(layers: &Layers) -> Result<Option<Self>, LoadError> {
        match at::file(layers.run(), NAME) {
            Ok((fd, _)) => serde_json::from_reader(BufReader::new(File::from(fd)))
                .map(Some)
                .map_err(|source| LoadError::Damaged { source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LoadError::Read { source }),
        }
    }
}

pub(super) fn write(layers: &Layers, changes: &Changes) -> io::Result<()> {
    match at::unlink(layers.run(), NEW) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = BufWriter::new(File::from(at::create(layers.run(), NEW, 0o600)?));
    serde_json::to_writer(&mut file, changes)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    at::rename(layers.run(), NEW, layers.run(), NAME)?;
    Ok(rustix::fs::fsync(layers.run())?)
}
