//! A small service for tests: it answers, waits, fails and records its callers.

use std::sync::{Arc, Mutex};

use belljar_gateway::{
    About, Annotations, CallContext, CallError, CallOutcome, PromptArgument, PromptError,
    PromptSpec, PromptText, ReadError, ResourceContents, ResourceSpec, ResourceTemplateSpec,
    Service, StateLifetime, ToolSpec,
};
use belljar_model::caller::{Caller, SessionId};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

/// The events that the service recorded: `called SESSION TOOL`, `cancelled SESSION`, `closed
/// SESSION`.
pub(crate) type Events = mpsc::UnboundedReceiver<String>;

pub(crate) struct DemoService {
    events: mpsc::UnboundedSender<String>,
    /// Whether calls of the tool `wait` end.
    pub(crate) open: watch::Sender<bool>,
    pub(crate) callers: Mutex<Vec<Caller>>,
}

impl DemoService {
    pub(crate) fn new() -> (Arc<Self>, Events) {
        let (events, received) = mpsc::unbounded_channel();
        let open = watch::Sender::new(false);
        (Arc::new(Self { events, open, callers: Mutex::default() }), received)
    }

    fn record(&self, event: String) {
        // A finished test does not receive events any more.
        drop(self.events.send(event));
    }
}

/// Returns the session of a caller, and panics unless the caller is the owner of the server.
fn session(caller: &Caller) -> SessionId {
    let session = caller.session.unwrap();
    let client = caller.client.clone();
    assert_eq!(*caller, Caller { session: Some(session), client, ..Caller::local(1000) });
    session
}

fn tool(name: &str, input: Value, output: Option<Value>) -> ToolSpec {
    let object = |value: Value| value.as_object().cloned().unwrap();
    ToolSpec {
        name: name.to_owned(),
        title: Some(format!("The tool {name}")),
        description: format!("Does {name}."),
        input_schema: object(input),
        output_schema: output.map(object),
        annotations: Annotations { read_only: Some(true), ..Annotations::default() },
    }
}

impl Service for DemoService {
    fn about(&self, _: &Caller) -> About {
        let name = "demo".to_owned();
        About { name, version: "1.2.3".to_owned(), instructions: "Call echo.".to_owned() }
    }

    fn state_argument(&self) -> &'static str {
        "state"
    }

    async fn tools(&self, _caller: &Caller, _lifetime: StateLifetime) -> Vec<ToolSpec> {
        let text = json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"],
        });
        let nothing = json!({ "type": "object" });
        vec![
            tool("echo", text.clone(), Some(text)),
            tool("whoami", nothing.clone(), None),
            tool("keep", nothing.clone(), None),
            tool("wait", nothing.clone(), None),
            tool("count", nothing.clone(), None),
            tool("fail", nothing.clone(), None),
            tool("break", nothing, None),
        ]
    }

    async fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> Result<CallOutcome, CallError> {
        self.callers.lock().unwrap().push(caller.clone());
        self.record(format!("called {} {name}", session(caller)));
        let outcome = |text: &str| CallOutcome { text: text.to_owned(), ..CallOutcome::default() };
        match name {
            "echo" => {
                let Some(text) = arguments.get("text").and_then(Value::as_str) else {
                    return Err(CallError::InvalidArguments("`text` is missing".to_owned()));
                };
                Ok(CallOutcome { structured: Some(json!({ "text": text })), ..outcome(text) })
            }
            "whoami" => Ok(outcome(&session(caller).to_string())),
            "keep" => {
                context.retention.keep();
                Ok(outcome(&session(caller).to_string()))
            }
            "wait" => {
                let mut open = self.open.subscribe();
                tokio::select! {
                    _ = open.wait_for(|open| *open) => Ok(outcome("waited")),
                    () = context.cancelled.cancelled() => {
                        self.record(format!("cancelled {}", session(caller)));
                        Err(CallError::Internal("cancelled".to_owned()))
                    }
                }
            }
            "count" => {
                for (number, word) in
                    [(1.0, "one"), (1.0, "one again"), (2.0, "two"), (3.0, "three")]
                {
                    context.progress.report(number, Some(3.0), word.to_owned());
                }
                Ok(outcome("counted"))
            }
            "fail" => Ok(CallOutcome { is_error: true, ..outcome("it did not work") }),
            "break" => Err(CallError::Internal("broken".to_owned())),
            _ => Err(CallError::UnknownTool),
        }
    }

    async fn resources(&self, _caller: &Caller) -> Vec<ResourceSpec> {
        vec![ResourceSpec {
            uri: "demo://note".to_owned(),
            name: "note".to_owned(),
            title: None,
            description: Some("A note.".to_owned()),
            mime_type: Some("text/plain".to_owned()),
        }]
    }

    fn resource_templates(&self) -> Vec<ResourceTemplateSpec> {
        vec![ResourceTemplateSpec {
            uri_template: "demo://{name}".to_owned(),
            name: "any".to_owned(),
            title: None,
            description: None,
            mime_type: None,
        }]
    }

    async fn read(&self, _caller: &Caller, uri: &str) -> Result<Vec<ResourceContents>, ReadError> {
        if uri != "demo://note" {
            return Err(ReadError::NotFound);
        }
        let mime_type = Some("text/plain".to_owned());
        Ok(vec![ResourceContents { uri: uri.to_owned(), mime_type, text: "hello".to_owned() }])
    }

    async fn prompts(&self, _caller: &Caller) -> Vec<PromptSpec> {
        vec![PromptSpec {
            name: "greet".to_owned(),
            title: None,
            description: "Greets somebody.".to_owned(),
            arguments: vec![PromptArgument {
                name: "who".to_owned(),
                description: "LockedRole to greet.".to_owned(),
                required: true,
            }],
        }]
    }

    async fn prompt(
        &self,
        _caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<PromptText, PromptError> {
        if name != "greet" {
            return Err(PromptError::UnknownPrompt);
        }
        let Some(who) = arguments.get("who").and_then(Value::as_str) else {
            return Err(PromptError::InvalidArguments("`who` is missing".to_owned()));
        };
        Ok(PromptText { description: None, text: format!("Greet {who}.") })
    }

    fn closed(&self, caller: &Caller) {
        self.record(format!("closed {}", session(caller)));
    }
}
