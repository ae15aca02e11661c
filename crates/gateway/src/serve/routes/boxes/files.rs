//! The routes of the files in a running box: read, list, write and remove them.
//!
//! A helper in the box does the work, so that no name and no link of the box is resolved on the host. The
//! bytes of a file are never interpreted: a browser gets them as a download that runs nothing.

use std::ops::ControlFlow;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::boxes::files::{self, Content, Entry, EntryKind, IfExists, OpenFile, Opened};
use belljar_model::display;
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HeaderMap, IF_NONE_MATCH, RANGE,
};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

use super::with_box;
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, empty_response};
use crate::serve::head::Accepts;
use crate::serve::headers;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::routes::account::time;
use crate::serve::routes::{Access, Operation, Routes};

const PATH: &str = "/v1/boxes/{box}/files/{*path}";
/// The number of segments before the path in the box.
const PREFIX: usize = 4;
/// The name of the list in its cursors.
const FILES: &str = "files";
/// The maximum length of a file in one request or response.
const MAX: usize = 64 * 1024 * 1024;
const MAX_LENGTH: u64 = 64 * 1024 * 1024;
/// The time that the box has for the next bytes of a file.
const STALL: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;
/// The longest name of a file, in bytes.
const MAX_NAME: usize = 255;

pub(super) fn add(routes: Routes) -> Routes {
    let access = Access::For(Act::UseBoxes);
    routes
        .add(
            Operation::get(PATH, access)
                .about(
                    "Returns a file of a running box, or the entries of a directory as JSON; the path starts at the root of the box",
                )
                .query::<FilesParameters>()
                .returns::<List<FileView>>(StatusCode::OK)
                .returns_bytes(StatusCode::OK, Accepts::Bytes.media_type())
                .returns_bytes(StatusCode::PARTIAL_CONTENT, Accepts::Bytes.media_type())
                .problems(&[
                    ProblemKind::WRONG_STATE,
                    ProblemKind::BUSY,
                    ProblemKind::TOO_LARGE,
                    ProblemKind::RANGE,
                ]),
            get,
        )
        .add(
            Operation::upload(PATH, access, MAX)
                .about(
                    "Writes a file of a running box, with missing directories; `If-None-Match: *` keeps an existing file",
                )
                .returns_empty(StatusCode::CREATED)
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(&[
                    ProblemKind::WRONG_STATE,
                    ProblemKind::BUSY,
                    ProblemKind::STALE,
                    ProblemKind::TIMEOUT,
                ]),
            put,
        )
        .add(
            Operation::delete(PATH, access)
                .about("Removes a file, a symbolic link or an empty directory of a running box")
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::BUSY]),
            remove,
        )
}

/// The parameters of the list of a directory. They have no effect on a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FilesParameters {
    /// The maximum number of entries.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,1024}\.[A-Za-z0-9_-]{22}$"))]
    cursor: Option<String>,
}

/// An entry of a directory in a box.
#[derive(Serialize, JsonSchema)]
struct FileView {
    /// The name as text that is safe to show.
    name: String,
    /// The path below `files/`, percent-encoded.
    path: String,
    /// The name as bytes in Base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    /// `file`, `directory`, `symlink` or `special`.
    kind: &'static str,
    /// In bytes.
    size: u64,
    modified: String,
}

impl FileView {
    fn of(entry: &Entry, directory: &str) -> Self {
        let name = entry.name.get(..MAX_NAME).unwrap_or(&entry.name);
        let seconds = u64::try_from(entry.metadata.modified).unwrap_or(0);
        Self {
            name: display::safe(name),
            path: format!("{directory}/{}", percent_encoded(name)),
            path_b64: std::str::from_utf8(name).is_err().then(|| STANDARD.encode(name)),
            kind: match entry.kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "symlink",
                EntryKind::Special => "special",
            },
            size: entry.metadata.size,
            // The time is chosen by the box, and RFC 3339 has four digits for the year.
            modified: time(seconds.min(MAX_SECONDS).saturating_mul(1000)),
        }
    }
}

/// The end of the year 2500, in seconds since 1970. Later times are shown as this one.
const MAX_SECONDS: u64 = 16_756_761_600;

