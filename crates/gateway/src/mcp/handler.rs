//! Between the SDK and a [`Service`]: which session a request is of, and what its answer looks like.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CustomRequest,
    CustomResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, InitializeRequestParams,
    InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::mpsc;

use crate::mcp::context::{CallContext, Progress, Report};
use crate::mcp::convert;
use crate::mcp::service::Service;
use crate::mcp::slot::SessionSlot;

/// The revisions that we speak. The SDK knows older ones, which nothing in the field needs from us.
const VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// How long the last reports of a call may hold back its answer.
const LAST_REPORTS: Duration = Duration::from_secs(1);

/// Methods with parameters that the SDK reads: whatever it could not read of them is our caller's fault.
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

/// Answers the SDK's questions out of a service.
pub(crate) struct Handler<S> {
    service: Arc<S>,
    /// The session of every request. Over HTTP each request brings its own.
    slot: Option<Arc<SessionSlot>>,
}

impl<S: Service> Handler<S> {
    /// For a connection that is one session.
    pub(crate) fn of(service: Arc<S>, slot: Arc<SessionSlot>) -> Self {
        Self { service, slot: Some(slot) }
    }

    /// For requests that carry their session with them.
    pub(crate) fn of_requests(service: Arc<S>) -> Self {
        Self { service, slot: None }
    }

    fn slot(&self, context: &RequestContext<RoleServer>) -> Result<Arc<SessionSlot>, ErrorData> {
        let brought = || {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<Arc<SessionSlot>>()
        };
        let slot = self.slot.as_ref().or_else(brought);
        slot.cloned()
            .ok_or_else(|| ErrorData::internal_error("this request is of no session", None))
    }
}

/// The name of a tool as a stranger wrote it, for a line of the log.
fn short(name: &str) -> &str {
    const MOST: usize = 128; // bytes
    let end = (0..=MOST).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    name.get(..end).unwrap_or(name)
}

impl<S: Service> ServerHandler for Handler<S> {
    fn get_info(&self) -> ServerConfig {
        convert::about(self.service.about())
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
        // What was agreed on, not what was asked for: later answers have the shape of this revision.
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
        first_page(request)?;
        let slot = self.slot(&context)?;
        let tools = self.service.tools(&slot.caller).await;
        tracing::debug!(tools = tools.len(), "tools are listed");
        Ok(ListToolsResult::with_all_items(tools.into_iter().map(convert::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let slot = self.slot(&context)?;
        let Some(_busy) = slot.call() else {
            let words = "too many calls of this session are under way: wait for one to end";
            return Err(ErrorData::internal_error(words, None));
        };
        let cancelled = slot.ending.child_token();
        let (progress, mut reports) = Progress::channel();
        let token = context.meta.get_progress_token();
        let progress = if token.is_some() { progress } else { Progress::nobody() };
        let call_context = CallContext { progress, cancelled: cancelled.clone() };
        let tool = short(&request.name);
        tracing::info!(tool, "tool call begins");
        let began = std::time::Instant::now();
        let arguments = request.arguments.unwrap_or_default();
        let call = self.service.call(&slot.caller, &request.name, arguments, call_context);
        let mut teller = Teller { context: &context, token, said: f64::NEG_INFINITY };
        let outcome = {
            let mut call = std::pin::pin!(call);
            let tell = teller.tell(&mut reports);
            let mut tell = std::pin::pin!(tell);
            let (mut told, mut unwanted) = (false, false);
            loop {
                tokio::select! {
                    outcome = &mut call => break outcome,
                    () = &mut tell, if !told => told = true,
                    () = context.ct.cancelled(), if !unwanted => {
                        unwanted = true;
                        cancelled.cancel();
                    }
                }
            }
        };
        // What it said last is worth a moment, but no client can hold an answer back with it.
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(tool, millis, "tool call ends");
        reports.close();
        drop(tokio::time::timeout(LAST_REPORTS, teller.tell(&mut reports)).await);
        convert::called(&request.name, outcome).map(Into::into)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        first_page(request)?;
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
        first_page(request)?;
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
        first_page(request)?;
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
        Err(no_method("completion/complete"))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let handshake = context.protocol_version().is_none_or(|version| version.has_initialize());
        let typed = TYPED.contains(&request.method.as_str());
        if typed && (handshake || request.method != "initialize") {
            let words = format!("the parameters of `{}` do not fit", request.method);
            return Err(ErrorData::invalid_params(words, None));
        }
        Err(no_method(&request.method))
    }
}

/// Says to a client how far its call is.
struct Teller<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<rmcp::model::ProgressToken>,
    said: f64,
}

impl Teller<'_> {
    /// Until no more reports can come.
    async fn tell(&mut self, reports: &mut mpsc::Receiver<Report>) {
        while let Some(Report { done, total, message }) = reports.recv().await {
            // The protocol wants numbers that grow.
            let Some(token) = self.token.clone().filter(|_| done > self.said) else { continue };
            self.said = done;
            let mut said = ProgressNotificationParam::new(token, done).with_message(message);
            said.total = total;
            // A client that is gone hears nothing, and its call is ended elsewhere.
            drop(self.context.peer.notify_progress(said).await);
        }
    }
}

/// Every list that we give is one page, so no cursor is one of ours.
fn first_page(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("there is no such page", None)),
    }
}

fn no_method(name: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{name}`"), None)
}
