//! Copies files between the host and a running box, for `belljar cp`.
//!
//! A program in the box reads and writes the files of the box, as an additional program with all restrictions.
//! So every name of the box is resolved inside of the box. The host reads and writes only the path that the
//! user typed, and treats the stream of the box as hostile; see [`belljar_workspace::unpack`].

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::display;
use belljar_workspace::{PACKED_NAME, TransferError, Transferred, UnpackLimits, Unpacked};

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::logging;
use crate::scope::Scoped;
use crate::supervisor::{
    self,
    protocol::{ExecSpec, FromSupervisor, ToSupervisor},
};

/// Sends the file or directory `$2` of the directory `$1` as an archive.
const READ: &str = r#"
cd -- "$1" 2>/dev/null || exit 40
if [ -L "$2" ]; then exit 41; fi
if [ ! -e "$2" ]; then exit 40; fi
if [ ! -f "$2" ] && [ ! -d "$2" ]; then exit 42; fi
exec tar -cf - -- "./$2"
"#;

/// Receives an archive and creates `$2` in the directory `$1` from it. If `$2` is a directory, the name in it
/// is `$3`. With `$4`, an existing file is replaced. With `$5`, `$2` must be a directory. `$6` is the name in
/// the archive. The copy appears when it is complete.
const WRITE: &str = r#"
cd -- "$1" 2>/dev/null || exit 40
name=$2 exists=43
if [ -d "./$name" ]; then cd -- "./$name" && name=$3 exists=45 || exit 40; elif [ "$5" ]; then exit 40; fi
if [ -L "./$name" ]; then exit 41; fi
if [ -e "./$name" ]; then
  if [ ! -f "./$name" ] && [ ! -d "./$name" ]; then exit 42; fi
  if [ -d "./$name" ] || [ -z "$4" ]; then exit "$exists"; fi
fi
new=$(mktemp -d ./.belljar-cp-XXXXXX) || exit 44
trap 'rm -rf -- "$new"' EXIT
tar -xof - -C "$new" || exit 44
if [ -z "$4" ] && [ -e "./$name" ]; then exit "$exists"; fi
mv -f -T -- "$new/$6" "./$name" || exit 44
"#;

/// The maximum number of bytes of error output that are kept.
const MAX_ERROR: u64 = 4096;

/// A path in a box, as the user typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxPath(pub PathBuf);

impl BoxPath {
    /// Returns the directory and the last component of the path.
    fn split(&self) -> Result<(Vec<u8>, Vec<u8>), EngineError> {
        let text = self.0.display();
        let name = self.0.file_name().map(|name| name.as_bytes().to_vec());
        let name = name.ok_or_else(|| invalid(format!("`{text}` in the box has no file name")))?;
        let dir = self.0.parent().map(|dir| dir.as_os_str().as_bytes().to_vec());
        Ok((dir.filter(|dir| !dir.is_empty()).unwrap_or_else(|| b".".to_vec()), name))
    }
}

/// Copies a file or directory of a box to the host. `to` is the new name, or a directory for it.
pub fn copy_from_box(
    state: &Scoped,
    of: &NamedBox,
    from: &BoxPath,
    to: &Path,
    limits: UnpackLimits,
) -> Result<(Transferred, PathBuf), EngineError> {
    let (dir, name) = from.split()?;
    let to = match to.is_dir() {
        true => to.join(from.0.file_name().unwrap_or_default()),
        false => to.to_owned(),
    };
    let program = Running::start(state, of, READ, [&dir, &name])?;
    drop(program.input);
    let errors = logging::spawn(move || text_of(program.error));
    let mut output = File::from(program.output);
    let unpacked = belljar_workspace::unpack(&mut output, &name, &to, limits);
    drop(output);
    let ended = end(&program.connection);
    let errors = errors.join().unwrap_or_default();
    // The status of the program explains an empty or truncated stream better than the stream does.
    match (ended, unpacked) {
        (Some(0), unpacked) => {
            let kept = unpacked.and_then(Unpacked::keep);
            Ok((kept.map_err(|error| transfer_error(of, error))?, to))
        }
        (Some(1), Ok(_)) => {
            let text = format!("{} changed while it was copied; try again", from.0.display());
            Err(EngineError::message(ErrorKind::Conflict, format!("box {}: {text}", of.name())))
        }
        (_, Err(error)) if !is_of_stream(&error) => Err(transfer_error(of, error)),
        (status, _) => Err(failure(of, from, status, &errors)),
    }
}

