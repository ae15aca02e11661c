//! Reads a repository that a box wrote to, with a git that is in a sealed box itself.
//!
//! That git obeys the settings that it finds, and those are hostile: they start programs. So it gets
//! what any box gets, less: no network, the repository for reading only, little memory and time. What
//! it says is bounded here and believed nowhere.

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

const SCRIPT: &str = include_str!("read.sh");
/// What all the objects of one box's work may be long.
const LARGEST_MIB: u32 = 1024;
pub(super) const LARGEST: u64 = (LARGEST_MIB as u64) << 20;
/// What of the lines before the objects is read.
const LONGEST_LINE: u64 = 4096;
const MOST_LINES: usize = 128;

/// What is asked of the repository.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) repo: &'a Path,
    /// The commit whose history the host has.
    pub(super) known: Option<&'a str>,
    /// Another commit that should come along, if it is still there.
    pub(super) also: Option<&'a str>,
    /// How a commit of what is not committed is called, and by whom it is.
    pub(super) message: &'a str,
    pub(super) identity: &'a Identity,
}

/// What the sealed box says; all of it may be a lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) head: Option<String>,
    pub(super) tip: Option<String>,
    /// Some files could not be read.
    pub(super) partial: bool,
    /// Files that the repository ignores, and directories of them.
    pub(super) ignored: u64,
    /// Commits on other branches, by the name of the branch.
    pub(super) sides: Vec<(u64, Vec<u8>)>,
    /// Whether objects follow.
    pub(super) has_pack: bool,
}

/// Reads the repository; the file stands where the objects begin.
pub(super) fn read(
    state: &Scoped,
    ask: &Ask<'_>,
    incoming: &Incoming,
) -> anyhow::Result<(Answer, File)> {
    let mut file = incoming.answer()?;
    let mut complaint = Vec::new();
    let finished = run(state, ask, incoming, &file, &mut complaint)?;
    if finished.reason != Reason::Exited || finished.exit != Some(0) {
        return Err(refusal(&finished, &complaint, ask.repo));
    }
    file.seek(SeekFrom::Start(0)).context("read what the box said")?;
    let mut reader = BufReader::new(&file);
    let answer = parse(&mut reader).context("the box's repository is not understood")?;
    let at = reader.stream_position().context("read what the box said")?;
    file.seek(SeekFrom::Start(at)).context("read what the box said")?;
    Ok((answer, file))
}

fn run(
    state: &Scoped,
    ask: &Ask<'_>,
    incoming: &Incoming,
    answer: &File,
    complaint: &mut Vec<u8>,
) -> anyhow::Result<BoxEnd> {
    let (place, path) = belljar_box::open(ask.repo)?;
    let id = state.new_id().map_err(EngineError::into_inner)?;
    let argv = ["/bin/sh", "-c", SCRIPT].map(OsString::from).to_vec();
    let mut spec = LaunchSpec::new(id, Purpose::CloneReader, template(), argv);
    spec.shown = Some(vec!["git".to_owned(), "read a clone".to_owned()]);
    spec.environment = Environment::Exactly(environment(ask, &incoming.program().path)?);
    let workspace = Workspace { place, path, layers: None, scratch: false };
    spec.at = Some(launch::at(&workspace)?);
    spec.workspace = Some(workspace);
    let null = File::open("/dev/null").context("open /dev/null")?;
    let mark = state.store().mark_call(id.0)?;
    let launched = launch::launch(state, spec).map_err(EngineError::into_inner);
    let launched = launched.context("start the sealed box that reads the repository")?;
    let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| match stream {
        Stream::Output => kept.extend_from_slice(chunk),
        Stream::Error => {
            const ENOUGH: usize = 4096;
            let room = ENOUGH.saturating_sub(complaint.len());
            complaint.extend(chunk.iter().take(room));
        }
    };
    let streams = Streams {
        input: null.as_fd(),
        output: answer.as_fd(),
        error: null.as_fd(),
        filter: &mut filter,
        stop: None,
    };
    let ended = launched.supervise(state, streams, || ()).map_err(EngineError::into_inner);
    let mut ended = ended.context("read the repository")?;
    let result = ended.result(None);
    ended.record(state, &result, None);
    drop((ended.remains, mark));
    Ok(ended.finished)
}

