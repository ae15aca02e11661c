//! Paths relative to the workspace, as bytes.
//!
//! **Invariant:** a [`RelPath`] never starts with `/`, has no empty, `.` or `..` component,
//! contains no NUL byte and is short enough for one system call. Names of a box that violate this
//! are reported and skipped.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use serde::{Deserialize, Serialize};

use crate::lossless;

/// The longest path that the kernel accepts in one call, without the NUL byte. A longer path is
/// unusable for programs on the host, so it cannot be applied.
pub const MAX_PATH: usize = 4095;

/// A path relative to the workspace; the empty path is the workspace itself.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RelPath(Vec<u8>);

/// The reason why a path is not valid in the workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is absolute; use a path relative to the workspace")]
    Absolute,
    #[error("the path contains `..`, which is not allowed")]
    Parent,
    #[error("the path contains a NUL byte")]
    Nul,
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
    #[error("the path contains an invalid escape")]
    Escape {
        #[from]
        source: lossless::BadEscape,
    },
}

impl RelPath {
    /// Returns the path of the workspace itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Parses a path and normalizes it: `./a//b/` becomes `a/b`.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, PathError> {
        let bytes = bytes.as_ref();
        if bytes.starts_with(b"/") {
            return Err(PathError::Absolute);
        }
        let parts = bytes.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        parts.into_iter().try_fold(Self::root(), |path, part| path.join(part))
    }

    /// Returns this path with one more component.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
            return Err(PathError::Parent);
        }
        if name.contains(&0) {
            return Err(PathError::Nul);
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        if bytes.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        Ok(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the components of the path, outermost first.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|part| !part.is_empty())
    }

    /// Returns the parent directory and the last component, or `None` for the root.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => {
                let (parent, name) = self.0.split_at_checked(slash)?;
                Some((Self(parent.to_vec()), name.get(1..)?))
            }
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Returns the last component of the path; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// Returns every directory above this path, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.split(), |(parent, _)| {
            parent.split().map(|(grandparent, _)| (grandparent, &[][..]))
        })
        .map(|(parent, _)| parent)
        .take_while(|parent| !parent.is_root())
    }

    /// Returns whether this path is `top` or beneath it.
    pub fn is_within(&self, top: &Self) -> bool {
        match self.0.strip_prefix(top.0.as_slice()) {
            Some(rest) => top.is_root() || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }

    /// Returns whether this path is beneath `top` and not `top` itself.
    pub fn is_beneath(&self, top: &Self) -> bool {
        self != top && self.is_within(top)
    }
}

/// Compares paths component by component, so that everything beneath a directory follows it: `a`,
/// `a/b`, `a.c`.
impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(other.parts())
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats the path in its escaped form, which is safe for logs. `diff` formats paths for people.
impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&lossless::encode(&self.0), f)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        lossless::encode(&path.0)
    }
}

impl TryFrom<String> for RelPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::new(lossless::decode(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn c10_a_path_that_leaves_the_workspace_is_refused() {
        for bad in ["/etc/passwd", "..", "a/../b", "a/..", "a\0b"] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(RelPath::new("x/".repeat(3000)).is_err());
        assert_eq!(path("./a//b/").as_bytes(), b"a/b");
        assert!(path("").is_root());
        for bad in ["", ".", "..", "a/b"] {
            assert!(path("a").join(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_beneath_a_directory_sort_directly_after_it() {
        let mut paths = ["a.c", "b", "a/z", "a", "a/b/c", "a-"].map(path);
        paths.sort();
        assert_eq!(paths, ["a", "a/b/c", "a/z", "a-", "a.c", "b"].map(path));
    }

    #[test]
    fn is_beneath_compares_whole_path_components() {
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(path("a").is_within(&RelPath::root()));
        assert!(!path("ab").is_within(&path("a")));
        assert!(!path("a").is_beneath(&path("a")));
        let above: Vec<_> = path("a/b/c").ancestors().collect();
        assert_eq!(above, [path("a/b"), path("a")]);
        assert_eq!(path("a").ancestors().count(), 0);
        assert_eq!(path("a/b").split(), Some((path("a"), &b"b"[..])));
        assert_eq!(RelPath::root().split(), None);
        assert_eq!((path("a/b").name(), path("a").name()), (&b"b"[..], &b"a"[..]));
        assert_eq!(RelPath::root().name(), b"");
    }

    proptest::proptest! {
        #[test]
        fn workspace_path_survives_a_round_trip_through_json(bytes: Vec<u8>) {
            if let Ok(path) = RelPath::new(&bytes) {
                let text = serde_json::to_string(&path).unwrap();
                let back: RelPath = serde_json::from_str(&text).unwrap();
                proptest::prop_assert_eq!(back, path);
            }
        }
    }
}