/// Copies a file or directory of the host to a box. `to` is the new name, or a directory for it.
pub fn copy_to_box(
    state: &Scoped,
    of: &NamedBox,
    from: &Path,
    to: &BoxPath,
    replace: bool,
) -> Result<Transferred, EngineError> {
    let own = std::path::absolute(from).ok();
    let own = own.as_deref().and_then(Path::file_name).map(|name| name.as_bytes().to_vec());
    let own = own.ok_or_else(|| invalid(format!("`{}` has no file name", from.display())))?;
    let must_be_directory = to.0.as_os_str().as_bytes().ends_with(b"/");
    let flag = |is_set: bool| if is_set { b"1".to_vec() } else { Vec::new() };
    let (dir, name) = match to.0.file_name() {
        Some(_) => to.split()?,
        None => (to.0.as_os_str().as_bytes().to_vec(), b".".to_vec()), // `/` or `..`
    };
    let packed_name = PACKED_NAME.as_bytes().to_vec();
    let (replace, must_be_directory) = (flag(replace), flag(must_be_directory));
    let arguments = [&dir, &name, &own, &replace, &must_be_directory, &packed_name];
    // A source that cannot be read starts no program.
    std::fs::symlink_metadata(from)
        .with_context(|| format!("cannot open {}", from.display()))
        .kind(ErrorKind::Invalid)?;
    let program = Running::start(state, of, WRITE, arguments)?;
    drop(program.output);
    let errors = logging::spawn(move || text_of(program.error));
    let mut input = io::BufWriter::new(File::from(program.input));
    let packed = belljar_workspace::pack(from, &mut input);
    // The program must not take an incomplete archive for a complete one.
    if packed.as_ref().is_err_and(|error| !is_of_stream(error)) {
        supervisor::send(&program.connection, &ToSupervisor::Signal(9)).ok(); // it can have ended
    }
    drop(input.into_parts());
    let ended = end(&program.connection);
    let errors = errors.join().unwrap_or_default();
    match (ended, packed) {
        (_, Err(error)) if !is_of_stream(&error) => Err(transfer_error(of, error)),
        (Some(0), packed) => packed.map_err(|error| transfer_error(of, error)),
        (status, _) => Err(failure(of, to, status, &errors)),
    }
}

/// A program that was started in a box, with the host's ends of its streams.
struct Running {
    connection: UnixStream,
    input: OwnedFd,
    output: OwnedFd,
    error: OwnedFd,
}

impl Running {
    fn start<const N: usize>(
        state: &Scoped,
        of: &NamedBox,
        script: &str,
        arguments: [&Vec<u8>; N],
    ) -> Result<Self, EngineError> {
        let words = ["sh", "-c", script, "belljar-cp"].map(|word| word.as_bytes().to_vec());
        let spec = ExecSpec {
            argv: words.into_iter().chain(arguments.into_iter().cloned()).collect(),
            // Programs that the box installed in its home are not used.
            env: vec![(b"PATH".to_vec(), b"/usr/local/bin:/usr/bin:/bin".to_vec())],
            workdir: None,
            terminal: None,
        };
        let gone =
            || EngineError::message(ErrorKind::WrongState, format!("box {} stopped", of.name()));
        let (connection, response) = supervisor::call(state, of, &ToSupervisor::Exec(spec), None)?;
        if !matches!(response, FromSupervisor::ExecStarted) {
            return Err(gone());
        }
        let streams = supervisor::receive_descriptors(&connection)
            .context("cannot receive the streams of the program")
            .kind(ErrorKind::Broken)?;
        let [input, output, error] = <[OwnedFd; 3]>::try_from(streams).map_err(|_| gone())?;
        Ok(Self { connection, input, output, error })
    }
}

/// Waits for the end of the program and returns its exit status.
fn end(connection: &UnixStream) -> Option<i32> {
    let ended = supervisor::receive(connection).ok()?;
    let Some(FromSupervisor::ExecEnded { exit, .. }) = ended else { return None };
    exit
}

/// Reads the error output of the program, and discards what exceeds the limit.
fn text_of(error: OwnedFd) -> String {
    let mut file = File::from(error);
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_ERROR).read_to_end(&mut bytes).ok(); // what was read is used
    io::copy(&mut file, &mut io::sink()).ok();
    display::safe_line(String::from_utf8_lossy(&bytes).trim()).to_string()
}

/// Returns whether the error only shows that the program in the box ended early.
fn is_of_stream(error: &TransferError) -> bool {
    matches!(error, TransferError::Stream(_) | TransferError::Malformed(_))
}

fn transfer_error(of: &NamedBox, error: TransferError) -> EngineError {
    let kind = match error {
        TransferError::Open { .. }
        | TransferError::Link { .. }
        | TransferError::Special { .. }
        | TransferError::Exists { .. } => ErrorKind::Invalid,
        TransferError::Changed { .. } => ErrorKind::Conflict,
        TransferError::Read { .. }
        | TransferError::Write { .. }
        | TransferError::TooLarge { .. }
        | TransferError::TooMany
        | TransferError::Malformed(_)
        | TransferError::Name(_)
        | TransferError::Stream(_) => ErrorKind::Broken,
    };
    let exists = matches!(error, TransferError::Exists { .. });
    let error = anyhow::Error::new(error).context(format!("cannot copy with box {}", of.name()));
    let error = EngineError::new(kind, error);
    if exists { error.advise("choose another name, or replace a file with --force") } else { error }
}

/// Explains the exit status of the program in the box.
fn failure(of: &NamedBox, path: &BoxPath, status: Option<i32>, errors: &str) -> EngineError {
    let path = path.0.display();
    let (kind, why) = match status {
        Some(40) => (ErrorKind::Invalid, format!("there is no {path} in the box")),
        Some(41) => (
            ErrorKind::Invalid,
            format!("{path} is a symbolic link; name the file that it leads to"),
        ),
        Some(42) => (ErrorKind::Invalid, format!("{path} is neither a file nor a directory")),
        Some(43) => (
            ErrorKind::Invalid,
            format!(
                "{path} exists in the box; choose another name, or replace a file with --force"
            ),
        ),
        Some(45) => (
            ErrorKind::Invalid,
            format!(
                "{path} has a file of this name; copy to another name, or replace a file with --force"
            ),
        ),
        Some(_) => (ErrorKind::Broken, format!("cannot copy {path}: {errors}")),
        None => (ErrorKind::WrongState, format!("the box stopped while {path} was copied")),
    };
    EngineError::message(kind, format!("box {}: {why}", of.name()))
}
