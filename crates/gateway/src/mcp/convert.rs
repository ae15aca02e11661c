//! Converts the types of a [`Service`](crate::Service) to the types of the protocol.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, Implementation, Prompt,
    PromptArgument as Argument, PromptMessage, ReadResourceResult, Resource,
    ResourceContents as Contents, ResourceTemplate, Role, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use serde_json::json;

use crate::mcp::service::{
    About, Annotations, CallError, CallOutcome, PromptError, PromptSpec, PromptText, ReadError,
    ResourceContents, ResourceSpec, ResourceTemplateSpec, ToolSpec,
};

pub(crate) fn about(about: About) -> ServerConfig {
    let About { name, version, instructions } = about;
    let can = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts();
    let mut info = ServerConfig::new(can.build()).with_instructions(instructions);
    info.server_info = Implementation::new(name, version);
    info
}

pub(crate) fn tool(spec: ToolSpec) -> Tool {
    let ToolSpec { name, title, description, input_schema, output_schema, annotations } = spec;
    let Annotations { read_only, destructive, idempotent, open_world } = annotations;
    let hints = ToolAnnotations::from_raw(None, read_only, destructive, idempotent, open_world);
    let mut tool = Tool::new(name, description, Arc::new(input_schema)).with_annotations(hints);
    tool.title = title;
    tool.output_schema = output_schema.map(Arc::new);
    tool
}

/// Converts the result of a tool call to the type of the MCP SDK. Invalid arguments become a failed
/// call, which clients show to the model; other errors become protocol errors, which many clients
/// do not show.
pub(crate) fn called(
    name: &str,
    outcome: Result<CallOutcome, CallError>,
) -> Result<CallToolResult, ErrorData> {
    match outcome {
        Ok(CallOutcome { text, structured, is_error }) => {
            let text = vec![ContentBlock::text(text)];
            let mut result =
                if is_error { CallToolResult::error(text) } else { CallToolResult::success(text) };
            result.structured_content = structured;
            Ok(result)
        }
        Err(CallError::UnknownTool) => {
            Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None))
        }
        Err(CallError::InvalidArguments(message)) => {
            Ok(CallToolResult::error(vec![ContentBlock::text(message)]))
        }
        Err(CallError::Internal(message)) => Err(ErrorData::internal_error(message, None)),
    }
}

pub(crate) fn resource(spec: ResourceSpec) -> Resource {
    let ResourceSpec { uri, name, title, description, mime_type } = spec;
    let mut resource = Resource::new(uri, name);
    resource.title = title;
    resource.description = description;
    resource.mime_type = mime_type;
    resource
}

pub(crate) fn template(spec: ResourceTemplateSpec) -> ResourceTemplate {
    let ResourceTemplateSpec { uri_template, name, title, description, mime_type } = spec;
    let mut template = ResourceTemplate::new(uri_template, name);
    template.title = title;
    template.description = description;
    template.mime_type = mime_type;
    template
}

pub(crate) fn read(
    uri: &str,
    contents: Result<Vec<ResourceContents>, ReadError>,
) -> Result<ReadResourceResult, ErrorData> {
    match contents {
        Ok(contents) => {
            let one = |ResourceContents { uri, mime_type, text }| Contents::TextResourceContents {
                uri,
                mime_type,
                text,
                meta: None,
            };
            Ok(ReadResourceResult::new(contents.into_iter().map(one).collect()))
        }
        Err(ReadError::NotFound) => {
            Err(ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri }))))
        }
        Err(ReadError::Internal(message)) => Err(ErrorData::internal_error(message, None)),
    }
}

pub(crate) fn prompt(spec: PromptSpec) -> Prompt {
    let PromptSpec { name, title, description, arguments } = spec;
    let one = |argument: crate::mcp::service::PromptArgument| {
        Argument::new(argument.name)
            .with_description(argument.description)
            .with_required(argument.required)
    };
    let mut prompt =
        Prompt::new(name, Some(description), Some(arguments.into_iter().map(one).collect()));
    prompt.title = title;
    prompt
}

pub(crate) fn prompted(
    name: &str,
    text: Result<PromptText, PromptError>,
) -> Result<GetPromptResult, ErrorData> {
    match text {
        Ok(PromptText { description, text }) => {
            let mut result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]);
            result.description = description;
            Ok(result)
        }
        Err(PromptError::UnknownPrompt) => {
            Err(ErrorData::invalid_params(format!("Unknown prompt: {name}"), None))
        }
        Err(PromptError::InvalidArguments(message)) => {
            Err(ErrorData::invalid_params(message, None))
        }
        Err(PromptError::Internal(message)) => Err(ErrorData::internal_error(message, None)),
    }
}