/// A box for one short piece of work, in which nothing can be written but to memory.
fn template() -> Template {
    let limits = Limits {
        memory: ByteSize::mib(2048),
        disk: ByteSize::mib(1536),
        pids: 64,
        output: ByteSize::mib(LARGEST_MIB),
        timeout: Some(Duration::from_secs(300)),
        ..Limits::default()
    };
    Template { name: "repository".into(), mode: Mode::ReadOnly, limits, ..Template::default() }
}

/// Settings that make git faithful, for a repository that is not out to deceive.
fn environment(ask: &Ask<'_>, git: &Path) -> anyhow::Result<Vec<(OsString, OsString)>> {
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
    let (name, email) = (ask.identity.name(), ask.identity.email());
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
        ("KNOWN", ask.known.unwrap_or_default()),
        ("ALSO", ask.also.unwrap_or_default()),
        ("MESSAGE", ask.message),
    ];
    env.extend(fixed.map(|(name, value)| (name.into(), value.into())));
    env.push(("GIT_CONFIG_COUNT".into(), SETTINGS.len().to_string().into()));
    for (index, (key, value)) in SETTINGS.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{index}").into(), value.into()));
    }
    Ok(env)
}

/// Why there is no answer, with the place where the work still is.
fn refusal(finished: &BoxEnd, complaint: &[u8], repo: &Path) -> anyhow::Error {
    let why = match finished.reason {
        Reason::Output => format!("its work is more than {LARGEST_MIB} MiB"),
        Reason::Exited => git::said(complaint),
        Reason::Signaled
        | Reason::Timeout
        | Reason::Memory
        | Reason::Pids
        | Reason::Disk
        | Reason::Interrupted
        | Reason::NotFound
        | Reason::NotExecutable
        | Reason::CouldNotStart => {
            format!("the git that reads it was ended: {}", finished.reason.name())
        }
    };
    anyhow!("the box's repository cannot be read: {why} (its files are in {})", repo.display())
}

/// The lines before the objects.
fn parse(from: &mut impl std::io::BufRead) -> anyhow::Result<Answer> {
    if line(from)? != b"belljar-work 1" {
        bail!("it does not begin as agreed");
    }
    let mut answer = Answer::default();
    for _ in 0..MOST_LINES {
        let line = line(from)?;
        let mut words = line.splitn(2, |byte| *byte == b' ');
        let (word, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match word {
            b"head" => answer.head = oid(rest)?,
            b"tip" => answer.tip = oid(rest)?,
            b"partial" => answer.partial = rest == b"1",
            b"ignored" => answer.ignored = number(rest)?,
            b"side" => {
                let mut parts = rest.splitn(2, |byte| *byte == b' ');
                let count = number(parts.next().unwrap_or_default())?;
                answer.sides.push((count, parts.next().unwrap_or_default().to_vec()));
            }
            b"pack" => return Ok(Answer { has_pack: true, ..answer }),
            b"end" => return Ok(answer),
            _ => bail!("it says something that was not agreed"),
        }
    }
    bail!("it says too much")
}

fn line(from: &mut impl std::io::BufRead) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    std::io::Read::take(from, LONGEST_LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        bail!("it breaks off");
    }
    Ok(line)
}

/// The name of an object, or `-` for none.
fn oid(text: &[u8]) -> anyhow::Result<Option<String>> {
    if text == b"-" {
        return Ok(None);
    }
    let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match matches!(text.len(), 40 | 64) && text.iter().all(hex) {
        true => Ok(Some(String::from_utf8_lossy(text).into_owned())),
        false => bail!("it names an object that cannot be one"),
    }
}

fn number(text: &[u8]) -> anyhow::Result<u64> {
    let text = std::str::from_utf8(text).context("it counts in no digits")?;
    text.trim().parse().context("it counts in no digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_as_agreed_is_understood() {
        let tip = "a".repeat(40);
        let text = format!(
            "belljar-work 1\nhead -\ntip {tip}\npartial 1\nignored 3\nside 2 refs/heads/x y\npack\nPACK"
        );
        let mut from = text.as_bytes();
        let answer = parse(&mut from).unwrap();
        assert_eq!(from, b"PACK");
        assert_eq!((answer.head, answer.tip), (None, Some(tip.clone())));
        assert_eq!(answer.sides, [(2, b"refs/heads/x y".to_vec())]);
        assert!(answer.partial && answer.has_pack && answer.ignored == 3);
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
