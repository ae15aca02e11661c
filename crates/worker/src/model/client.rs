//! Sends a question to a model server, with tries, a deadline, turns of tools and one repair of JSON.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::time::Duration;

use belljar_wire::{
    InputSource, ModelAnswer, ModelFailure, ModelFailureKind as Kind, ModelJob, ModelOutput,
    ModelUsage,
};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use url::Url;

use super::answer::{Answer, Collector, Stop, StreamFault};
use super::context::Room;
use super::request::{self, Input, Mark};
use super::retry::{self, Next, Trouble};
use super::tools::{Definition, MAX_CALLS, MAX_RESULT, ToolPlaces, Toolbox};
use super::turns::{Call, CallResult, Turn};
use super::{Limits, excerpt, failure, json};
use crate::runtime::http::{Client, FetchError, HttpRequest, HttpResponse, Redirect, RequestBody};

/// The maximum number of bytes that are read from an error response.
const MAX_ERROR: usize = 64 * 1024;
/// The maximum time until the end of a stream after the end mark of its answer. The broker charges
/// the whole reservation for a stream that the client closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The surroundings of a question in its box.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The address of the broker.
    pub broker: IpAddr,
    /// The environment of the box, with the placeholder of the key.
    pub env: &'a [(String, String)],
    /// The places where tools work.
    pub tools: &'a ToolPlaces,
}

/// Asks a model through the broker and returns its answer, after the calls of tools that it makes.
///
/// `report` gets a line for each try that failed, each call of a tool and each cut.
pub async fn ask(
    around: &Surroundings<'_>,
    job: &ModelJob,
    limits: &Limits,
    report: &dyn Fn(&str),
) -> Result<ModelAnswer, ModelFailure> {
    let url = request::url(job).map_err(|message| failure(Kind::CannotStart, message))?;
    let client = Client::new(around.broker);
    let tools = job.tools.as_ref();
    let key = job.key_variable.as_ref();
    let key = key.and_then(|key| around.env.iter().find(|(name, _)| name == key));
    let key = key.map(|(_, value)| value.as_str());
    let tools =
        tools.map(|tools| Toolbox::new(tools, around.tools, client.clone(), key)).transpose()?;
    let definitions = tools.as_ref().map(Toolbox::definitions).unwrap_or_default();
    let inputs = read_inputs(job, limits.inputs)?;
    let room = Room::of(job);
    let fixed = fixed_bytes(job, &definitions);
    let (inputs, notes) = room.inputs(fixed, inputs)?;
    notes.iter().for_each(|note| report(note));
    let sizes = inputs.iter().map(|(name, content)| (name.len() + content.len()) as u64);
    let mark = Mark::new(&inputs, random).map_err(|error| {
        failure(Kind::CannotStart, format!("cannot get random bytes for the question: {error}"))
    })?;
    let question = Question {
        mark,
        headers: headers(job, around.env)?,
        question_bytes: fixed.saturating_add(sizes.sum()),
        deadline: Cell::new(Instant::now() + limits.deadline),
        is_streaming: Cell::new(false),
        client,
        job,
        url,
        inputs,
        limits,
        report,
        room,
        tools,
        definitions,
    };
    question.answer().await
}

/// Returns the number of bytes of a question without its inputs.
fn fixed_bytes(job: &ModelJob, definitions: &[Definition]) -> u64 {
    let tools = definitions.iter().map(|it| it.description.len() + it.schema.to_string().len());
    (job.prompt.len() + request::instructions(job).len() + tools.sum::<usize>()) as u64
}

/// One question and the means to ask it.
struct Question<'a> {
    client: Client,
    job: &'a ModelJob,
    url: Url,
    headers: HeaderMap,
    inputs: Vec<Input>,
    /// The mark of the inputs, equal in all turns.
    mark: Mark,
    /// The number of bytes before the first answer.
    question_bytes: u64,
    room: Room,
    tools: Option<Toolbox<'a>>,
    definitions: Vec<Definition>,
    limits: &'a Limits,
    /// The end of the time for the question, or for the current turn if there are tools.
    deadline: Cell<Instant>,
    /// Whether an answer has begun, for the reason at the deadline.
    is_streaming: Cell<bool>,
    report: &'a dyn Fn(&str),
}

/// The reason why one try has no answer.
enum TryError {
    Trouble(Trouble, String),
    Final(ModelFailure),
}

