//! Reads a repository that a box wrote to, with a git process in a sealed box.
//!
//! git obeys the settings of that repository, and hostile settings start programs. So git runs in a box
//! without network, with the repository read-only, and with little memory and time. The host limits the
//! size of its output and trusts none of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use belljar_box::{BoxEnd, Stream, Workspace};
use belljar_model::{ByteSize, Identity, Limits, Mode, Purpose, Reason, Template};

use super::git;
use super::incoming::Incoming;
use crate::error::EngineError;
use crate::launch::{self, Environment, LaunchSpec, Streams};
use crate::scope::Scoped;

/// The shell script that reads a repository in the sealed box.
const SCRIPT: &str = include_str!("read.sh");
/// The maximum size of the git objects that are imported from a box, in MiB.
const MAX_PACK_MIB: u32 = 1024;
/// The maximum size of the git objects that are imported from a box, in bytes.
pub(super) const MAX_PACK: u64 = (MAX_PACK_MIB as u64) << 20;
/// The maximum length of one header line in the output of the sealed box, in bytes.
const MAX_HEADER_LINE: u64 = 4096;
/// The maximum number of header lines in the output of the sealed box.
const MAX_HEADER_LINES: usize = 128;

/// The request to the sealed box: which repository to read, and which commits to return.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRequest<'a> {
    /// The directory of the box's clone.
    pub(super) repo: &'a Path,
    /// A commit that the host has with its complete history. Its objects are not returned.
    pub(super) known: Option<&'a str>,
    /// Another commit to return, if the clone still has it.
    pub(super) also: Option<&'a str>,
    /// The message of the commit made from uncommitted changes.
    pub(super) message: &'a str,
    /// The author and committer of the commit made from uncommitted changes.
    pub(super) identity: &'a Identity,
}

/// The header that the sealed box writes before the pack. It is untrusted: a hostile box can forge it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadHeader {
    /// The commit that is checked out in the clone; `None` if there is no commit.
    pub(super) head: Option<String>,
    /// The last commit to import. It includes uncommitted changes.
    pub(super) tip: Option<String>,
    /// Whether some files of the clone could not be read.
    pub(super) partial: bool,
    /// The number of files and directories that `.gitignore` excludes.
    pub(super) ignored: u64,
    /// Other branches with commits that `tip` does not contain: number of commits and ref name.
    pub(super) other_branches: Vec<(u64, Vec<u8>)>,
    /// Whether a git pack follows the header.
    pub(super) has_pack: bool,
}

/// Reads the box's clone in a sealed box. The offset of the returned file is the start of the pack.
pub(super) fn read(
    state: &Scoped,
    request: &ReadRequest<'_>,
    incoming: &Incoming,
) -> anyhow::Result<(ReadHeader, File)> {
    let mut file = incoming.create_output_file()?;
    let mut stderr = Vec::new();
    let finished = run(state, request, incoming, &file, &mut stderr)?;
    if finished.reason != Reason::Exited || finished.exit != Some(0) {
        return Err(read_error(&finished, &stderr, request.repo));
    }
    file.seek(SeekFrom::Start(0)).context("cannot read the output of the sealed box")?;
    let mut reader = BufReader::new(&file);
    let header = parse(&mut reader).context("cannot parse the output of the sealed box")?;
    let offset = reader.stream_position().context("cannot read the output of the sealed box")?;
    file.seek(SeekFrom::Start(offset)).context("cannot read the output of the sealed box")?;
    Ok((header, file))
}

