//! The accepted pins of all servers, in `$BELLJAR_HOME/mcp/pins.json`.
//!
//! The file is replaced atomically, under a lock. Symbolic links are never followed.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

const FILE: &str = "pins.json";
const NEW: &str = "pins.json.new";
/// The maximum size of the pin file, enough for about 20,000 tools.
const MAX_BYTES: u64 = 8 << 20;
const VERSION: u32 = 1;

/// Hashes of a tool's definition at the time when the operator accepted it.
///
/// `whole` decides whether the definition changed. The other hashes show which part changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub whole: String,
    pub server: String,
    pub description: String,
    pub input: String,
    pub output: String,
}

/// The reason why the pins of tools cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("cannot {doing} the pin file {file}", file = path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the pin file {file} is damaged; no tool of an MCP server can be called until the file is restored or removed", file = path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("the pin file {file} has version {version}, but only version {VERSION} is supported", file = path.display())]
    Version { path: PathBuf, version: u32 },
    #[error("the pin file {file} is larger than the limit of {MAX_BYTES} bytes", file = path.display())]
    TooLarge { path: PathBuf },
}

/// The store of accepted pins of MCP tools.
#[derive(Debug)]
pub struct Pins {
    dir: OwnedFd,
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    servers: BTreeMap<String, BTreeMap<String, Pin>>,
}

impl Pins {
    /// Opens the pin store in a state directory and creates its directory if it is missing.
    pub fn open(home: &Path) -> Result<Self, PinError> {
        let path = home.join("mcp");
        let failed =
            |source: io::Error| PinError::File { doing: "open", path: path.clone(), source };
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self { dir, path })
    }

    /// Returns the accepted pins of one MCP server, by tool name.
    pub fn of(&self, server: &str) -> Result<BTreeMap<String, Pin>, PinError> {
        Ok(self.read()?.servers.remove(server).unwrap_or_default())
    }

    /// Stores the pins of accepted tools of a server, and removes the pins of the tools in `gone`.
    pub fn accept(
        &self,
        server: &str,
        tools: &[(String, Pin)],
        gone: &[String],
    ) -> Result<(), PinError> {
        let _lock = self.lock()?;
        let mut stored = self.read()?;
        let of_server = stored.servers.entry(server.to_owned()).or_default();
        of_server.retain(|name, _| !gone.contains(name));
        of_server.extend(tools.iter().cloned());
        if of_server.is_empty() {
            stored.servers.remove(server);
        }
        self.write(&stored)
    }

    fn read(&self) -> Result<Stored, PinError> {
        let path = || self.path.join(FILE);
        // A symbolic link must not be followed, and a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, FILE, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Stored { version: VERSION, servers: BTreeMap::new() }),
            Err(errno) => return Err(self.failed("open", FILE, errno)),
        };
        let mut text = Vec::new();
        let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
        if !is_file {
            return Err(self.failed("open", FILE, io::Error::other("not a regular file")));
        }
        let read = file.take(MAX_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| self.failed("read", FILE, error))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(PinError::TooLarge { path: path() });
        }
        let stored: Stored = serde_json::from_slice(&text)
            .map_err(|source| PinError::Damaged { path: path(), source })?;
        match stored.version {
            VERSION => Ok(stored),
            version => Err(PinError::Version { path: path(), version }),
        }
    }

    fn write(&self, stored: &Stored) -> Result<(), PinError> {
        let text = serde_json::to_vec_pretty(stored)
            .map_err(|error| self.failed("write", FILE, io::Error::other(error)))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(PinError::TooLarge { path: self.path.join(FILE) });
        }
        // A killed writer can leave a temporary file behind. Usually there is none.
        rustix::fs::unlinkat(&self.dir, NEW, AtFlags::empty()).ok();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&self.dir, NEW, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|file| {
                let mut file = File::from(file);
                file.write_all(&text)?;
                file.sync_all()
            });
        written.map_err(|error| self.failed("write", NEW, error))?;
        rustix::fs::renameat(&self.dir, NEW, &self.dir, FILE)
            .and_then(|()| rustix::fs::fsync(&self.dir))
            .map_err(|errno| self.failed("replace", FILE, errno))
    }

    /// Waits for the exclusive lock on the pin store.
    fn lock(&self) -> Result<OwnedFd, PinError> {
        // A new descriptor, because flock locks belong to the open file and `self.dir` stays open.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let locked = rustix::fs::openat(&self.dir, ".", flags, Mode::empty()).and_then(|dir| {
            rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
            Ok(dir)
        });
        locked.map_err(|errno| self.failed("lock", ".", errno))
    }

    fn failed(&self, doing: &'static str, name: &str, source: impl Into<io::Error>) -> PinError {
        PinError::File { doing, path: self.path.join(name), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn pin(text: &str) -> Pin {
        let text = text.to_owned();
        Pin {
            whole: text.clone(),
            server: text.clone(),
            description: text.clone(),
            input: text.clone(),
            output: text,
        }
    }

    #[test]
    fn accepted_tool_pins_are_stored_per_server() {
        let home = tempfile::tempdir().unwrap();
        let pins = Pins::open(home.path()).unwrap();
        assert!(pins.of("a").unwrap().is_empty());
        pins.accept("a", &[("x".into(), pin("1")), ("y".into(), pin("2"))], &[]).unwrap();
        pins.accept("b", &[("x".into(), pin("3"))], &[]).unwrap();
        pins.accept("a", &[("x".into(), pin("4"))], &["y".into()]).unwrap();
        let again = Pins::open(home.path()).unwrap();
        assert_eq!(again.of("a").unwrap(), [("x".to_owned(), pin("4"))].into());
        assert_eq!(again.of("b").unwrap(), [("x".to_owned(), pin("3"))].into());
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(home.path().join("mcp")), 0o700);
        assert_eq!(mode(home.path().join("mcp/pins.json")), 0o600);
    }

    #[test]
    fn concurrent_accepts_of_tools_lose_no_pin() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let pins = Pins::open(home.path()).unwrap();
                scope.spawn(move || {
                    pins.accept("s", &[(format!("t{number}"), pin("1"))], &[]).unwrap();
                });
            }
        });
        assert_eq!(Pins::open(home.path()).unwrap().of("s").unwrap().len(), 16);
    }

    #[test]
    fn f09_damaged_and_symlinked_pin_files_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let pins = Pins::open(home.path()).unwrap();
        pins.accept("s", &[("t".into(), pin("1"))], &[]).unwrap();
        assert_eq!(pins.of("s").unwrap().len(), 1, "the control");
        let file = home.path().join("mcp/pins.json");
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, &text[..text.len() - 2]).unwrap();
        assert!(matches!(pins.of("s"), Err(PinError::Damaged { .. })));
        std::fs::write(&file, r#"{"version":2,"servers":{}}"#).unwrap();
        assert!(matches!(pins.of("s"), Err(PinError::Version { version: 2, .. })));
        std::fs::File::create(&file).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(pins.of("s"), Err(PinError::TooLarge { .. })));
        std::fs::remove_file(&file).unwrap();
        let elsewhere = home.path().join("elsewhere");
        std::fs::write(&elsewhere, &text).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(matches!(pins.of("s"), Err(PinError::File { .. })));
        std::fs::remove_file(&file).unwrap();
        // A write does not follow a symbolic link either.
        symlink(&elsewhere, home.path().join("mcp/pins.json.new")).unwrap();
        pins.accept("s", &[("u".into(), pin("1"))], &[]).unwrap();
        assert_eq!(std::fs::read(&elsewhere).unwrap(), text);
    }
}
