//! What a request to a model can use at most, by its path and body, before it is sent.
//!
//! A budget of tokens or money reserves this amount, so that several requests at once cannot exceed
//! the budget together, and a response without usage is not free. A request whose cost cannot be
//! bounded is not sent under such a budget.

use std::fmt;

use belljar_model::net::Target;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::{ModelApi, Provider, Usage};

/// The assumed maximum output of a model if the request names none.
const MAX_OUTPUT: u64 = 128_000;
/// The assumed maximum input of a model if a part of the input is stored at the provider.
const MAX_INPUT: u64 = 200_000;
/// The number of bytes of a request that count as one input token; real tokens are longer.
const BYTES_PER_TOKEN: u64 = 2;

/// The cost of a request to a provider of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The request uses no tokens.
    Free,
    /// The request uses at most these tokens.
    AtMost(Estimate),
    /// The broker cannot bound or count what the request uses.
    Unknown,
}

/// The maximum number of tokens that a request can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub api: ModelApi,
    pub usage: Usage,
    /// Whether the request names no maximum of its own. Then it may use what is left of a budget.
    pub is_open: bool,
}

/// Returns the cost of a request; `body` is `None` if the body is compressed.
pub fn cost(api: ModelApi, target: &Target, method: &str, path: &str, body: Option<&[u8]>) -> Cost {
    if ["GET", "HEAD", "OPTIONS", "DELETE"].contains(&method) {
        return Cost::Free;
    }
    let path = path.trim_end_matches('/').to_ascii_lowercase();
    // A rule that names the API also names the whole path, which can have any prefix.
    let is_at = |end: &str| path == end || (api.is_named && path.ends_with(end));
    let (is_free, is_counted) = match api.provider {
        Provider::Anthropic => (is_at("/v1/messages/count_tokens"), is_at("/v1/messages")),
        Provider::OpenAi if api.is_named => {
            let counted = ["/chat/completions", "/completions", "/embeddings", "/responses"];
            (false, counted.iter().any(|end| path.ends_with(end)))
        }
        Provider::OpenAi => {
            let name = openai_endpoint(target, &path);
            let counted = ["chat/completions", "completions", "embeddings", "responses"];
            (name == Some("moderations"), name.is_some_and(|name| counted.contains(&name)))
        }
        Provider::Gemini => {
            let ends = |names: &[&str]| names.iter().any(|name| path.ends_with(name));
            let counted = [":generatecontent", ":streamgeneratecontent", ":embedcontent"];
            (
                ends(&[":counttokens"]),
                ends(&counted) || ends(&[":batchembedcontents", "/openai/chat/completions"]),
            )
        }
    };
    match body.and_then(Limits::parse) {
        _ if method != "POST" => Cost::Unknown,
        _ if is_free => Cost::Free,
        Some(limits) if is_counted => {
            let model = limits.model.or_else(|| model_in(&path));
            let bytes = u64::try_from(body.map_or(0, <[u8]>::len)).unwrap_or(u64::MAX);
            let stored = if limits.has_stored_input { MAX_INPUT } else { 0 };
            let output = limits.output.unwrap_or(MAX_OUTPUT);
            let usage = Usage {
                model,
                input: bytes.div_ceil(BYTES_PER_TOKEN).saturating_add(stored),
                output: output.saturating_mul(limits.choices.unwrap_or(1).max(1)),
                ..Usage::default()
            };
            let is_open = limits.output.is_none() || limits.has_stored_input;
            Cost::AtMost(Estimate { api, usage, is_open })
        }
        _ => Cost::Unknown,
    }
}

/// Returns the name of an endpoint of OpenAI or Azure, without version and deployment.
fn openai_endpoint<'a>(target: &Target, path: &'a str) -> Option<&'a str> {
    let path = match target.to_string().ends_with(".openai.azure.com") {
        true => path.strip_prefix("/openai")?,
        false => path,
    };
    match path.strip_prefix("/deployments/") {
        Some(deployment) => deployment.split_once('/').map(|(_, name)| name),
        None => path.strip_prefix("/v1/"),
    }
}

/// Returns the model in a path of Gemini, `/v1beta/models/NAME:generateContent`.
fn model_in(path: &str) -> Option<String> {
    let (_, name) = path.split_once("/models/")?;
    Some(name.split(':').next()?.to_owned())
}

/// The fields of a request that limit what it uses. Of repeated keys, the largest value counts:
/// providers differ in which one they use.
#[derive(Debug, Default)]
struct Limits {
    model: Option<String>,
    output: Option<u64>,
    choices: Option<u64>,
    has_stored_input: bool,
}

impl Limits {
    /// Parses the body of a request; `None` if it is not one JSON object.
    fn parse(body: &[u8]) -> Option<Self> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let limits = json.deserialize_map(LimitsVisitor).ok()?;
        json.end().ok().map(|()| limits)
    }

    fn add(&mut self, other: Self) {
        self.model = self.model.take().or(other.model);
        self.output = self.output.max(other.output);
        self.choices = self.choices.max(other.choices);
        self.has_stored_input |= other.has_stored_input;
    }
}

