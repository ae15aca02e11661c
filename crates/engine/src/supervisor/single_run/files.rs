//! The files of a run that a server requested, in the directory of the run: who requested it, and the start of
//! each output stream.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::Context as _;
use belljar_box::Stream as BoxStream;
use belljar_model::caller::Principal;
use belljar_model::{RunId, RunRecord, RunState};
use belljar_wire::Stream;
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::store::{Run, durable};

/// The number of bytes of each output stream that are kept.
pub const KEPT_OUTPUT: u64 = 16 << 20;

/// The file with the [`Request`]. A run without it was not requested by a server.
const REQUEST: &str = "request.json";

/// Who requested a run. Unknown fields of later versions are ignored.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    maker: Principal,
}

const fn file_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

/// The files that the output of a running program is written to.
#[derive(Debug)]
pub(super) struct OutputFiles {
    stdout: KeptFile,
    stderr: KeptFile,
}

/// The start of an output stream.
#[derive(Debug)]
struct KeptFile {
    file: File,
    /// The number of bytes that can be written. Nothing more is written after an error.
    left: u64,
}

impl OutputFiles {
    /// Creates the files in the directory of a run.
    pub(super) fn create(dir: &Path, maker: &Principal) -> io::Result<Self> {
        let request = serde_json::to_vec(&Request { maker: maker.clone() })?;
        durable::write_unsynced(dir, REQUEST, &request)?;
        let create = |stream| {
            let file = File::create_new(dir.join(file_name(stream)))?;
            io::Result::Ok(KeptFile { file, left: KEPT_OUTPUT })
        };
        Ok(Self { stdout: create(Stream::Stdout)?, stderr: create(Stream::Stderr)? })
    }

    pub(super) fn write(&mut self, stream: BoxStream, chunk: &[u8]) {
        match stream {
            BoxStream::Output => self.stdout.write(chunk),
            BoxStream::Error => self.stderr.write(chunk),
        }
    }
}

impl KeptFile {
    /// Writes the part of a chunk that is kept. Without space on the disk, the rest of the stream is lost, as
    /// the number of kept bytes shows.
    fn write(&mut self, chunk: &[u8]) {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(chunk.len());
        let kept = chunk.get(..length).unwrap_or_default();
        self.left = match self.file.write_all(kept) {
            Ok(()) => self.left - kept.len() as u64,
            Err(_) => 0,
        };
    }
}

/// A run that a server requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRun {
    pub record: RunRecord,
    /// The principal that requested the run.
    pub maker: Principal,
}

/// Finds a run that a server requested. `None` if there is no such run, or if it was removed with the oldest
/// runs.
pub fn find(state: &Scoped, id: RunId) -> Result<Option<FoundRun>, EngineError> {
    let dir = state.store().layout().run(id);
    let request = match fs::read(dir.join(REQUEST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read the request of run {id}")),
    };
    let request: Request = serde_json::from_slice(&request.kind(ErrorKind::Broken)?)
        .with_context(|| format!("the request of run {id} is damaged"))
        .kind(ErrorKind::Damaged)?;
    let load = || {
        let run = Run::load(&dir).with_context(|| format!("cannot read the record of run {id}"));
        run.kind(ErrorKind::Damaged)
    };
    let mut run = load()?;
    if run.record.state == RunState::Interrupted {
        // The run can have ended after its record was read, and before its lock was probed.
        run = load()?;
    }
    Ok(Some(FoundRun { record: run.record, maker: request.maker }))
}

/// A part of an output stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptOutput {
    pub bytes: Vec<u8>,
    /// The number of bytes of the stream that are kept, up to now.
    pub kept: u64,
}

/// Reads at most `max` bytes of an output stream of a run from an offset, also while the program runs.
pub fn output(
    state: &Scoped,
    id: RunId,
    stream: Stream,
    from: u64,
    max: u64,
) -> Result<KeptOutput, EngineError> {
    let path = state.store().layout().run(id).join(file_name(stream));
    let read = || -> io::Result<KeptOutput> {
        let mut file = match File::open(&path) {
            // A host that was killed has not created the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(<_>::default()),
            opened => opened?,
        };
        let kept = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.min(kept)))?;
        let mut bytes = Vec::new();
        file.take(max.min(kept.saturating_sub(from))).read_to_end(&mut bytes)?;
        Ok(KeptOutput { bytes, kept })
    };
    read().with_context(|| format!("cannot read the output of run {id}")).kind(ErrorKind::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;

    fn created() -> (tempfile::TempDir, Scoped, RunId, OutputFiles) {
        let home = tempfile::tempdir().unwrap();
        let state = of_test(home.path());
        let (id, _) = state.new_id().unwrap();
        let dir = state.store().layout().run(id);
        fs::create_dir(&dir).unwrap();
        let files = OutputFiles::create(&dir, &state.caller().principal).unwrap();
        (home, state, id, files)
    }

    #[test]
    fn output_has_the_bytes_of_each_stream_from_an_offset() {
        let (_home, state, id, mut files) = created();
        files.write(BoxStream::Output, b"hello ");
        files.write(BoxStream::Error, b"oh");
        files.write(BoxStream::Output, b"world");
        let read = |stream, from, max| {
            let KeptOutput { bytes, kept } = output(&state, id, stream, from, max).unwrap();
            (String::from_utf8(bytes).unwrap(), kept)
        };
        assert_eq!(read(Stream::Stdout, 0, 99), ("hello world".to_owned(), 11));
        assert_eq!(read(Stream::Stdout, 6, 3), ("wor".to_owned(), 11));
        assert_eq!(read(Stream::Stdout, 11, 99), (String::new(), 11));
        assert_eq!(read(Stream::Stdout, u64::MAX, 99), (String::new(), 11));
        assert_eq!(read(Stream::Stderr, 0, 99), ("oh".to_owned(), 2));
    }

    #[test]
    fn output_above_the_limit_is_discarded() {
        let (_home, state, id, mut files) = created();
        let piece = vec![7; 5 << 20];
        for _ in 0..4 {
            files.write(BoxStream::Output, &piece);
        }
        files.write(BoxStream::Error, b"control");
        assert_eq!(output(&state, id, Stream::Stdout, 0, 1).unwrap().kept, KEPT_OUTPUT);
        assert_eq!(output(&state, id, Stream::Stderr, 0, 1).unwrap().kept, 7);
    }

    #[test]
    fn find_returns_no_run_that_a_server_did_not_request() {
        let (home, state, id, _files) = created();
        let error = find(&state, id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "control: the run has no record {error:#}");
        fs::remove_file(home.path().join(format!("runs/{id}/{REQUEST}"))).unwrap();
        assert_eq!(find(&state, id).unwrap(), None);
        assert_eq!(find(&state, RunId::new(1, 1)).unwrap(), None);
    }
}
