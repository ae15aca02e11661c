//! The JSON of single runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::supervisor::single_run::KeptOutput;
use belljar_model::{RunId, RunRecord, RunResult, RunState};
use schemars::JsonSchema;
use serde::Serialize;

use super::MAX_OUTPUT;

/// A single run.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunView {
    /// The id of the run.
    run: String,
    /// `running`, `ended`, `failed` if it ended without a result, or `interrupted` if its process was killed.
    state: &'static str,
    /// How the program ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<RunEndView>,
    /// The number of files that the run changed in its workspace. The changes wait for a review.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<OutputView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<OutputView>,
}

/// How the program of a run ended.
#[derive(Serialize, JsonSchema)]
struct RunEndView {
    /// The exit status of the program, if it exited.
    exit: Option<i32>,
    /// The signal that killed the program.
    signal: Option<i32>,
    /// Why the program ended, such as `exited`, `signaled`, `timeout` or `memory`.
    reason: &'static str,
    /// The reason as a sentence.
    detail: &'static str,
    /// The duration of the program in milliseconds.
    duration: u64,
}

/// The start of an output stream. Both streams together have at most 1 MiB in a response.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct OutputView {
    /// The output, if it is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The output in base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// The number of bytes in `text` or `base64`.
    length: u64,
    /// The number of bytes that the program wrote.
    written: u64,
    /// Whether a part is missing here. The path `output` of the run has it, if it is kept.
    truncated: bool,
}

impl RunView {
    const fn new(run: String, state: &'static str) -> Self {
        Self { run, state, end: None, changed_files: None, stdout: None, stderr: None }
    }

    pub(super) fn running(id: RunId) -> Self {
        Self::new(id.to_string(), "running")
    }

    /// Describes a run that ended without a result. `None` for a run that has not ended.
    pub(super) fn without_result(record: &RunRecord) -> Option<Self> {
        let state = match record.state {
            RunState::Running => return None,
            RunState::Finished => "failed",
            RunState::Interrupted => "interrupted",
        };
        Some(Self::new(record.id.to_string(), state))
    }

    /// Describes a run with its result and the start of its output.
    pub(super) fn ended(result: &RunResult, [stdout, stderr]: [KeptOutput; 2]) -> Self {
        let [first, second] = shares(stdout.bytes.len(), stderr.bytes.len());
        let written = result.output_bytes;
        Self {
            end: Some(RunEndView {
                exit: result.exit,
                signal: result.signal,
                reason: result.reason.name(),
                detail: result.reason.sentence(),
                duration: result.wall_micros / 1000,
            }),
            changed_files: result.changed_files,
            stdout: Some(OutputView::new(stdout.bytes, first, written.stdout)),
            stderr: Some(OutputView::new(stderr.bytes, second, written.stderr)),
            ..Self::new(result.run.to_string(), "ended")
        }
    }
}

/// Divides the maximum length of the output between two streams. A stream gets what the other one does not need.
fn shares(stdout: usize, stderr: usize) -> [usize; 2] {
    let all = usize::try_from(MAX_OUTPUT).unwrap_or(usize::MAX);
    let of_stderr = stderr.min(all.saturating_sub(stdout).max(all / 2));
    [stdout.min(all - of_stderr), of_stderr]
}

impl OutputView {
    /// Describes at most `max` of these bytes.
    fn new(mut bytes: Vec<u8>, max: usize, written: u64) -> Self {
        let is_cut = bytes.len() > max;
        bytes.truncate(max);
        if is_cut || u64::try_from(bytes.len()).is_ok_and(|length| length < written) {
            bytes.truncate(whole_characters(&bytes));
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (text, base64) = match String::from_utf8(bytes) {
            Ok(text) if is_plain(&text) => (Some(text), None),
            Ok(text) => (None, Some(STANDARD.encode(text))),
            Err(error) => (None, Some(STANDARD.encode(error.into_bytes()))),
        };
        Self { text, base64, length, written, truncated: length < written }
    }
}

/// Returns the length of the bytes without an incomplete character at their end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}

/// Returns whether the JSON form of a text has at most about twice its length. JSON needs six bytes for most
/// control characters.
fn is_plain(text: &str) -> bool {
    let is_long = |byte: &u8| byte.is_ascii_control() && !b"\n\r\t".contains(byte);
    text.bytes().filter(|byte| is_long(byte)).count() <= text.len() / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1024 * 1024;

    #[test]
    fn streams_share_the_maximum_length_of_the_output() {
        assert_eq!(shares(3, 4), [3, 4]);
        assert_eq!(shares(MAX, 0), [MAX, 0]);
        assert_eq!(shares(MAX, 10), [MAX - 10, 10]);
        assert_eq!(shares(10, MAX), [10, MAX - 10]);
        assert_eq!(shares(MAX, MAX), [MAX / 2, MAX / 2]);
    }

    fn check(bytes: &[u8], max: usize, written: u64, text: Option<&str>, length: u64) {
        let view = OutputView::new(bytes.to_vec(), max, written);
        assert_eq!(view.text.as_deref(), text, "{view:?}");
        assert_eq!((view.length, view.truncated), (length, length < written), "{view:?}");
        let decoded = view.base64.map(|text| STANDARD.decode(text).unwrap());
        assert_eq!(decoded.is_some(), text.is_none());
        assert!(decoded.is_none_or(|decoded| bytes.starts_with(&decoded)));
    }

    #[test]
    fn output_is_a_text_or_base64_and_is_cut_at_a_character() {
        check(b"", 10, 0, Some(""), 0);
        check("hé".as_bytes(), 10, 3, Some("hé"), 3);
        check("hé".as_bytes(), 2, 3, Some("h"), 1);
        check("hé".as_bytes(), 3, 4, Some("hé"), 3);
        check(b"h\xc3", 10, 9, Some("h"), 1);
        check(b"h\xc3", 10, 2, None, 2);
        check(b"\xff\xfe", 10, 2, None, 2);
        check(b"\xff\xfe", 1, 2, None, 1);
        check(b"\0\0\0", 10, 3, None, 3);
        check(b"\x1b[1mbold\x1b[0m\r\n", 99, 14, Some("\x1b[1mbold\x1b[0m\r\n"), 14);
    }

    #[test]
    fn json_of_the_longest_output_fits_into_a_stored_response() {
        for byte in [b'\\', b'a', 1, 0xff] {
            let view = OutputView::new(vec![byte; MAX], MAX, MAX as u64);
            assert!(serde_json::to_string(&view).unwrap().len() < 3 * MAX, "{byte}");
        }
    }
}