fn percent_encoded(name: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: &u8| match *byte {
        byte if is_plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.iter().map(encode).collect()
}

/// Returns the absolute path in the box that a request names.
fn path_in_box(call: &Call) -> Result<Vec<u8>, Problem> {
    let path = call.rest_of_path(PREFIX)?;
    if path.is_empty() || path.split(|byte| *byte == b'/').any(|name| name.len() > MAX_NAME) {
        let detail = format!("a name in the path is empty or longer than {MAX_NAME} bytes");
        return Err(Problem::new(ProblemKind::BAD_REQUEST, detail));
    }
    Ok([b"/", path.as_slice()].concat())
}

async fn get(call: Call) -> Result<Response, Problem> {
    let path = path_in_box(&call)?;
    let FilesParameters { limit, cursor } = call.query()?;
    let page = call.page_of(FILES, PageParameters { limit, cursor, q: None })?;
    let after = page.after.as_deref().map(hex::decode).transpose();
    let after = after.map_err(|_| Problem::internal("the cursor is malformed"))?;
    let limit = page.limit;
    let opened = with_box(&call, move |state, found| {
        let after = after.unwrap_or_default();
        files::open(state, &found, &path, &after, limit).map_err(of_state)
    })
    .await?;
    match opened {
        Opened::File(file) => send_file(&call, file),
        Opened::Directory { entries, has_more } => {
            let directory = call.path().trim_end_matches('/').splitn(PREFIX + 2, '/').last();
            let directory = directory.unwrap_or_default();
            let last = entries.last().filter(|_| has_more).map(|last| hex::encode(&last.name));
            let views = entries.iter().map(|entry| FileView::of(entry, directory)).collect();
            call.list::<FileView>(FILES, views, last.as_deref())
        }
    }
}

/// Returns the response with a file, or with the part that the request asks for.
fn send_file(call: &Call, file: OpenFile) -> Result<Response, Problem> {
    let size = file.metadata.size;
    let wanted = call.header(&RANGE).and_then(|text| RangeRequest::parse(&text));
    let (status, range) = match wanted {
        None => (StatusCode::OK, files::Range { offset: 0, length: size }),
        Some(wanted) => {
            let detail = || format!("the file has {size} bytes and not the requested range");
            let range =
                wanted.of(size).ok_or_else(|| Problem::new(ProblemKind::RANGE, detail()))?;
            (StatusCode::PARTIAL_CONTENT, range)
        }
    };
    if range.length > MAX_LENGTH {
        let detail = format!(
            "the file has {size} bytes, and a response has at most {MAX_LENGTH}; send the header `Range`"
        );
        return Err(Problem::new(ProblemKind::TOO_LARGE, detail));
    }
    let content = file.read(range).map_err(of_state)?;
    let mut response = (status, body(content, range.length)?).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.length));
    if status == StatusCode::PARTIAL_CONTENT {
        let last = (range.offset + range.length).saturating_sub(1);
        let text = format!("bytes {}-{last}/{size}", range.offset);
        let invalid = |_| Problem::internal("cannot write a header");
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(text).map_err(invalid)?);
    }
    as_download(headers);
    Ok(response)
}

/// Marks a response as bytes that a browser neither shows nor runs (threat F12).
fn as_download(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_TYPE, Accepts::Bytes.media_type()),
        (CONTENT_DISPOSITION, "attachment"),
        (CONTENT_SECURITY_POLICY, headers::SANDBOX),
        (ACCEPT_RANGES, "bytes"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Returns a body with the bytes of a file. It fails if the box sends too few bytes or stalls.
fn body(content: Content, length: u64) -> Result<Body, Problem> {
    let Content { output, connection } = content;
    let output = pipe::Receiver::from_owned_fd(output)
        .map_err(|_| Problem::internal("cannot read from the box"))?;
    let bytes =
        stream::try_unfold((output, connection, length), |(output, kept, left)| async move {
            let next = next_bytes(output, left).await?;
            Ok::<_, std::io::Error>(next.map(|(bytes, output, left)| (bytes, (output, kept, left))))
        });
    Ok(Body::from_stream(bytes))
}

/// Reads the next bytes of a file. `None` at the end.
async fn next_bytes(
    mut output: pipe::Receiver,
    left: u64,
) -> std::io::Result<Option<(Bytes, pipe::Receiver, u64)>> {
    if left == 0 {
        return Ok(None);
    }
    let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
    let mut buffer = vec![0; wanted];
    let read = tokio::time::timeout(STALL, output.read(&mut buffer)).await??;
    if read == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    buffer.truncate(read);
    let left = left.saturating_sub(u64::try_from(read).unwrap_or(left));
    Ok(Some((buffer.into(), output, left)))
}

/// A range of bytes that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeRequest {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

impl RangeRequest {
    /// Parses the header `Range`. Other units, several ranges and malformed values are ignored (RFC 9110,
    /// section 14.2).
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        if first.is_empty() {
            return number(last).map(Self::Last);
        }
        let first = number(first)?;
        let last = if last.is_empty() { None } else { Some(number(last)?) };
        last.is_none_or(|last| last >= first).then_some(Self::From { first, last })
    }

    /// Returns the range in a file of this size. `None` if the file does not have it.
    fn of(self, size: u64) -> Option<files::Range> {
        let (offset, end) = match self {
            Self::Last(length) => (size.saturating_sub(length), size),
            Self::From { first, last } => {
                (first, last.map_or(size, |last| last.saturating_add(1).min(size)))
            }
        };
        let length = end.checked_sub(offset).filter(|length| *length > 0)?;
        Some(files::Range { offset, length })
    }
}

