//! Connects the SDK to a [`Service`]: finds the session of a request and converts the response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use belljar_model::caller::Caller;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CustomRequest,
    CustomResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, InitializeRequestParams,
    InitializeResult, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::mpsc;

use crate::mcp::context::{CallContext, Progress, ProgressReport};
use crate::mcp::convert;
use crate::mcp::service::{CallError, Service};
use crate::mcp::slot::{BusyGuard, RequestSession, SessionSlot};

/// The supported revisions of the MCP protocol. The SDK supports older ones, which no current
/// client needs.
const VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// The timeout for the last progress reports of a call, which are sent before its response.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// The MCP methods whose parameters the SDK parses; a parse failure is an error of the client.
const TYPED: [&str; 9] = [
    "initialize",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
];

/// Handles the requests that the MCP SDK received with a service.
pub(crate) struct Handler<S> {
    service: Arc<S>,
    /// The client that the server describes itself to.
    owner: Caller,
    /// The session of all requests of the connection; `None` if each request names its own. Over
    /// HTTP each request contains its own session.
    slot: Option<Arc<SessionSlot>>,
}

impl<S: Service> Handler<S> {
    /// Creates a handler for a connection whose requests all belong to one session.
    pub(crate) fn for_session(service: Arc<S>, slot: Arc<SessionSlot>) -> Self {
        Self { service, owner: slot.caller.clone(), slot: Some(slot) }
    }

    /// Creates a handler for requests of one client that each name their session.
    pub(crate) fn per_request(service: Arc<S>, owner: Caller) -> Self {
        Self { service, owner, slot: None }
    }

    fn slot(&self, context: &RequestContext<RoleServer>) -> Result<Arc<SessionSlot>, ErrorData> {
        let from_request = || Some(&request_session(context)?.slot);
        let slot = self.slot.as_ref().or_else(from_request);
        slot.cloned().ok_or_else(|| ErrorData::internal_error("this request has no session", None))
    }

    /// Returns the session of a tool call. A request without a session can name a kept session in an
    /// argument, which is removed.
    fn slot_of_call(
        &self,
        context: &RequestContext<RoleServer>,
        arguments: &mut JsonObject,
    ) -> Result<CallSlot, ErrorData> {
        let own = self.slot(context)?;
        let kept = request_session(context).and_then(|session| session.kept.as_ref());
        let Some(kept) = kept else { return Ok(CallSlot::Found(own, None)) };
        let name = self.service.state_argument();
        Ok(match arguments.remove(name) {
            None | Some(serde_json::Value::Null) => CallSlot::Found(own, None),
            Some(id) => match id.as_str().and_then(|id| kept.find_kept(id)) {
                Some((slot, busy)) => CallSlot::Found(slot, Some(busy)),
                None => CallSlot::Unknown(format!("`{name}` is unknown or has expired")),
            },
        })
    }
}

/// The session of a tool call.
enum CallSlot {
    /// The session, with a guard if the call names a kept one.
    Found(Arc<SessionSlot>, Option<BusyGuard>),
    /// The call names a session that does not exist; with a text for the model.
    Unknown(String),
}

/// Returns the session of a request over HTTP.
fn request_session(context: &RequestContext<RoleServer>) -> Option<&RequestSession> {
    let parts = context.extensions.get::<http::request::Parts>()?;
    parts.extensions.get::<RequestSession>()
}

