//! Checks that only the operator can access a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// The reason why a file is not private to the operator.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    #[error("cannot read the owner and mode of the file")]
    Look { source: io::Error },
    #[error("the file is not a regular file")]
    NotAFile,
    #[error("the file belongs to user {owner}, not to you")]
    Owner { owner: u32 },
    #[error(
        "is accessible to other users (mode {mode:03o}); run `chmod 600` on it, and replace the secrets in it"
    )]
    Mode { mode: u32 },
}

/// Returns an error for a file that is not a regular file of the current user, or that other users
/// can access.
pub(super) fn check(file: &File) -> Result<(), NotPrivate> {
    let meta = file.metadata().map_err(|source| NotPrivate::Look { source })?;
    if !meta.is_file() {
        return Err(NotPrivate::NotAFile);
    }
    check_owner_and_mode(meta.uid(), rustix::process::geteuid().as_raw(), meta.mode())
}

/// Returns an error for an owner other than the user, and for modes that give access to other
/// users.
pub(super) fn check_owner_and_mode(owner: u32, user: u32, mode: u32) -> Result<(), NotPrivate> {
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
    fn vault_files_of_other_users_or_with_open_modes_are_refused() {
        for mode in [0o600, 0o400, 0o700, 0o10_0600] {
            assert!(check_owner_and_mode(7, 7, mode).is_ok(), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o660, 0o666, 0o601, 0o610, 0o10_0644] {
            assert!(
                matches!(check_owner_and_mode(7, 7, mode), Err(NotPrivate::Mode { .. })),
                "{mode:o}"
            );
        }
        assert!(matches!(check_owner_and_mode(8, 7, 0o600), Err(NotPrivate::Owner { owner: 8 })));
    }
}
