//! Reads and changes single files of a running box.
//!
//! A helper in the box does this, as an additional program with all restrictions of the box; see
//! [`belljar_init::files`]. So no process of the host resolves a name or a link that the box controls, and
//! the ledger has every access. The reply of the helper is untrusted.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Context as _;
pub use belljar_init::files::{Entry, EntryKind, MAX_ENTRIES, Metadata, Range};
use belljar_init::files::{MAX_REPLY, Refusal, Reply};
use belljar_model::display;
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};

/// The time that a helper has for its reply. A hostile box can stop the helper.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A file or directory of a box.
#[derive(Debug)]
pub enum Opened {
    File(OpenFile),
    Directory { entries: Vec<Entry>, has_more: bool },
}

/// An open file of a box, whose helper waits for a range.
#[derive(Debug)]
pub struct OpenFile {
    pub metadata: Metadata,
    helper: Helper,
}

/// The bytes of a file of a box. The helper ends when the value is dropped.
#[derive(Debug)]
pub struct Content {
    /// The reading end of a pipe. It can end before the whole range.
    pub output: OwnedFd,
    /// The helper lives as long as this connection to the supervisor.
    pub connection: UnixStream,
}

/// What happens to an existing file when a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    Refuse,
    Replace,
}

/// A file that is being written. Nothing changes before all its bytes were received.
#[derive(Debug)]
pub struct Writing {
    helper: Helper,
}

/// A helper that was started in a box, with the host's ends of its streams.
#[derive(Debug)]
struct Helper {
    connection: UnixStream,
    input: OwnedFd,
    output: OwnedFd,
    /// The name of the box and the path, for errors.
    about: String,
}

/// Opens a file of a box, or lists at most `limit` entries of a directory whose names follow `after`.
pub fn open(
    state: &Scoped,
    of: &NamedBox,
    path: &[u8],
    after: &[u8],
    limit: usize,
) -> Result<Opened, EngineError> {
    let limit = limit.min(MAX_ENTRIES).to_string();
    let helper = Helper::start(state, of, path, [b"open", path, after, limit.as_bytes()])?;
    match helper.reply()? {
        Reply::File(metadata) => Ok(Opened::File(OpenFile { metadata, helper })),
        Reply::Directory { entries, has_more } => Ok(Opened::Directory { entries, has_more }),
        Reply::Refused(why) => Err(helper.refused(why)),
        Reply::Written { .. } | Reply::Removed => Err(helper.unexpected()),
    }
}

/// Starts to write a file of this length. The caller writes its bytes to [`Writing::input`].
pub fn write(
    state: &Scoped,
    of: &NamedBox,
    path: &[u8],
    length: u64,
    if_exists: IfExists,
) -> Result<Writing, EngineError> {
    let how: &[u8] = match if_exists {
        IfExists::Refuse => b"new",
        IfExists::Replace => b"replace",
    };
    let length = length.to_string();
    let helper = Helper::start(state, of, path, [b"write", path, length.as_bytes(), how])?;
    Ok(Writing { helper })
}

/// Removes a file, a symbolic link or an empty directory of a box.
pub fn remove(state: &Scoped, of: &NamedBox, path: &[u8]) -> Result<(), EngineError> {
    let helper = Helper::start(state, of, path, [b"remove", path])?;
    match helper.reply()? {
        Reply::Removed => Ok(()),
        Reply::Refused(why) => Err(helper.refused(why)),
        Reply::File(_) | Reply::Directory { .. } | Reply::Written { .. } => {
            Err(helper.unexpected())
        }
    }
}

impl OpenFile {
    /// Asks for a part of the file.
    pub fn read(self, range: Range) -> Result<Content, EngineError> {
        let Helper { connection, input, output, about } = self.helper;
        // The pipe is empty, so this never blocks.
        rustix::io::write(&input, &range.encode())
            .with_context(|| format!("cannot read {about}"))
            .kind(ErrorKind::WrongState)?;
        Ok(Content { output, connection })
    }
}

impl Writing {
    /// Returns a descriptor for the bytes of the file. Writing fails after the helper has refused the file.
    pub fn input(&self) -> Result<OwnedFd, EngineError> {
        let input = self.helper.input.try_clone();
        input.context("cannot duplicate a descriptor").kind(ErrorKind::Broken)
    }