impl Question<'_> {
    /// Asks until the model answers without a call of a tool, and asks once more if the answer does not have
    /// the required form.
    async fn answer(&self) -> Result<ModelAnswer, ModelFailure> {
        let max = self.job.tools.as_ref().map_or(2, |tools| tools.turns);
        let mut turns = Vec::new();
        let mut usage = ModelUsage::default();
        let mut is_repaired = false;
        // The beginning of an answer that the model did not finish in one turn.
        let mut begun = String::new();
        for number in 1..=max {
            let notes = self.room.turns(self.question_bytes, &mut turns)?;
            notes.iter().for_each(|note| (self.report)(note));
            let answer = self.turn(&turns).await?;
            usage = usage.plus(answer.usage);
            if answer.stop == Stop::Paused {
                self.begin(&mut begun, &answer.text)?;
                turns.push(Turn::Model { text: answer.text, calls: Vec::new() });
                continue;
            }
            if answer.stop == Stop::NextTurn {
                begun.clear();
                if number == max {
                    break; // nobody would read the results
                }
                let results = self.call_all(number, &answer.calls).await?;
                turns.push(Turn::Model { text: answer.text, calls: answer.calls });
                turns.push(Turn::Results(results));
                continue;
            }
            begun.push_str(&answer.text);
            let reason = match self.formed(&std::mem::take(&mut begun)) {
                Ok(text) => {
                    return Ok(ModelAnswer { text, model: answer.model, usage, turns: number });
                }
                Err(reason) => reason,
            };
            if is_repaired || number == max {
                let after = if is_repaired { " after a correction" } else { "" };
                let message = format!("the answer is not valid{after}: {reason}");
                return Err(failure(Kind::Invalid, message));
            }
            (self.report)(&format!("the answer is not valid: {reason}; asking for a correction"));
            is_repaired = true;
            turns.push(Turn::Model { text: answer.text, calls: Vec::new() });
            turns.push(request::correction(&self.job.output, &reason));
        }
        let message = format!(
            "the model still called tools after {max} turns; raise `turns`, or make the task smaller"
        );
        Err(failure(Kind::Turns, message))
    }

    /// Appends the text of an unfinished answer to its beginning.
    fn begin(&self, begun: &mut String, text: &str) -> Result<(), ModelFailure> {
        if text.trim().is_empty() {
            let message = "the model asked for another turn without a text or a call of a tool";
            return Err(failure(Kind::Invalid, message));
        }
        // The model continues after the last letter; see the request of the protocol.
        begun.push_str(text.trim_end());
        if begun.len() > self.limits.answer {
            let message = format!("the answer is longer than {} bytes", self.limits.answer);
            return Err(failure(Kind::TooLong, message));
        }
        Ok(())
    }

    /// Carries out the calls of an answer, one after the other.
    async fn call_all(&self, turn: u32, calls: &[Call]) -> Result<Vec<CallResult>, ModelFailure> {
        let Some(tools) = self.tools.as_ref().filter(|_| !calls.is_empty()) else {
            let message = "the model asked for another turn without a call of a tool";
            return Err(failure(Kind::Invalid, message));
        };
        let mut results = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            let (result, size) = if number < MAX_CALLS {
                tools.call(call).await
            } else {
                let text =
                    format!("error: only the first {MAX_CALLS} calls of an answer are carried out");
                (CallResult { id: call.id.clone(), text, is_error: true }, 0)
            };
            let (name, arguments) = (brief(&call.name), brief(&call.arguments));
            let outcome = if result.is_error { brief(&result.text) } else { "ok".to_owned() };
            let cut = if size > MAX_RESULT {
                format!("; cut from {size} to {} bytes", result.text.len())
            } else {
                String::new()
            };
            (self.report)(&format!("turn {turn}: {name} {arguments}: {outcome}{cut}"));
            results.push(result);
        }
        Ok(results)
    }

    /// Returns the text of an answer in the required form, or why it does not have this form.
    fn formed(&self, text: &str) -> Result<String, String> {
        match &self.job.output {
            ModelOutput::Text => Ok(text.to_owned()),
            ModelOutput::Json { schema } => json::of_answer(text, schema.as_deref()),
            ModelOutput::Choice(choices) => {
                let text = text.trim().trim_matches(['`', '"', '\'']);
                let found = choices.iter().find(|choice| *choice == text).cloned();
                found.ok_or_else(|| "it is none of the texts to choose from".to_owned())
            }
        }
    }

    /// Gets one answer within its time.
    async fn turn(&self, turns: &[Turn]) -> Result<Answer, ModelFailure> {
        if self.tools.is_some() {
            self.deadline.set(Instant::now() + self.limits.deadline);
        }
        match timeout_at(self.deadline.get(), self.tries(turns)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.too_late()),
        }
    }

    /// Gets one answer, with several tries.
    async fn tries(&self, turns: &[Turn]) -> Result<Answer, ModelFailure> {
        let inputs = (self.inputs.as_slice(), &self.mark);
        let body = request::body(self.job, &self.url, inputs, turns, &self.definitions);
        let body = body.to_string();
        if body.len() > self.limits.request {
            let max = self.limits.request;
            return Err(failure(Kind::TooLong, format!("the request is longer than {max} bytes")));
        }
        let body = bytes::Bytes::from(body);
        let mut tries = 0;
        loop {
            self.is_streaming.set(false);
            let (trouble, message) = match self.try_once(body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(TryError::Final(failure)) => return Err(failure),
                Err(TryError::Trouble(trouble, message)) => (trouble, message),
            };
            self.is_streaming.set(false);
            tries += 1;
            match trouble.next(tries, jitter(), self.limits) {
                Next::Fail(kind) if tries == 1 => return Err(failure(kind, message)),
                Next::Fail(kind) => {
                    return Err(failure(kind, format!("{message}; tried {tries} times")));
                }
                Next::RetryAfter(wait) if Instant::now() + wait >= self.deadline.get() => {
                    return Err(failure(
                        Kind::Unavailable,
                        format!("{message}; the next try would be after the deadline"),
                    ));
                }
                Next::RetryAfter(wait) => {
                    (self.report)(&format!("{message}; next try in {} s", wait.as_secs_f32()));
                    sleep(wait).await;
                }
            }
        }
    }

    async fn try_once(&self, body: bytes::Bytes) -> Result<Answer, TryError> {
        let request = HttpRequest {
            method: Method::POST,
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: RequestBody::whole(body),
            redirect: Redirect::Error,
        };
        let response = timeout(self.limits.silence, self.client.fetch(request)).await;
        let mut response = response.map_err(|_| self.silent())?.map_err(fetch_failed)?;
        if !response.status.is_success() {
            return Err(self.error_of(response).await);
        }
        let content_type = response.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        if !content_type.starts_with("text/event-stream") {
            let message = "the server did not stream its answer; check `provider` and `url`";
            return Err(TryError::Final(failure(Kind::Invalid, message)));
        }
        self.is_streaming.set(true);
        let mut collector = Collector::new(self.job.protocol, self.limits);
        while !collector.is_complete() {
            let piece = timeout(self.limits.silence, response.body.next()).await;
            match piece.map_err(|_| self.silent())? {
                Ok(Some(piece)) => collector.push(&piece).map_err(stream_failed)?,
                Ok(None) | Err(_) => break,
            }
        }
        if collector.is_complete() {
            drain(&mut response).await;
        }
        let answer = match self.tools {
            Some(_) => collector.finish_turn(),
            None => collector.finish(),
        };
        answer.map_err(stream_failed)
    }

    /// Returns the error for a response that is not a success.
    async fn error_of(&self, mut response: HttpResponse) -> TryError {
        let mut body = Vec::new();
        while let Ok(Ok(Some(piece))) = timeout(self.limits.silence, response.body.next()).await {
            body.extend_from_slice(&piece);
            if body.len() > MAX_ERROR {
                break;
            }
        }
        let body = String::from_utf8_lossy(&body);
        let error = json::parse(&body).unwrap_or(Value::Null);
        let at = |pointer: &str| error.pointer(pointer).and_then(Value::as_str);
        let details = at("/error/message").or(at("/error")).or(at("/message")).unwrap_or(&body);
        let status = response.status;
        let message = match excerpt(details).as_str() {
            "" => format!("the server responded {status}"),
            details => format!("the server responded {status}: {details}"),
        };
        let is_too_long = at("/error/code") == Some("context_length_exceeded")
            || details.contains("prompt is too long");
        if status == hyper::StatusCode::BAD_REQUEST && is_too_long {
            return TryError::Final(failure(Kind::TooLong, message));
        }
        let header = |name| response.headers.get(name).and_then(|it| it.to_str().ok());
        // The clock of the server decides, because its date is the end of the time.
        let now = header(DATE).and_then(retry::http_date).unwrap_or_else(Timestamp::now);
        let retry_after = header(RETRY_AFTER).and_then(|value| retry::retry_after(value, now));
        TryError::Trouble(Trouble::Status { status: status.as_u16(), retry_after }, message)
    }

    fn silent(&self) -> TryError {
        let seconds = self.limits.silence.as_secs_f32();
        TryError::Trouble(Trouble::Silent, format!("the server sent nothing for {seconds} s"))
    }

    fn too_late(&self) -> ModelFailure {
        let seconds = self.limits.deadline.as_secs_f32();
        if self.is_streaming.get() {
            failure(Kind::CutOff, format!("the answer did not end within {seconds} s"))
        } else {
            failure(Kind::Unavailable, format!("the server did not answer within {seconds} s"))
        }
    }
}

