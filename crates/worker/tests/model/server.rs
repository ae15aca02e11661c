//! A model server on loopback that plays a script: one reply per request, the last one again and again.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_testkit::{Reply, Upstream};
use belljar_wire::{ModelAnswer, ModelFailure, ModelJob, ModelOutput, ModelProtocol};
use belljar_worker::model::{Limits, Surroundings, ToolPlaces, ask};
use serde_json::{Value, json};

pub(crate) const ALL: [ModelProtocol; 3] =
    [ModelProtocol::Anthropic, ModelProtocol::OpenAiChat, ModelProtocol::OpenAiResponses];

/// A scripted server.
pub(crate) struct Server {
    pub(crate) upstream: Upstream,
}

/// The result of a question and the lines about failed tries.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) result: Result<ModelAnswer, ModelFailure>,
    pub(crate) lines: Vec<String>,
}

impl Asked {
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        &self.result.as_ref().unwrap_or_else(|failure| panic!("{failure}; {self:?}")).text
    }

    #[track_caller]
    pub(crate) fn failure(&self) -> (&'static str, &str) {
        let failure = self.result.as_ref().expect_err("the question has an answer");
        (failure.kind.name(), &failure.message)
    }
}

impl Server {
    pub(crate) fn new(replies: Vec<Reply>) -> Self {
        let next = AtomicUsize::new(0);
        let upstream = Upstream::plain(move |_| {
            let at = next.fetch_add(1, Ordering::SeqCst).min(replies.len() - 1);
            replies[at].clone()
        });
        Self { upstream }
    }

    pub(crate) fn job(&self, protocol: ModelProtocol) -> ModelJob {
        let port = self.upstream.address().port();
        ModelJob {
            protocol,
            url: Some(format!("https://model.example.com:{port}/v1")),
            model: "m".to_owned(),
            key_variable: Some("MODEL_KEY".to_owned()),
            system: None,
            prompt: "Say it.".to_owned(),
            inputs: Vec::new(),
            output: ModelOutput::Text,
            max_tokens: 100,
            window: None,
            cuts: false,
            tools: None,
        }
    }

    pub(crate) fn ask(&self, protocol: ModelProtocol) -> Asked {
        ask_job(&self.job(protocol), &quick())
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.upstream.received().len()
    }
}

/// Limits without waiting times. The times themselves are tested without a clock.
pub(crate) fn quick() -> Limits {
    Limits { first_wait: Duration::from_millis(1), ..Limits::default() }
}

pub(crate) fn ask_job(job: &ModelJob, limits: &Limits) -> Asked {
    ask_in(std::path::Path::new("/nonexistent"), job, limits)
}

/// Asks with tools that work in a directory.
pub(crate) fn ask_in(workspace: &std::path::Path, job: &ModelJob, limits: &Limits) -> Asked {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = [("MODEL_KEY".to_owned(), "placeholder".to_owned())];
    let lines = RefCell::new(Vec::new());
    let report = |line: &str| lines.borrow_mut().push(line.to_owned());
    let worker = env!("CARGO_BIN_EXE_belljar-worker").into();
    let tools = ToolPlaces { workspace: workspace.to_owned(), worker };
    let around = Surroundings { broker: IpAddr::V4(Ipv4Addr::LOCALHOST), env: &env, tools: &tools };
    let result = runtime.block_on(ask(&around, job, limits, &report));
    Asked { result, lines: lines.into_inner() }
}

pub(crate) fn events(text: &str) -> Reply {
    Reply::new(200, text).header("content-type", "text/event-stream; charset=utf-8")
}

/// Returns the stream of a complete answer with 7 tokens of input and 2 of output.
pub(crate) fn stream(protocol: ModelProtocol, text: &str) -> String {
    let usage =
        json!({"input_tokens": 7, "output_tokens": 2, "prompt_tokens": 7, "completion_tokens": 2});
    let data = |events: &[Value]| -> String {
        events.iter().map(|event| format!("data: {event}\n\n")).collect()
    };
    match protocol {
        ModelProtocol::Anthropic => data(&[
            json!({"type": "message_start", "message": {"model": "answering", "usage": usage}}),
            json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ]),
        ModelProtocol::OpenAiChat => {
            let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": null});
            let last = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
            data(&[
                json!({"model": "answering", "choices": [choice]}),
                json!({"model": "answering", "choices": [last]}),
                json!({"model": "answering", "choices": [], "usage": usage}),
            ]) + "data: [DONE]\n\n"
        }
        ModelProtocol::OpenAiResponses => data(&[
            json!({"type": "response.output_text.delta", "delta": text}),
            json!({"type": "response.completed", "response": {"model": "answering", "usage": usage}}),
        ]),
    }
}

/// Returns the first half of an answer.
pub(crate) fn half(protocol: ModelProtocol) -> String {
    let whole = stream(protocol, "never seen");
    whole[..whole.len() / 2].to_owned()
}