    /// Waits until the file is complete, after all bytes were written. Returns whether the file is new.
    pub fn finish(self) -> Result<bool, EngineError> {
        match self.helper.reply()? {
            Reply::Written { is_new } => Ok(is_new),
            Reply::Refused(why) => Err(self.helper.refused(why)),
            Reply::File(_) | Reply::Directory { .. } | Reply::Removed => {
                Err(self.helper.unexpected())
            }
        }
    }
}

impl Helper {
    fn start<const N: usize>(
        state: &Scoped,
        of: &NamedBox,
        path: &[u8],
        arguments: [&[u8]; N],
    ) -> Result<Self, EngineError> {
        let about = format!("{} of box {}", display::safe(path), of.name());
        let request = ToSupervisor::ExecFiles(arguments.map(<[u8]>::to_vec).to_vec());
        let (connection, response) = supervisor::call(state, of, &request, Some(REPLY_TIMEOUT))?;
        let gone = || stopped(&about);
        if !matches!(response, FromSupervisor::ExecStarted) {
            return Err(gone());
        }
        let streams = supervisor::receive_descriptors(&connection)
            .context("cannot receive the streams of the helper")
            .kind(ErrorKind::Broken)?;
        let [input, output, _] = <[OwnedFd; 3]>::try_from(streams).map_err(|_| gone())?;
        Ok(Self { connection, input, output, about })
    }

    /// Waits for the reply of the helper.
    fn reply(&self) -> Result<Reply, EngineError> {
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let length = self.read(4, deadline)?;
        let length = <[u8; 4]>::try_from(length.as_slice()).map_err(|_| self.unexpected())?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_REPLY {
            return Err(self.unexpected());
        }
        let reply = self.read(length, deadline)?;
        belljar_init::wire::decode(&reply).map_err(|_| self.unexpected())
    }

    /// Reads this many bytes from the helper.
    fn read(&self, length: usize, deadline: Instant) -> Result<Vec<u8>, EngineError> {
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        while bytes.len() < length {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&timespec(left))) {
                Ok(0) => {
                    let text = format!("the box did not respond in time: {}", self.about);
                    return Err(EngineError::message(ErrorKind::Busy, text));
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    return Err(error)
                        .context("cannot wait for the helper")
                        .kind(ErrorKind::Broken);
                }
            }
            let wanted = chunk.get_mut(..(length - bytes.len()).min(4096)).unwrap_or_default();
            match rustix::io::read(&self.output, wanted) {
                Ok(0) => return Err(stopped(&self.about)),
                Ok(read) => bytes.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(error)
                        .context("cannot read from the helper")
                        .kind(ErrorKind::Broken);
                }
            }
        }
        Ok(bytes)
    }

    /// Returns the error for a refusal of the helper.
    fn refused(&self, why: Refusal) -> EngineError {
        let (kind, text) = match why {
            Refusal::NotFound => (ErrorKind::NotFound, "there is no such file".to_owned()),
            Refusal::Exists => (ErrorKind::AlreadyExists, "the file exists already".to_owned()),
            Refusal::IsDirectory => (ErrorKind::WrongState, "it is a directory".to_owned()),
            Refusal::IsSpecial => {
                (ErrorKind::WrongState, "it is neither a file nor a directory".to_owned())
            }
            Refusal::NotEmpty => (ErrorKind::WrongState, "the directory is not empty".to_owned()),
            Refusal::Denied => {
                (ErrorKind::Refused, "the user of the box has no permission".to_owned())
            }
            Refusal::Full => (ErrorKind::WrongState, "the disk of the box is full".to_owned()),
            Refusal::Incomplete => (ErrorKind::Conflict, "the file is incomplete".to_owned()),
            Refusal::Usage => (ErrorKind::Broken, "the helper was started wrongly".to_owned()),
            Refusal::Failed { errno } => {
                (ErrorKind::WrongState, std::io::Error::from_raw_os_error(errno).to_string())
            }
        };
        EngineError::message(kind, format!("{}: {text}", self.about))
    }

    fn unexpected(&self) -> EngineError {
        let text = format!("{}: a program in the box disturbed the helper", self.about);
        EngineError::message(ErrorKind::WrongState, text)
    }
}

/// Returns the error for a helper that ended without a reply.
fn stopped(about: &str) -> EngineError {
    let text = format!("{about}: the box stopped, or a program in it ended the helper");
    EngineError::message(ErrorKind::WrongState, text)
}
