//! Files and directories of the host that a box sees in addition to its workspace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::choice::Access;
use crate::record::path_bytes;
use crate::text;

/// A mount: a file or directory of the host and its path in the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    source: PathBuf,
    target: PathBuf,
    access: Access,
}

/// The reason why a mount is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("invalid mount; write SRC:DST, SRC:DST:ro or SRC:DST:rw")]
    Malformed,
    #[error("invalid access at the end of the mount; write `:ro`, `:rw` or nothing")]
    Access,
    #[error("the source of the mount is empty or contains a NUL byte")]
    Source,
    #[error("the target of the mount must be an absolute path without `.`, `..` or `//`")]
    TargetForm,
    #[error("cannot mount at {0}, which the box itself provides; choose another target")]
    TargetTaken(&'static str),
}

/// The directories that the box itself provides; a mount cannot replace any path beneath them.
const TAKEN_TREES: [&str; 3] = ["/proc", "/dev", "/sys"];

impl Mount {
    /// Creates a mount and checks its target. The source is checked only when the box is built.
    pub fn new(source: PathBuf, target: PathBuf, access: Access) -> Result<Self, MountError> {
        let source_bytes = source.as_os_str().as_encoded_bytes();
        if source_bytes.is_empty() || source_bytes.contains(&0) {
            return Err(MountError::Source);
        }
        check_target(&target)?;
        Ok(Self { source, target, access })
    }

    pub fn source(&self) -> &Path {
        &self.source
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the mount with an absolute source; see [`anchor`].
    #[must_use]
    pub fn anchored(self, base: &Path, home: Option<&Path>) -> Self {
        Self { source: anchor(&self.source, base, home), ..self }
    }

    /// Returns the mount as a read-only mount.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { access: Access::ReadOnly, ..self }
    }
}

/// Makes an operator's path absolute: `~/x` relative to `home`, if given, and others to `base`.
pub fn anchor(path: &Path, base: &Path, home: Option<&Path>) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) => match home {
            // `join("")` would add a slash.
            Some(home) if rest.as_os_str().is_empty() => home.to_owned(),
            Some(home) => home.join(rest),
            None => path.to_owned(),
        },
        Err(_) => base.join(path),
    }
}

fn check_target(target: &Path) -> Result<(), MountError> {
    // Compares text, because `Path::components` silently drops `.` and `//`.
    let text = target.to_str().ok_or(MountError::TargetForm)?;
    let Some(relative) = text.strip_prefix('/') else { return Err(MountError::TargetForm) };
    if relative.is_empty() {
        return Err(MountError::TargetTaken("/"));
    }
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\0', ':']);
    if !relative.split('/').all(plain) {
        return Err(MountError::TargetForm);
    }
    if let Some(tree) = TAKEN_TREES.into_iter().find(|tree| target.starts_with(tree)) {
        return Err(MountError::TargetTaken(tree));
    }
    if text == "/workspace" {
        return Err(MountError::TargetTaken("/workspace"));
    }
    Ok(())
}

impl FromStr for Mount {
    type Err = MountError;

    /// Parses `SRC:DST[:ACCESS]` from the right, so that the source can contain a colon.
    fn from_str(text: &str) -> Result<Self, MountError> {
        let (rest, last) = text.rsplit_once(':').ok_or(MountError::Malformed)?;
        let (paths, access) = match last.parse() {
            Ok(access) => (rest, access),
            Err(_) if last.contains('/') || !rest.contains(":/") => (text, Access::ReadOnly),
            Err(_) => return Err(MountError::Access),
        };
        let (source, target) = paths.rsplit_once(':').ok_or(MountError::Malformed)?;
        Self::new(source.into(), target.into(), access)
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source.display(), self.target.display(), self.access)
    }
}

/// The JSON object for a mount whose source is not UTF-8 and therefore cannot be written as text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    #[serde(with = "path_bytes")]
    source: PathBuf,
    target: PathBuf,
    access: Access,
}