struct LimitsVisitor;

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = Limits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Limits, A::Error> {
        let mut limits = Limits::default();
        while let Some(key) = map.next_key::<String>()? {
            let is_config = ["generationConfig", "generation_config"].contains(&key.as_str());
            match key.as_str() {
                "model" => {
                    let model: serde_json::Value = map.next_value()?;
                    limits.model = model.as_str().map(str::to_owned);
                }
                "max_tokens"
                | "max_completion_tokens"
                | "max_output_tokens"
                | "maxOutputTokens" => {
                    limits.output = limits.output.max(number(&map.next_value()?));
                }
                "n" | "best_of" | "candidateCount" | "candidate_count" => {
                    limits.choices = limits.choices.max(number(&map.next_value()?));
                }
                "previous_response_id" | "conversation" | "prompt_id" | "cachedContent" => {
                    let value: serde_json::Value = map.next_value()?;
                    limits.has_stored_input |= !value.is_null();
                }
                _ if is_config => limits.add(map.next_value::<Nested>()?.0),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(limits)
    }
}

/// The limits in an object of a request; empty for a value of another kind.
struct Nested(Limits);

impl<'de> serde::Deserialize<'de> for Nested {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitsVisitor).map(Self)
    }
}

/// Returns a number of tokens; a fraction is rounded up.
fn number(value: &serde_json::Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from a float saturates, and the number is only an upper bound"
    )]
    let rounded = |number: f64| number.ceil() as u64;
    value.as_u64().or_else(|| value.as_f64().map(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the maximum output of a request and whether the request leaves it open; `None` if its
    /// cost is unknown.
    #[track_caller]
    fn check(url: &str, body: &str, expected: Option<(u64, bool)>) {
        let (host, path) = url.split_at(url.find('/').unwrap());
        let target: Target = host.parse().unwrap();
        let api = ModelApi::of_host(&target).unwrap();
        let got = match cost(api, &target, "POST", path, Some(body.as_bytes())) {
            Cost::AtMost(Estimate { usage, is_open, .. }) => {
                assert!(usage.input >= u64::try_from(body.len()).unwrap() / 2);
                Some((usage.output, is_open))
            }
            Cost::Free => Some((0, false)),
            Cost::Unknown => None,
        };
        assert_eq!(got, expected, "{url} {body}");
    }

    #[test]
    fn estimate_of_a_model_call_follows_its_limits() {
        let openai = "api.openai.com/v1/chat/completions";
        check(openai, r#"{"max_tokens":100}"#, Some((100, false)));
        check(openai, r#"{"max_completion_tokens":100,"n":3}"#, Some((300, false)));
        check(openai, "{}", Some((MAX_OUTPUT, true)));
        check(openai, r#"{"max_tokens":null}"#, Some((MAX_OUTPUT, true)));
        check("api.openai.com/v1/responses", r#"{"max_output_tokens":5}"#, Some((5, false)));
        let azure = "x.openai.azure.com/openai/deployments/d/chat/completions";
        check(azure, r#"{"max_tokens":1}"#, Some((1, false)));
        check("api.anthropic.com/v1/messages", r#"{"max_tokens":7.5}"#, Some((8, false)));
        let gemini = "generativelanguage.googleapis.com/v1beta/models/g:generateContent";
        let config = r#"{"generationConfig":{"maxOutputTokens":9,"candidateCount":2}}"#;
        check(gemini, config, Some((18, false)));
    }

    #[test]
    fn repeated_and_escaped_limits_of_a_model_call_do_not_lower_the_estimate() {
        let openai = "api.openai.com/v1/chat/completions";
        check(openai, r#"{"max_tokens":900,"max_tokens":1}"#, Some((900, false)));
        check(openai, r#"{"max_tokens":1,"max\u005ftokens":900}"#, Some((900, false)));
        let stored = r#"{"max_output_tokens":1,"previous_response_id":"x"}"#;
        check("api.openai.com/v1/responses", stored, Some((1, true)));
        let target: Target = "api.openai.com".parse().unwrap();
        let path = "/v1/responses";
        let Cost::AtMost(estimate) =
            cost(Provider::OpenAi.into(), &target, "POST", path, Some(stored.as_bytes()))
        else {
            panic!("an estimate")
        };
        assert!(estimate.usage.input > MAX_INPUT, "the stored input counts");
    }

    #[test]
    fn model_calls_that_report_no_usage_have_no_known_cost() {
        for path in [
            "images/generations",
            "audio/speech",
            "audio/transcriptions",
            "batches",
            "files",
            "fine_tuning/jobs",
            "videos",
            "realtime/sessions",
            "threads/x/runs",
        ] {
            check(&format!("api.openai.com/v1/{path}"), "{}", None);
        }
        check("api.openai.com/v1/chat/completions", "not json", None);
        check("api.openai.com/v1/chat/completions", "{} {}", None);
        check("api.anthropic.com/v1/complete", "{}", None);
        check("api.anthropic.com/v1/messages/batches", "{}", None);
        check("api.anthropic.com/v1/messages/count_tokens", "{}", Some((0, false)));
        check("generativelanguage.googleapis.com/v1beta/models/i:predict", "{}", None);
        let target: Target = "api.openai.com".parse().unwrap();
        let packed = cost(Provider::OpenAi.into(), &target, "POST", "/v1/responses", None);
        assert_eq!(packed, Cost::Unknown);
        assert_eq!(cost(Provider::OpenAi.into(), &target, "GET", "/v1/models", None), Cost::Free);
        assert_eq!(
            cost(Provider::OpenAi.into(), &target, "PUT", "/v1/responses", Some(b"{}")),
            Cost::Unknown
        );
    }
}