async fn put(call: Call) -> Result<Response, Problem> {
    let path = path_in_box(&call)?;
    let if_exists = match call.header(&IF_NONE_MATCH).as_deref() {
        None => IfExists::Replace,
        Some("*") => IfExists::Refuse,
        Some(_) => {
            let detail = "the header `If-None-Match` must be `*`";
            return Err(Problem::new(ProblemKind::BAD_REQUEST, detail));
        }
    };
    let upload = call.take_upload()?;
    let length = upload.length();
    let mut record = call.change("box.file-written", call.param("box")?)?;
    record.details = vec![display::safe(&path)];
    let app = call.app.clone();
    let writing = with_box(&call, move |state, found| {
        record.record(&app)?;
        files::write(state, &found, &path, length, if_exists).map_err(exists)
    })
    .await?;
    let input = pipe::Sender::from_owned_fd(writing.input().map_err(of_state)?)
        .map_err(|_| Problem::internal("cannot write to the box"))?;
    let input = tokio::sync::Mutex::new(input);
    // The helper can refuse the file before it has read all bytes. Its reply says why.
    let pass = |bytes: Bytes| {
        let input = &input;
        async move { pass(input, &bytes).await }
    };
    upload.copy(pass).await?;
    drop(input);
    let is_new = blocking(&call.app, move || writing.finish().map_err(exists)).await?;
    if is_new { Ok(StatusCode::CREATED.into_response()) } else { Ok(empty_response()) }
}

/// Passes bytes of a body to the box.
async fn pass(input: &tokio::sync::Mutex<pipe::Sender>, bytes: &[u8]) -> ControlFlow<()> {
    let mut input = input.lock().await;
    match tokio::time::timeout(STALL, input.write_all(bytes)).await {
        Ok(Ok(())) => ControlFlow::Continue(()),
        Ok(Err(_)) | Err(_) => ControlFlow::Break(()),
    }
}

/// Only a request with `If-None-Match` is refused because the file exists.
fn exists(error: belljar_engine::error::EngineError) -> Problem {
    let problem = of_state(error);
    if problem.kind == ProblemKind::EXISTS {
        return problem.with_kind(ProblemKind::STALE);
    }
    problem
}

async fn remove(call: Call) -> Result<Response, Problem> {
    let path = path_in_box(&call)?;
    let mut record = call.change("box.file-removed", call.param("box")?)?;
    record.details = vec![display::safe(&path)];
    let app = call.app.clone();
    with_box(&call, move |state, found| {
        record.record(&app)?;
        files::remove(state, &found, &path).map_err(of_state)
    })
    .await?;
    Ok(empty_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_a_file_is_parsed_and_limited_to_its_size() {
        let range = |text: &str, size| {
            let range = RangeRequest::parse(text).map(|range| range.of(size));
            range.map(|range| range.map(|range| (range.offset, range.length)))
        };
        assert_eq!(range("bytes=0-", 10), Some(Some((0, 10))));
        assert_eq!(range("bytes=2-4", 10), Some(Some((2, 3))));
        assert_eq!(range("bytes=9-99", 10), Some(Some((9, 1))));
        assert_eq!(range("bytes=-3", 10), Some(Some((7, 3))));
        assert_eq!(range("bytes=-99", 10), Some(Some((0, 10))));
        assert_eq!(range("bytes=99999999999999999999-", 10), Some(None));
        for text in ["bytes=10-", "bytes=-0"] {
            assert_eq!(range(text, 10), Some(None), "{text}");
        }
        assert_eq!(range("bytes=0-", 0), Some(None));
        for text in ["bytes=4-2", "bytes=a-", "bytes=1-2,4-5", "lines=1-2", "bytes=", "bytes=--1"] {
            assert_eq!(range(text, 10), None, "{text}");
        }
    }

    #[test]
    fn path_of_an_entry_is_percent_encoded_and_bytes_that_are_not_text_are_shown_in_base64() {
        let metadata = files::Metadata { size: 1, modified: -5 };
        let entry = |name: &[u8]| Entry { name: name.to_vec(), kind: EntryKind::File, metadata };
        let view = FileView::of(&entry(b"a b%\n"), "home");
        assert_eq!((view.path.as_str(), view.path_b64), ("home/a%20b%25%0A", None));
        let view = FileView::of(&entry(b"\xff<"), "home");
        assert_eq!((view.path.as_str(), view.path_b64.as_deref()), ("home/%FF%3C", Some("/zw=")));
        assert!(!view.name.contains('\u{fffd}'), "{}", view.name);
        assert_eq!(view.modified, "1970-01-01T00:00:00.000000000Z");
    }
}