/// Runs the script in a sealed box. The output goes to a file, the standard error to a buffer.
fn run(
    state: &Scoped,
    request: &ReadRequest<'_>,
    incoming: &Incoming,
    output: &File,
    stderr: &mut Vec<u8>,
) -> anyhow::Result<BoxEnd> {
    let (place, path) = belljar_box::open(request.repo)?;
    let id = state.new_id().map_err(EngineError::into_inner)?;
    let argv = ["/bin/sh", "-c", SCRIPT].map(OsString::from).to_vec();
    let mut spec = LaunchSpec::new(id, Purpose::CloneReader, template(), argv);
    spec.recorded_argv = Some(vec!["git".to_owned(), "read a clone".to_owned()]);
    spec.environment = Environment::Exactly(environment(request, &incoming.program().path)?);
    let workspace = Workspace { place, path, layers: None, scratch: false };
    spec.at = Some(launch::workspace_at(&workspace)?);
    spec.workspace = Some(workspace);
    let null = File::open("/dev/null").context("cannot open /dev/null")?;
    let mark = state.store().mark_call(id.0)?;
    let launched = launch::launch(state, spec).map_err(EngineError::into_inner);
    let launched = launched.context("cannot start the sealed box that reads the repository")?;
    let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| match stream {
        Stream::Output => kept.extend_from_slice(chunk),
        Stream::Error => {
            const MAX_STDERR: usize = 4096;
            let free = MAX_STDERR.saturating_sub(stderr.len());
            stderr.extend(chunk.iter().take(free));
        }
    };
    let streams = Streams {
        input: null.as_fd(),
        output: output.as_fd(),
        error: null.as_fd(),
        filter: &mut filter,
        stop: None,
    };
    let ended = launched.supervise(state, streams, || ()).map_err(EngineError::into_inner);
    let mut ended = ended.context("cannot read the repository in the sealed box")?;
    let result = ended.result(None);
    ended.record_or_notice(state, &result, None);
    drop((ended.teardown, mark));
    Ok(ended.finished)
}

/// Returns the template of the sealed box: a read-only workspace, no network, and small limits.
fn template() -> Template {
    let limits = Limits {
        memory: ByteSize::mib(2048),
        disk: ByteSize::mib(1536),
        pids: 64,
        output: ByteSize::mib(MAX_PACK_MIB),
        timeout: Some(Duration::from_secs(300)),
        ..Limits::default()
    };
    Template { name: "repository".into(), mode: Mode::ReadOnly, limits, ..Template::default() }
}

/// Returns the environment of the sealed box. Its git settings give correct output for an honest repository.
fn environment(request: &ReadRequest<'_>, git: &Path) -> anyhow::Result<Vec<(OsString, OsString)>> {
    const SETTINGS: [(&str, &str); 7] = [
        ("core.hooksPath", "/dev/null"),
        ("core.fsmonitor", "false"),
        ("core.untrackedCache", "false"),
        ("gc.auto", "0"),
        ("commit.gpgSign", "false"),
        ("pack.threads", "1"),
        ("safe.directory", "*"),
    ];
    let (_, program) = belljar_box::open(git)?;
    let mut path = OsString::from(program.parent().unwrap_or(Path::new("/usr/bin")));
    path.push(":/usr/bin:/bin");
    let (name, email) = (request.identity.name(), request.identity.email());
    let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), path)];
    let fixed = [
        ("HOME", belljar_box::view::HOME),
        ("LC_ALL", "C.UTF-8"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_AUTHOR_NAME", name),
        ("GIT_AUTHOR_EMAIL", email),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
        ("KNOWN", request.known.unwrap_or_default()),
        ("ALSO", request.also.unwrap_or_default()),
        ("MESSAGE", request.message),
    ];
    env.extend(fixed.map(|(name, value)| (name.into(), value.into())));
    env.push(("GIT_CONFIG_COUNT".into(), SETTINGS.len().to_string().into()));
    for (index, (key, value)) in SETTINGS.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{index}").into(), value.into()));
    }
    Ok(env)
}