/// Truncates a tool name from a client for the log.
fn truncate(name: &str) -> &str {
    const MAX_BYTES: usize = 128;
    let end = (0..=MAX_BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    name.get(..end).unwrap_or(name)
}

impl<S: Service> ServerHandler for Handler<S> {
    fn get_info(&self) -> ServerConfig {
        convert::about(self.service.about(&self.owner))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(VERSIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let answer = self.negotiate_initialize(&request)?;
        // Stores the negotiated revision, not the requested one: later responses have its format.
        let mut peer = request;
        peer.protocol_version = answer.protocol_version.clone();
        tracing::info!(revision = %answer.protocol_version, "client connected");
        context.peer.set_peer_info(peer);
        Ok(answer)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        require_first_page(request)?;
        let slot = self.slot(&context)?;
        let tools = self.service.tools(&slot.caller, slot.retention.lifetime()).await;
        tracing::debug!(tools = tools.len(), "listing tools");
        Ok(ListToolsResult::with_all_items(tools.into_iter().map(convert::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut arguments = request.arguments.unwrap_or_default();
        let (slot, _kept) = match self.slot_of_call(&context, &mut arguments)? {
            CallSlot::Found(slot, busy) => (slot, busy),
            CallSlot::Unknown(why) => {
                let refused = Err(CallError::InvalidArguments(why));
                return convert::called(&request.name, refused).map(Into::into);
            }
        };
        let Some(_busy) = slot.call() else {
            let message = "too many calls of this session are running; wait until one ends";
            return Err(ErrorData::internal_error(message, None));
        };
        let cancelled = slot.ending.child_token();
        let (progress, mut reports) = Progress::channel();
        let token = context.meta.get_progress_token();
        let progress = if token.is_some() { progress } else { Progress::none() };
        let (client, retention) = (slot.client, slot.retention.clone());
        let call_context =
            CallContext { client, retention, progress, cancelled: cancelled.clone() };
        let tool = truncate(&request.name);
        tracing::info!(tool, "tool call begins");
        let began = std::time::Instant::now();
        let call = self.service.call(&slot.caller, &request.name, arguments, call_context);
        let mut sender = ProgressSender { context: &context, token, last_sent: f64::NEG_INFINITY };
        let outcome = {
            let mut call = std::pin::pin!(call);
            let forward = sender.forward(&mut reports);
            let mut forward = std::pin::pin!(forward);
            let (mut forwarded, mut unwanted) = (false, false);
            loop {
                tokio::select! {
                    outcome = &mut call => break outcome,
                    () = &mut forward, if !forwarded => forwarded = true,
                    () = context.ct.cancelled(), if !unwanted => {
                        unwanted = true;
                        cancelled.cancel();
                    }
                }
            }
        };
        // The last reports get a short time, but no client can delay the response with them.
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(tool, millis, "tool call ends");
        reports.close();
        drop(tokio::time::timeout(PROGRESS_TIMEOUT, sender.forward(&mut reports)).await);
        convert::called(&request.name, outcome).map(Into::into)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        require_first_page(request)?;
        let slot = self.slot(&context)?;
        let resources = self.service.resources(&slot.caller).await;
        let resources = resources.into_iter().map(convert::resource).collect();
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        require_first_page(request)?;
        let templates = self.service.resource_templates();
        let templates = templates.into_iter().map(convert::template).collect();
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let slot = self.slot(&context)?;
        let contents = self.service.read(&slot.caller, &request.uri).await;
        convert::read(&request.uri, contents).map(Into::into)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        require_first_page(request)?;
        let slot = self.slot(&context)?;
        let prompts = self.service.prompts(&slot.caller).await;
        Ok(ListPromptsResult::with_all_items(prompts.into_iter().map(convert::prompt).collect()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let slot = self.slot(&context)?;
        let arguments = request.arguments.unwrap_or_default();
        let text = self.service.prompt(&slot.caller, &request.name, arguments).await;
        convert::prompted(&request.name, text).map(Into::into)
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(unknown_method("completion/complete"))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let handshake = context.protocol_version().is_none_or(|version| version.has_initialize());
        let typed = TYPED.contains(&request.method.as_str());
        if typed && (handshake || request.method != "initialize") {
            let message = format!("invalid parameters for `{}`", request.method);
            return Err(ErrorData::invalid_params(message, None));
        }
        Err(unknown_method(&request.method))
    }
}

/// Forwards the progress reports of a call to its client.
struct ProgressSender<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<rmcp::model::ProgressToken>,
    last_sent: f64,
}

impl ProgressSender<'_> {
    /// Forwards progress reports to the client until the channel is closed.
    async fn forward(&mut self, reports: &mut mpsc::Receiver<ProgressReport>) {
        while let Some(ProgressReport { done, total, message }) = reports.recv().await {
            // The protocol requires increasing numbers.
            let Some(token) = self.token.clone().filter(|_| done > self.last_sent) else {
                continue;
            };
            self.last_sent = done;
            let mut notification =
                ProgressNotificationParam::new(token, done).with_message(message);
            notification.total = total;
            // A disconnected client receives nothing, and its call is cancelled elsewhere.
            drop(self.context.peer.notify_progress(notification).await);
        }
    }
}

/// Returns an error if the request has a cursor, because every list has only one page.
fn require_first_page(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor) {
        None => Ok(()),
        Some(_) => {
            Err(ErrorData::invalid_params("unknown cursor; the list has only one page", None))
        }
    }
}

fn unknown_method(name: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method `{name}`"), None)
}
