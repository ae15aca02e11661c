//! The request of a host for a larger lease.
//!
//! A host asks by a file in the directory of its run. A driver that starts later finds the file too.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use super::TaskRunSpec;
use crate::scope::Scoped;
use crate::supervisor::connect_socket;

/// The directory of the requests in the directory of a run.
pub(crate) const LEASE_REQUESTS: &str = "leases";

/// The request of one attempt for a larger lease.
#[derive(Debug)]
pub(super) struct LeaseRequest {
    file: PathBuf,
    /// The directory with the socket of the driver.
    plans: PathBuf,
}

impl LeaseRequest {
    pub(super) fn new(state: &Scoped, spec: &TaskRunSpec) -> Self {
        let layout = state.store().layout();
        let file = layout.plan(spec.plan_run).join(LEASE_REQUESTS).join(spec.run.to_string());
        Self { file, plans: layout.plans() }
    }

    /// Asks the driver. Without a driver, the next one finds the request.
    pub(super) fn send(&self) {
        let write = || -> io::Result<()> {
            let dir = self.file.parent().unwrap_or(&self.file);
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            File::create(&self.file).map(drop)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "cannot ask for a larger lease");
            return;
        }
        connect_socket(&self.plans).ok(); // the connection wakes the driver
    }
}
