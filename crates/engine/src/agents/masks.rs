//! What of a workspace is less than the rest: found by name when a box starts.
//!
//! Links are not followed on the way. A link that fits leads to what it names, if that is in the
//! workspace: it is masked itself, or the link would be a way around.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use belljar_box::{Mask, MaskKind};
use belljar_model::permission::{FilePattern, Permission, Permissions};

use crate::error::{EngineError, invalid};
use crate::host::real_path;

/// Ordered by what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Restriction {
    ReadOnly,
    Hidden,
}

/// Each is a mount.
const MOST_MASKS: usize = 512;
/// A workspace larger than this is not looked through.
const MOST_ENTRIES: usize = 2_000_000;

/// Finds what the rules deny in a workspace as it is now.
pub fn find(permissions: &Permissions, workspace: &Path) -> Result<Vec<Mask>, EngineError> {
    let rules: Vec<(Restriction, &FilePattern)> =
        permissions.deny.iter().filter_map(rule).collect();
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let mut search = Search { workspace, rules, found: BTreeMap::new(), seen: 0 };
    search.walk(Path::new(""), Restriction::ReadOnly, false)?;
    let mask = |(path, less)| match less {
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
    /// Looks through a directory. In one that is read-only as a whole only what is hidden is of interest.
    fn walk(
        &mut self,
        inside: &Path,
        above: Restriction,
        is_masked: bool,
    ) -> Result<(), EngineError> {
        // What we cannot read, a box of ours cannot either.
        let Ok(entries) = std::fs::read_dir(self.workspace.join(inside)) else { return Ok(()) };
        for entry in entries.filter_map(Result::ok) {
            self.seen += 1;
            if self.seen > MOST_ENTRIES {
                return Err(invalid(format!(
                    "permissions: the workspace has more than {MOST_ENTRIES} files; deny by paths from its top, or work on less"
                )));
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = inside.join(entry.file_name());
            let denied = self.denied(&path).filter(|denied| !is_masked || *denied > above);
            if let Some(denied) = denied {
                let real = if kind.is_symlink() { self.behind(&path) } else { Some(path.clone()) };
                if let Some(real) = real {
                    self.add(real, denied)?;
                }
            }
            if kind.is_dir() && denied != Some(Restriction::Hidden) {
                self.walk(&path, denied.unwrap_or(above), is_masked || denied.is_some())?;
            }
        }
        Ok(())
    }

    fn denied(&self, path: &Path) -> Option<Restriction> {
        let bytes = path.as_os_str().as_bytes();
        let rules = self.rules.iter().filter(|(_, files)| files.covers(bytes));
        rules.map(|(kind, _)| *kind).max()
    }

    /// What a link of the workspace leads to in the workspace.
    fn behind(&self, link: &Path) -> Option<PathBuf> {
        let real = real_path(&self.workspace.join(link))?;
        let inside = real.strip_prefix(real_path(self.workspace)?).ok()?;
        (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
    }

    fn add(&mut self, path: PathBuf, kind: Restriction) -> Result<(), EngineError> {
        let known = self.found.entry(path).or_insert(kind);
        *known = kind.max(*known);
        if self.found.len() > MOST_MASKS {
            return Err(invalid(format!(
                "permissions: more than {MOST_MASKS} files of the workspace fit what is denied; deny a directory that holds them"
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
    fn what_is_denied_is_found_where_it_is() {
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
        let at = |deny: &[&str]| masks(deny, dir.path());
        assert_eq!(at(&["Bash(x)", "Net(x.example)"]), []);
        assert_eq!(at(&["Read(/.env)"]), owned(&[(".env", Hidden)]));
        assert_eq!(
            at(&["Read(.env)"]),
            owned(&[(".env", Hidden), ("a/.env", Hidden), ("src/deep/.env", Hidden)])
        );
        assert_eq!(
            at(&["Edit(src/**)", "Read(src/deep/.env)"]),
            owned(&[("src", ReadOnly), ("src/deep/.env", Hidden)])
        );
        assert_eq!(at(&["Edit(/keys)", "Read(/keys)"]), owned(&[("keys", Hidden)]));
        assert_eq!(at(&["Read(/shown)", "Read(/out)"]), owned(&[("keys/k", Hidden)]));
        assert_eq!(at(&["Read(/none)"]), []);
    }
}
