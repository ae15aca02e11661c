//! Extracts the token usage of a model from its response while the response is streamed.
//!
//! Providers report usage in JSON fields, either in one document or in a stream of events. Within
//! one response the counts only grow, so the largest value of each field is the final one.

use belljar_model::net::Target;

use super::json::{Json, Scalar};

/// A provider of language models whose responses report the used tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Anthropic: reports `usage` in the Messages API.
    Anthropic,
    /// OpenAI: reports `usage` in chat completions, responses and embeddings.
    OpenAi,
    /// Gemini: reports `usageMetadata` in `generateContent`.
    Gemini,
}

impl Provider {
    /// Returns the name of the provider, as the ledger records it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
        }
    }

    /// Returns the provider of language models that serves a host, if any.
    pub fn of(target: &Target) -> Option<Self> {
        match target.to_string().as_str() {
            "api.anthropic.com" => Some(Self::Anthropic),
            "api.openai.com" => Some(Self::OpenAi),
            "generativelanguage.googleapis.com" => Some(Self::Gemini),
            host if host.ends_with(".openai.azure.com") => Some(Self::OpenAi),
            _ => None,
        }
    }
}

/// The numbers of tokens that one response of a model used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The name of the model in the response.
    pub model: Option<String>,
    /// The number of input tokens that were not cached.
    pub input: u64,
    /// The number of input tokens read from a cache.
    pub cache_read: u64,
    /// The number of input tokens written to a cache.
    pub cache_write: u64,
    /// The number of output tokens, including reasoning.
    pub output: u64,
}

impl Usage {
    /// Returns the total number of tokens.
    pub fn tokens(&self) -> u64 {
        let Self { model: _, input, cache_read, cache_write, output } = self;
        [input, cache_read, cache_write, output]
            .into_iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// Extracts the number of used tokens from one response of a model.
#[derive(Debug)]
pub struct Observer {
    provider: Provider,
    json: Json,
    events: Option<Line>,
    fields: Fields,
}

/// The parser's position in a line of an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// The parser has matched this number of bytes of `data:`.
    Start(usize),
    Data,
    Other,
}

/// The fields about token usage that were found in the response so far.
#[derive(Debug, Default)]
struct Fields {
    model: Option<String>,
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    thoughts: u64,
    tools: u64,
    found_any: bool,
    /// Whether a usage was found that can be the final one.
    found_final: bool,
}

const DATA: &[u8] = b"data:";

impl Observer {
    /// Creates an observer for a model's response with this content type.
    pub fn new(provider: Provider, content_type: Option<&[u8]>) -> Self {
        const EVENTS: &[u8] = b"text/event-stream";
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let events = content_type.starts_with(EVENTS).then_some(Line::Start(0));
        Self { provider, json: Json::default(), events, fields: Fields::default() }
    }

    /// Parses the next bytes of the model's response.
    pub fn push(&mut self, bytes: &[u8]) {
        let (provider, fields) = (self.provider, &mut self.fields);
        let mut found = |path: &str, value: Scalar<'_>| fields.take(provider, path, value);
        let Some(line) = &mut self.events else { return self.json.push(bytes, &mut found) };
        for &byte in bytes {
            match (*line, byte) {
                (Line::Start(0), b'\n') => self.json.reset(),
                (Line::Start(_) | Line::Data | Line::Other, b'\n') => {
                    self.json.push(b"\n", &mut found);
                    *line = Line::Start(0);
                }
                // Handles lines that end in CR LF.
                (_, b'\r') => {}
                (Line::Start(seen), byte) if DATA.get(seen) == Some(&byte) => {
                    *line = if seen + 1 == DATA.len() { Line::Data } else { Line::Start(seen + 1) };
                }
                (Line::Start(_) | Line::Other, _) => *line = Line::Other,
                (Line::Data, byte) => self.json.push(&[byte], &mut found),
            }
        }
    }

    /// Returns whether the usage is complete if the response is. The first event of Anthropic has
    /// the usage of the input only.
    pub fn is_final(&self) -> bool {
        self.fields.found_final
    }

    /// Returns the token usage found so far; `None` if the response contained none.
    pub fn usage(&self) -> Option<Usage> {
        let Fields { model, input, cache_read, cache_write, output, thoughts, tools, .. } =
            &self.fields;
        // Anthropic's input count excludes cached tokens; the other providers include them.
        let input = match self.provider {
            Provider::Anthropic => *input,
            Provider::OpenAi | Provider::Gemini => input.saturating_sub(*cache_read),
        };
        self.fields.found_any.then(|| Usage {
            model: model.clone(),
            input: input.saturating_add(*tools),
            cache_read: *cache_read,
            cache_write: *cache_write,
            output: output.saturating_add(*thoughts),
        })
    }
}

impl Fields {
    fn take(&mut self, provider: Provider, path: &str, value: Scalar<'_>) {
        // Events wrap the fields that a document has at its top level.
        let is_first_event = path.starts_with("message.");
        let path = path.strip_prefix("message.").unwrap_or(path);
        let path = path.strip_prefix("response.").unwrap_or(path);
        let field = match (value, path) {
            (Scalar::Text(model), "model" | "modelVersion") => {
                self.model = Some(model.to_owned());
                return;
            }
            (Scalar::Text(_), _) => return,
            (Scalar::Number(number), path) => self.field(provider, path).map(|f| (f, number)),
        };
        if let Some((field, number)) = field {
            *field = number.max(*field);
            self.found_any = true;
            self.found_final |= !is_first_event;
        }
    }

    fn field(&mut self, provider: Provider, path: &str) -> Option<&mut u64> {
        Some(match (provider, path) {
            (Provider::Anthropic, "usage.input_tokens")
            | (Provider::OpenAi, "usage.prompt_tokens" | "usage.input_tokens")
            | (Provider::Gemini, "usageMetadata.promptTokenCount") => &mut self.input,
            (Provider::Anthropic, "usage.cache_read_input_tokens")
            | (
                Provider::OpenAi,
                "usage.prompt_tokens_details.cached_tokens"
                | "usage.input_tokens_details.cached_tokens",
            )
            | (Provider::Gemini, "usageMetadata.cachedContentTokenCount") => &mut self.cache_read,
            (Provider::Anthropic, "usage.cache_creation_input_tokens") => &mut self.cache_write,
            (Provider::Anthropic, "usage.output_tokens")
            | (Provider::OpenAi, "usage.completion_tokens" | "usage.output_tokens")
            | (Provider::Gemini, "usageMetadata.candidatesTokenCount") => &mut self.output,
            (Provider::Gemini, "usageMetadata.thoughtsTokenCount") => &mut self.thoughts,
            (Provider::Gemini, "usageMetadata.toolUsePromptTokenCount") => &mut self.tools,
            _ => return None,
        })
    }
}
