//! Writes the new files of a batch before their steps run.
//!
//! Each file must be on disk before it is renamed, and waiting for the disk takes most of the time
//! of an apply. All files of a batch are written first and flushed afterwards, so that they share
//! the wait.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use super::executor::{Executor, StepError};
use super::log;
use super::stage::{self, Owner};
use crate::at;
use crate::change::{Change, Changes};
use crate::host::HostFile;
use crate::meta::FileKind;
use crate::plan::{Action, PlannedStep};

/// The maximum number of bytes that are copied before their apply step runs. More would need disk
/// space for everything twice.
const MAX_PRESTAGED_BYTES: u64 = 64 << 20;

/// The files that were copied in advance, or the error, by the number of their apply step.
#[derive(Debug, Default)]
pub(super) struct Prestaged(HashMap<u64, Result<Staged, StepError>>);

/// A copy of the box's file under a temporary name next to its target.
#[derive(Debug)]
struct Staged {
    /// The directory as a descriptor, so that the file is found even if the host moves the
    /// directory.
    parent: OwnedFd,
    temporary: Vec<u8>,
    inode: (u64, u64),
}

impl Prestaged {
    /// Returns the inode of the file that was copied in advance for a step, or `None` if there is
    /// none.
    pub(super) fn staged(&mut self, number: u64) -> Option<Result<(u64, u64), StepError>> {
        if let Some(Ok(staged)) = self.0.get(&number) {
            return Some(Ok(staged.inode));
        }
        self.0.remove(&number).map(|staged| staged.map(|staged| staged.inode))
    }

    /// Removes the staged file of a finished step if it still has its temporary name.
    pub(super) fn discard(&mut self, number: u64) {
        if let Some(Ok(staged)) = self.0.remove(&number) {
            staged.remove();
        }
    }

    /// Removes all staged files that still have their temporary names.
    pub(super) fn discard_all(&mut self) {
        self.0.drain().filter_map(|(_, staged)| staged.ok()).for_each(|staged| staged.remove());
    }
}

impl Staged {
    /// Removes the temporary file if it is still the staged one. After a failure the next apply
    /// finds the file in the log.
    fn remove(&self) {
        let there = at::stat(&self.parent, &self.temporary).ok().flatten();
        if there.is_some_and(|there| there.inode() == self.inode) {
            drop(at::unlink(&self.parent, &self.temporary));
        }
    }
}

impl Executor<'_, '_> {
    /// Copies the files that the next apply steps need to temporary names. All steps are of one
    /// phase.
    pub(super) fn prestage(&mut self, changes: &Changes, batch: &[PlannedStep], numbers: &[u64]) {
        let mut unwritten = Vec::new();
        let mut bytes = 0;
        for (step, &number) in batch.iter().zip(numbers) {
            let Some(change) = changes.entries().get(step.index) else { continue };
            let Some(new) = change.new.as_ref().filter(|new| new.kind == FileKind::File) else {
                continue;
            };
            let (mode, was) = match &step.action {
                Action::Add => (new.mode, None),
                Action::Replace { was, mode } => (*mode, Some(was)),
                Action::MakeDir
                | Action::ReplaceWithDir(_)
                | Action::SetMode { .. }
                | Action::Remove(_)
                | Action::RemoveDir
                | Action::ReplaceDir
                | Action::SetDirMode { .. } => continue,
            };
            bytes += new.size;
            if bytes > MAX_PRESTAGED_BYTES {
                break;
            }
            match self.stage_one(change, number, (mode, was)) {
                Ok((staged, file)) => unwritten.push((number, staged, file)),
                Err(error) => drop(self.prestaged.0.insert(number, Err(error))),
            }
        }
        for (number, staged, file) in unwritten {
            let result = match file.sync_all() {
                Ok(()) => Ok(staged),
                Err(error) => {
                    staged.remove();
                    Err(StepError::io("cannot write the new file")(error))
                }
            };
            drop(self.prestaged.0.insert(number, result));
        }
    }

    fn stage_one(
        &mut self,
        change: &Change,
        number: u64,
        (mode, was): (u32, Option<&HostFile>),
    ) -> Result<(Staged, File), StepError> {
        let parent = self.parent(change)?;
        let directory = at::meta(&parent).map_err(StepError::io("cannot inspect the directory"))?;
        let name = change.path.name();
        let meta = match was {
            Some(was) => Some(self.expect(was, parent.as_fd(), name)?),
            None => None,
        };
        let owner =
            meta.as_ref().map_or(Owner::Directory(&directory), |meta| Owner::File(meta, name));
        let temporary = log::temporary_name(self.session.layers, number);
        self.step(&change.path);
        let target = (parent.as_fd(), temporary.as_slice());
        let file = stage::file(self.session.layers, target, change, (mode, owner))?;
        let inode = at::meta(&file).map_err(StepError::io("cannot inspect the new file"))?.inode();
        Ok((Staged { parent, temporary, inode }, file))
    }
}