/// Returns the error for a sealed box that failed. The error names the directory with the box's files.
fn read_error(finished: &BoxEnd, stderr: &[u8], repo: &Path) -> anyhow::Error {
    let why = match finished.reason {
        Reason::Output => format!("its objects exceed the limit of {MAX_PACK_MIB} MiB"),
        Reason::Exited => git::summary(stderr),
        Reason::Signaled
        | Reason::Timeout
        | Reason::Memory
        | Reason::Pids
        | Reason::Disk
        | Reason::Interrupted
        | Reason::NotFound
        | Reason::NotExecutable
        | Reason::CouldNotStart => {
            format!("the git process in the sealed box was stopped: {}", finished.reason.name())
        }
    };
    anyhow!("cannot read the repository of the box: {why}; its files are in {}", repo.display())
}

/// Parses the header lines that the sealed box writes before the git pack.
fn parse(from: &mut impl std::io::BufRead) -> anyhow::Result<ReadHeader> {
    if line(from)? != b"belljar-work 1" {
        bail!("the first line of the output is not `belljar-work 1`");
    }
    let mut header = ReadHeader::default();
    for _ in 0..MAX_HEADER_LINES {
        let line = line(from)?;
        let mut parts = line.splitn(2, |byte| *byte == b' ');
        let (key, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match key {
            b"head" => header.head = oid(rest)?,
            b"tip" => header.tip = oid(rest)?,
            b"partial" => header.partial = rest == b"1",
            b"ignored" => header.ignored = number(rest)?,
            b"side" => {
                let mut parts = rest.splitn(2, |byte| *byte == b' ');
                let count = number(parts.next().unwrap_or_default())?;
                header.other_branches.push((count, parts.next().unwrap_or_default().to_vec()));
            }
            b"pack" => return Ok(ReadHeader { has_pack: true, ..header }),
            b"end" => return Ok(header),
            _ => bail!("the output contains an unknown header line"),
        }
    }
    bail!("the output contains more than {MAX_HEADER_LINES} header lines")
}

/// Reads one header line without its line break.
fn line(from: &mut impl std::io::BufRead) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    std::io::Read::take(from, MAX_HEADER_LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        bail!("the output contains a header line that is too long or incomplete");
    }
    Ok(line)
}

/// Parses an object id; `-` means none.
fn oid(text: &[u8]) -> anyhow::Result<Option<String>> {
    if text == b"-" {
        return Ok(None);
    }
    let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match matches!(text.len(), 40 | 64) && text.iter().all(hex) {
        true => Ok(Some(String::from_utf8_lossy(text).into_owned())),
        false => bail!("the output contains an invalid git object id"),
    }
}

/// Parses a decimal number.
fn number(text: &[u8]) -> anyhow::Result<u64> {
    let text = std::str::from_utf8(text)
        .context("the output contains a count that is not a decimal number")?;
    text.trim().parse().context("the output contains a count that is not a decimal number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_only_a_well_formed_header() {
        let tip = "a".repeat(40);
        let text = format!(
            "belljar-work 1\nhead -\ntip {tip}\npartial 1\nignored 3\nside 2 refs/heads/x y\npack\nPACK"
        );
        let mut from = text.as_bytes();
        let header = parse(&mut from).unwrap();
        assert_eq!(from, b"PACK");
        assert_eq!((header.head, header.tip), (None, Some(tip.clone())));
        assert_eq!(header.other_branches, [(2, b"refs/heads/x y".to_vec())]);
        assert!(header.partial && header.has_pack && header.ignored == 3);
        let long = format!("belljar-work 1\nside 1 {}\nend\n", "x".repeat(5000));
        let many = format!("belljar-work 1\n{}end\n", "side 1 x\n".repeat(200));
        for text in [
            "",
            "belljar-work 2\nend\n",
            "belljar-work 1\n",
            "belljar-work 1\ntip --upload-pack=x\nend\n",
            "belljar-work 1\ntip ../../x\nend\n",
            "belljar-work 1\nignored -1\nend\n",
            "belljar-work 1\nexec x\nend\n",
            "belljar-work 1\nend",
            &long,
            &many,
            &format!("belljar-work 1\ntip {}\nend\n", tip.to_uppercase()),
        ] {
            assert!(parse(&mut text.as_bytes()).is_err(), "{text}");
        }
    }
}
