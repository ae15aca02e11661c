//! Whether a file is the operator's alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Why a file is not the operator's alone.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    #[error("look at its owner and mode")]
    Look { source: io::Error },
    #[error("is no regular file")]
    NotAFile,
    #[error("belongs to user {owner} and not to you")]
    Owner { owner: u32 },
    #[error(
        "can be read or written by others (mode {mode:03o}); `chmod 600` it, and set what it held anew"
    )]
    Mode { mode: u32 },
}

/// Refuses a file that is not a regular one of ours, or that others may read or write.
pub(super) fn check(file: &File) -> Result<(), NotPrivate> {
    let meta = file.metadata().map_err(|source| NotPrivate::Look { source })?;
    if !meta.is_file() {
        return Err(NotPrivate::NotAFile);
    }
    judge(meta.uid(), rustix::process::geteuid().as_raw(), meta.mode())
}

/// Refuses what belongs to another user or is open to others.
pub(super) fn judge(owner: u32, user: u32, mode: u32) -> Result<(), NotPrivate> {
    if owner != user {
        return Err(NotPrivate::Owner { owner });
    }
    match mode & 0o7777 {
        mode if mode & 0o077 != 0 => Err(NotPrivate::Mode { mode }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_may_reach_it() {
        for mode in [0o600, 0o400, 0o700, 0o10_0600] {
            assert!(judge(7, 7, mode).is_ok(), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o660, 0o666, 0o601, 0o610, 0o10_0644] {
            assert!(matches!(judge(7, 7, mode), Err(NotPrivate::Mode { .. })), "{mode:o}");
        }
        assert!(matches!(judge(8, 7, 0o600), Err(NotPrivate::Owner { owner: 8 })));
    }
}