/// Reads the end of a stream after its answer, so that the connection is not closed early.
async fn drain(response: &mut HttpResponse) {
    let rest = async { while let Ok(Some(_)) = response.body.next().await {} };
    timeout(DRAIN_TIMEOUT, rest).await.ok(); // the answer is complete anyway
}

/// Returns the beginning of a text on one line, for the log.
fn brief(text: &str) -> String {
    const MAX: usize = 120;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.char_indices().nth(MAX).map_or(line.len(), |(at, _)| at);
    let more = if end < line.len() { "\u{2026}" } else { "" };
    format!("{}{more}", line.get(..end).unwrap_or_default())
}

fn stream_failed(fault: StreamFault) -> TryError {
    match fault {
        StreamFault::Reported(details) => {
            TryError::Trouble(Trouble::Reported, format!("the server reported an error: {details}"))
        }
        StreamFault::CutOff => {
            let message = "the stream of the answer ended before the answer";
            TryError::Trouble(Trouble::CutOff, message.to_owned())
        }
        StreamFault::Final(failure) => TryError::Final(failure),
    }
}

/// Returns the error for a request without a response of the server. The broker's own responses are
/// such errors.
fn fetch_failed(error: FetchError) -> TryError {
    let message = error.to_string();
    match error {
        FetchError::Refused { code, status, retry_after, .. } => {
            let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds.into()));
            let trouble = Trouble::Status { status, retry_after };
            match code.as_str() {
                _ if retry_after.is_some() || status >= 500 => TryError::Trouble(trouble, message),
                "spent" | "uncountable" => TryError::Final(failure(Kind::OverBudget, message)),
                // Not the key is wrong, but a rule is missing.
                _ => TryError::Final(failure(Kind::CannotStart, message)),
            }
        }
        FetchError::Broken { .. } => TryError::Trouble(Trouble::Disconnected, message),
        FetchError::Scheme(_)
        | FetchError::Credentials(_)
        | FetchError::Unreachable { .. }
        | FetchError::Redirected(_)
        | FetchError::TooManyRedirects
        | FetchError::BadRedirect(_)
        | FetchError::BodyIsGone => TryError::Final(failure(Kind::CannotStart, message)),
    }
}

