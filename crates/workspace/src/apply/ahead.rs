//! Writes the files of a batch together.
//!
//! Each file must be on disk before it takes its place, and waiting for the disk is most of what an
//! apply costs. Written one after the other and then waited for together, they share the wait.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use super::journal;
use super::stage::{self, Owner};
use super::work::{StepError, Work};
use crate::at;
use crate::change::{Change, Changes};
use crate::host::Here;
use crate::meta::FileKind;
use crate::plan::{Act, PlannedStep};

/// Bytes that are written ahead; more would need room for everything twice.
const AHEAD: u64 = 64 << 20;

/// What was staged ahead, or why it could not be, by the number of its step.
#[derive(Debug, Default)]
pub(super) struct Ahead(HashMap<u64, Result<Staged, StepError>>);

/// A file that waits beside its place.
#[derive(Debug)]
struct Staged {
    /// By descriptor, so that it is found again wherever the host moves the directory.
    parent: OwnedFd,
    temporary: Vec<u8>,
    inode: (u64, u64),
}

impl Ahead {
    /// The inode of what was staged for a step; `None` when nothing was.
    pub(super) fn staged(&mut self, number: u64) -> Option<Result<(u64, u64), StepError>> {
        if let Some(Ok(staged)) = self.0.get(&number) {
            return Some(Ok(staged.inode));
        }
        self.0.remove(&number).map(|staged| staged.map(|staged| staged.inode))
    }

    /// After a step: removes what was staged for it and is still beside its place.
    pub(super) fn forget(&mut self, number: u64) {
        if let Some(Ok(staged)) = self.0.remove(&number) {
            staged.remove();
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.0.drain().filter_map(|(_, staged)| staged.ok()).for_each(|staged| staged.remove());
    }
}

impl Staged {
    /// If this fails, the next apply finds it in the log.
    fn remove(&self) {
        let there = at::stat(&self.parent, &self.temporary).ok().flatten();
        if there.is_some_and(|there| there.inode() == self.inode) {
            drop(at::unlink(&self.parent, &self.temporary));
        }
    }
}

impl Work<'_, '_> {
    /// Stages the files that the steps of a batch, all of one phase, are going to need.
    pub(super) fn stage_ahead(
        &mut self,
        changes: &Changes,
        batch: &[PlannedStep],
        numbers: &[u64],
    ) {
        let mut unwritten = Vec::new();
        let mut bytes = 0;
        for (step, &number) in batch.iter().zip(numbers) {
            let Some(change) = changes.entries().get(step.index) else { continue };
            let Some(new) = change.new.as_ref().filter(|new| new.kind == FileKind::File) else {
                continue;
            };
            let (mode, was) = match &step.act {
                Act::Add => (new.mode, None),
                Act::Replace { was, mode } => (*mode, Some(was)),
                Act::MakeDir
                | Act::ReplaceWithDir(_)
                | Act::SetMode { .. }
                | Act::Remove(_)
                | Act::RemoveDir
                | Act::ReplaceDir
                | Act::SetDirMode { .. } => continue,
            };
            bytes += new.size;
            if bytes > AHEAD {
                break;
            }
            match self.stage_one(change, number, (mode, was)) {
                Ok((staged, file)) => unwritten.push((number, staged, file)),
                Err(error) => drop(self.ahead.0.insert(number, Err(error))),
            }
        }
        for (number, staged, file) in unwritten {
            let result = match file.sync_all() {
                Ok(()) => Ok(staged),
                Err(error) => {
                    staged.remove();
                    Err(StepError::io("write the new file")(error))
                }
            };
            drop(self.ahead.0.insert(number, result));
        }
    }

    fn stage_one(
        &mut self,
        change: &Change,
        number: u64,
        (mode, was): (u32, Option<&Here>),
    ) -> Result<(Staged, File), StepError> {
        let parent = self.parent(change)?;
        let directory = at::meta(&parent).map_err(StepError::io("look at the directory"))?;
        let name = change.path.name();
        let meta = match was {
            Some(was) => Some(self.expect(was, parent.as_fd(), name)?),
            None => None,
        };
        let owner =
            meta.as_ref().map_or(Owner::Directory(&directory), |meta| Owner::File(meta, name));
        let temporary = journal::temporary_name(self.takeover.layers, number);
        self.step(&change.path);
        let place = (parent.as_fd(), temporary.as_slice());
        let file = stage::file(self.takeover.layers, place, change, (mode, owner))?;
        let inode = at::meta(&file).map_err(StepError::io("look at the new file"))?.inode();
        Ok((Staged { parent, temporary, inode }, file))
    }
}
