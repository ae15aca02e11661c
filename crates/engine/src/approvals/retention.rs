//! Removes the files of approvals that were closed long ago.

use std::time::Duration;

use anyhow::Context as _;

use super::file::ApprovalFiles;
use super::gates;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// How long the files of a closed approval are kept.
pub const RETENTION: Duration = Duration::from_hours(14 * 24);

/// The age after which an unfinished file counts as left over by a killed process.
const WRITE_TIMEOUT: Duration = Duration::from_hours(24);

/// Removes the files of approvals that were closed more than `age` ago. Returns their number.
///
/// The questions and answers stay in the ledger.
pub fn remove_old(state: &Scoped, age: Duration, dry_run: bool) -> Result<usize, EngineError> {
    let files = ApprovalFiles::under(state.home());
    let now = state.clock().millis();
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let removed = || -> anyhow::Result<usize> {
        let mut count = gates::remove_old(state, age, dry_run)?;
        for (id, _) in files.names()?.0.into_iter().filter(|(_, present)| present.answer) {
            // A damaged file is kept, so that a person can examine it.
            let Ok(Some(answer)) = files.answer(id) else { continue };
            if now.saturating_sub(answer.at) > age {
                count += 1;
                if !dry_run {
                    files.remove(id)?;
                }
            }
        }
        if !dry_run {
            files.remove_unfinished(state.clock().now(), WRITE_TIMEOUT)?;
        }
        Ok(count)
    };
    removed().context("cannot remove old approvals").kind(ErrorKind::Broken)
}
