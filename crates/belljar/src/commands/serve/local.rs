//! Sends requests to the local socket of the running server.

use std::io::{Read as _, Write as _};

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::scope::Scoped;
use belljar_engine::server;
use serde_json::Value;

/// The maximum length of a response in bytes.
const MAX_RESPONSE: u64 = 1024 * 1024;

/// Sends a JSON body to the server and returns the JSON body of its response.
pub(super) fn post(scope: &Scoped, path: &str, body: &Value) -> Result<Value, EngineError> {
    let mut stream = server::connect(scope)?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut text = String::new();
    let mut exchange = || -> std::io::Result<usize> {
        stream.write_all(request.as_bytes())?;
        (&stream).take(MAX_RESPONSE).read_to_string(&mut text)
    };
    exchange().context("the server did not answer").kind(ErrorKind::Broken)?;
    response(&text)
}

/// Parses a response. An error response becomes an error with its detail.
fn response(text: &str) -> Result<Value, EngineError> {
    let malformed = || EngineError::message(ErrorKind::Broken, "the server sent no valid response");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let body: Value = serde_json::from_str(body).map_err(|_| malformed())?;
    let kind = match status {
        Some(200..=299) => return Ok(body),
        Some(400) => ErrorKind::Invalid,
        Some(404) => ErrorKind::NotFound,
        Some(409) => ErrorKind::AlreadyExists,
        Some(503) => ErrorKind::Unrecorded,
        _ => ErrorKind::Broken,
    };
    let detail = body.get("detail").and_then(Value::as_str).ok_or_else(malformed)?;
    Err(EngineError::message(kind, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_the_body_or_an_error_with_the_detail_of_the_problem() {
        let text = "HTTP/1.1 201 Created\r\nX: y\r\n\r\n{\"url\":\"u\"}";
        assert_eq!(response(text).unwrap()["url"], "u");
        let text = "HTTP/1.1 404 Not Found\r\n\r\n{\"detail\":\"there is no tenant x\"}";
        let error = response(text).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::NotFound, "there is no tenant x".to_owned())
        );
        for text in ["", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 500 x\r\n\r\n{}"] {
            assert_eq!(response(text).unwrap_err().kind(), ErrorKind::Broken, "{text}");
        }
    }
}
