//! The recorded output of a box as text.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::screen::{self, guard::Guard};

/// Returns the output of the newest run of a box. The output of a terminal is rendered by a screen process,
/// so the text contains no control sequences. The supervisor limits the size of the log.
pub fn text(state: &Scoped, named_box: &NamedBox) -> Result<Vec<u8>, EngineError> {
    let cannot_read = || format!("cannot read the log of box {}", named_box.name());
    let path = named_box.dir.join("output.log");
    let read = || -> io::Result<Vec<u8>> {
        let mut recorded = read_if_present(&path.with_extension("log.1"))?;
        recorded.extend(read_if_present(&path)?);
        Ok(recorded)
    };
    let mut recorded = read().with_context(cannot_read).kind(ErrorKind::Broken)?;
    let run = named_box.run().filter(|_| named_box.record.spec.terminal);
    if let Some(run) = run.filter(|_| !recorded.is_empty()) {
        let rendered =
            screen::render_log(state.host().role_program(), run.record.id, &recorded, false);
        recorded = rendered.with_context(cannot_read).kind(ErrorKind::Broken)?;
    }
    let mut text = Vec::with_capacity(recorded.len());
    Guard::text_only().pass(&recorded, &mut text);
    Ok(text)
}

fn read_if_present(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}
