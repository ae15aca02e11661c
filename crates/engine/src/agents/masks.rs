//! Finds the files of a workspace that `deny` rules hide or make read-only, when a box starts.
//!
//! The search does not follow symbolic links into directories. If a rule matches a link, its target is
//! masked, provided that the target is in the workspace. Otherwise the target could be opened directly.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use belljar_box::{Mask, MaskKind};
use belljar_model::permission::{FilePattern, Permission, Permissions};

use crate::error::{EngineError, invalid};
use crate::host::real_path;

/// The effect of a mask on a file. `Hidden` is greater than `ReadOnly`, because it restricts more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Restriction {
    ReadOnly,
    Hidden,
}

/// The maximum number of masks of a box. Each mask is a mount.
const MAX_MASKS: usize = 512;
/// The maximum number of files in a workspace that is searched for denied files.
const MAX_ENTRIES: usize = 2_000_000;

/// Finds the files in a workspace that the `deny` rules match, and returns a mask for each.
pub fn find(permissions: &Permissions, workspace: &Path) -> Result<Vec<Mask>, EngineError> {
    let rules: Vec<(Restriction, &FilePattern)> =
        permissions.deny.iter().filter_map(rule).collect();
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let mut search = Search { workspace, rules, found: BTreeMap::new(), seen: 0 };
    search.walk(Path::new(""), Restriction::ReadOnly, false)?;
    let mask = |(path, restriction)| match restriction {
        Restriction::ReadOnly => Mask { path, kind: MaskKind::ReadOnly },
        Restriction::Hidden => Mask { path, kind: MaskKind::Hidden },
    };
    Ok(search.found.into_iter().map(mask).collect())
}

fn rule(permission: &Permission) -> Option<(Restriction, &FilePattern)> {
    match permission {
        Permission::Read(files) => Some((Restriction::Hidden, files)),
        Permission::Edit(files) => Some((Restriction::ReadOnly, files)),
        Permission::Bash(_) | Permission::Net(_) | Permission::Tool(_) => None,
    }
}

struct Search<'a> {
    workspace: &'a Path,
    rules: Vec<(Restriction, &'a FilePattern)>,
    found: BTreeMap<PathBuf, Restriction>,
    seen: usize,
}

impl Search<'_> {
    /// Searches a directory for denied files. In a read-only directory, only hidden files need a mask.
    fn walk(
        &mut self,
        directory: &Path,
        inherited: Restriction,
        is_masked: bool,
    ) -> Result<(), EngineError> {
        // A box of this user cannot read a directory that this process cannot read.
        let Ok(entries) = std::fs::read_dir(self.workspace.join(directory)) else { return Ok(()) };
        for entry in entries.filter_map(Result::ok) {
            self.seen += 1;
            if self.seen > MAX_ENTRIES {
                return Err(invalid(format!(
                    "permissions: cannot search the workspace for denied files: it has more than {MAX_ENTRIES} files; use a smaller workspace"
                )));
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = directory.join(entry.file_name());
            let denied = self.denied(&path).filter(|denied| !is_masked || *denied > inherited);
            if let Some(denied) = denied {
                let real =
                    if kind.is_symlink() { self.link_target(&path) } else { Some(path.clone()) };
                if let Some(real) = real {
                    self.add(real, denied)?;
                }
            }
            if kind.is_dir() && denied != Some(Restriction::Hidden) {
                self.walk(&path, denied.unwrap_or(inherited), is_masked || denied.is_some())?;
            }
        }
        Ok(())
    }

    fn denied(&self, path: &Path) -> Option<Restriction> {
        let bytes = path.as_os_str().as_bytes();
        let rules = self.rules.iter().filter(|(_, files)| files.covers(bytes));
        rules.map(|(kind, _)| *kind).max()
    }

    /// Returns the target of a symbolic link relative to the workspace, or `None` if it is outside.
    fn link_target(&self, link: &Path) -> Option<PathBuf> {
        let real = real_path(&self.workspace.join(link))?;
        let inside = real.strip_prefix(real_path(self.workspace)?).ok()?;
        (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
    }

    fn add(&mut self, path: PathBuf, kind: Restriction) -> Result<(), EngineError> {
        let known = self.found.entry(path).or_insert(kind);
        *known = kind.max(*known);
        if self.found.len() > MAX_MASKS {
            return Err(invalid(format!(
                "permissions: `deny` matches more than {MAX_MASKS} files of the workspace; deny a directory that contains them"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(deny: &[&str], workspace: &Path) -> Vec<(String, MaskKind)> {
        let deny = deny.iter().map(|text| text.parse().unwrap()).collect();
        let permissions = Permissions { deny, ..Permissions::default() };
        let masks = find(&permissions, workspace).unwrap().into_iter();
        masks.map(|mask| (mask.path.display().to_string(), mask.kind)).collect()
    }

    #[test]
    fn find_masks_every_denied_file_and_the_targets_of_denied_links() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        ["a/.env", ".env", "src/x", "src/deep/.env", "keys/k"].into_iter().for_each(put);
        std::os::unix::fs::symlink("keys/k", dir.path().join("shown")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
        let owned = |found: &[(&str, MaskKind)]| -> Vec<(String, MaskKind)> {
            found.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect()
        };
        use MaskKind::{Hidden, ReadOnly};
        let found = |deny: &[&str]| masks(deny, dir.path());
        assert_eq!(found(&["Bash(x)", "Net(x.example)"]), []);
        assert_eq!(found(&["Read(/.env)"]), owned(&[(".env", Hidden)]));
        assert_eq!(
            found(&["Read(.env)"]),
            owned(&[(".env", Hidden), ("a/.env", Hidden), ("src/deep/.env", Hidden)])
        );
        assert_eq!(
            found(&["Edit(src/**)", "Read(src/deep/.env)"]),
            owned(&[("src", ReadOnly), ("src/deep/.env", Hidden)])
        );
        assert_eq!(found(&["Edit(/keys)", "Read(/keys)"]), owned(&[("keys", Hidden)]));
        assert_eq!(found(&["Read(/shown)", "Read(/out)"]), owned(&[("keys/k", Hidden)]));
        assert_eq!(found(&["Read(/none)"]), []);
    }
}