fn headers(job: &ModelJob, env: &[(String, String)]) -> Result<HeaderMap, ModelFailure> {
    let key = match &job.key_variable {
        None => None,
        Some(variable) => {
            let found = env.iter().find(|(name, _)| name == variable);
            let (_, value) = found.ok_or_else(|| {
                let message = format!("the box has no variable `{variable}` with the key");
                failure(Kind::BadKey, message)
            })?;
            Some(value.as_str())
        }
    };
    let mut headers = HeaderMap::new();
    for (name, value) in request::headers(job.protocol, key) {
        let value = HeaderValue::from_str(&value).map_err(|_| {
            failure(Kind::BadKey, "the key has characters that a header cannot have")
        })?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Reads all inputs, of which files can be missing or not be text.
fn read_inputs(job: &ModelJob, max: u64) -> Result<Vec<Input>, ModelFailure> {
    let mut left = max;
    let mut inputs = Vec::new();
    for input in &job.inputs {
        let name = &input.name;
        let content = match &input.source {
            InputSource::Text(text) => text.clone(),
            InputSource::File(path) => read_file(path, left).map_err(|error| {
                failure(Kind::CannotStart, format!("cannot read the input `{name}`: {error}"))
            })?,
        };
        left = left.checked_sub(content.len() as u64).ok_or_else(|| {
            failure(Kind::TooLong, format!("the inputs are longer than {max} bytes"))
        })?;
        inputs.push((name.clone(), content));
    }
    Ok(inputs)
}

/// Reads a file, and one byte more than `max` if it is longer.
fn read_file(path: &str, max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        // The text is too long anyway, and may end within a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("the file is not text in UTF-8"))
}

/// Returns random bytes.
fn random() -> Result<[u8; 16], getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map(|()| bytes)
}

/// Returns a random number.
fn jitter() -> u16 {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).ok(); // a fixed number is enough
    u16::from_ne_bytes(bytes)
}