/// Writes a mount as its text, or in JSON as an object if the source is not UTF-8.
impl Serialize for Mount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.source.to_str().is_some() {
            return serializer.collect_str(self);
        }
        if !serializer.is_human_readable() {
            return Err(serde::ser::Error::custom(
                "cannot write a mount whose source is not UTF-8",
            ));
        }
        let Self { source, target, access } = self.clone();
        Parts { source, target, access }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Mount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(MountVisitor)
        } else {
            text::parse(deserializer)
        }
    }
}

struct MountVisitor;

impl<'de> Visitor<'de> for MountVisitor {
    type Value = Mount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SRC:DST[:ro|rw], or an object with `source`, `target` and `access`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Mount, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Mount, A::Error> {
        let parts = Parts::deserialize(MapAccessDeserializer::new(map))?;
        let Parts { source, target, access } = parts;
        Mount::new(source, target, access).map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<(&str, &str, Access), MountError>) {
        let got = text.parse::<Mount>();
        let expect = expect.map(|(source, target, access)| Mount {
            source: source.into(),
            target: target.into(),
            access,
        });
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn mount_is_read_only_unless_the_text_ends_in_rw() {
        check("/a:/b", Ok(("/a", "/b", Access::ReadOnly)));
        check("/a:/b:ro", Ok(("/a", "/b", Access::ReadOnly)));
        check("/a:/b:rw", Ok(("/a", "/b", Access::ReadWrite)));
        check("data:/srv/data", Ok(("data", "/srv/data", Access::ReadOnly)));
        check("~/data:/data", Ok(("~/data", "/data", Access::ReadOnly)));
        check("/odd:name:/b", Ok(("/odd:name", "/b", Access::ReadOnly)));
        check("/a:/workspace/sub", Ok(("/a", "/workspace/sub", Access::ReadOnly)));
        check("/a:/device", Ok(("/a", "/device", Access::ReadOnly)));
    }

    #[test]
    fn invalid_mount_is_refused_with_its_reason() {
        for text in ["", "/a", "ro", "/a:rw"] {
            check(text, Err(MountError::Malformed));
        }
        check("/a:/b:wr", Err(MountError::Access));
        check("/a:/b:", Err(MountError::Access));
        check(":/b", Err(MountError::Source));
        for text in
            ["/a:b", "/a:", "/a:/b/../c", "/a:/b/./c", "/a:/b//c", "/a:/b/", "/a://b", "/a:/b/.."]
        {
            check(text, Err(MountError::TargetForm));
        }
        check("/a:/b\0c", Err(MountError::TargetForm));
        check("/a\0:/b", Err(MountError::Source));
        check("/a:/", Err(MountError::TargetTaken("/")));
        check("/a:/proc", Err(MountError::TargetTaken("/proc")));
        check("/a:/proc/self", Err(MountError::TargetTaken("/proc")));
        check("/a:/dev/shm:rw", Err(MountError::TargetTaken("/dev")));
        check("/a:/sys/fs", Err(MountError::TargetTaken("/sys")));
        check("/a:/workspace", Err(MountError::TargetTaken("/workspace")));
    }

    #[test]
    fn making_a_mount_source_absolute_twice_equals_doing_it_once() {
        let (base, home) = (Path::new("/base"), Some(Path::new("/home/u")));
        for (path, expect) in [
            ("x", "/base/x"),
            ("/x", "/x"),
            ("~/x", "/home/u/x"),
            ("~", "/home/u"),
            ("~x", "/base/~x"),
        ] {
            let got = anchor(Path::new(path), base, home);
            assert_eq!(got, Path::new(expect), "{path}");
            assert_eq!(anchor(&got, base, home), got);
        }
        assert_eq!(anchor(Path::new("~/x"), base, None), Path::new("~/x"));
    }

    proptest::proptest! {
        #[test]
        fn mount_parser_never_panics_and_a_mount_survives_a_round_trip(
            text in "(~?[/a-z.:]{0,8}):(/[a-z./]{0,8})(:r[ow])?|.*"
        ) {
            if let Ok(mount) = text.parse::<Mount>() {
                proptest::prop_assert_eq!(mount.to_string().parse(), Ok(mount.clone()));
                proptest::prop_assert!(mount.target().is_absolute());
                proptest::prop_assert!(!mount.target().starts_with("/proc"));
            }
        }
    }
}
