//! The web console of the server: data of the API in, HTML out.
//!
//! ```text
//! browser ──▶ gateway: session, rights ──▶ render ──▶ Api::get("/v1/…") ──▶ gateway: the same routes as for programs
//!                                            │
//!                                            └──▶ template ──▶ HTML
//! ```
//! A page reads only what the API returns to the same person, so a page can show nothing that the person has no right
//! to. Changes are requests of the browser to the API; see `assets/console.js`.
//!
//! **Invariant:** every text that a box, a model or a server wrote goes through [`Text`], and askama escapes all
//! values. No template uses the filter `safe`.

#![forbid(unsafe_code)]

mod assets;
mod diff;
mod frame;
mod pages;
mod rights;
mod text;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use assets::{ASSETS, Asset};
pub use pages::{PATTERNS, opened_again, refused, render};
pub use rights::{Extents, RIGHTS};
pub use text::Text;

/// The API of the server, with the rights of the person who opened a page.
pub trait Api: Sync {
    /// Sends a GET request and returns the JSON of the response.
    fn get(&self, path: &str) -> impl Future<Output = Result<Value, Refusal>> + Send;
}

/// Why a page cannot be shown: the problem that the API returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    pub status: u16,
    pub title: String,
    pub detail: String,
}

impl Refusal {
    /// Returns the refusal for a response that does not have the documented form.
    fn unexpected(path: &str) -> Self {
        Self {
            status: 500,
            title: "The page cannot be shown".to_owned(),
            detail: format!("the response of {path} does not have the documented form"),
        }
    }

    /// Returns whether the person has no right to the data, or the data does not exist.
    const fn is_missing(&self) -> bool {
        matches!(self.status, 403 | 404)
    }
}

/// A request for a page.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// The pattern of the page, one of [`PATTERNS`].
    pub pattern: &'static str,
    /// The variable parts of the path, decoded.
    pub params: Vec<(String, String)>,
    /// The parameters of the query, decoded.
    pub query: Vec<(String, String)>,
    /// The time in milliseconds since 1970.
    pub now: u64,
    /// A value of the response's policy that permits styles of this page only.
    pub nonce: String,
}

impl PageRequest {
    /// Returns a variable part of the path.
    fn param(&self, name: &str) -> &str {
        let found = self.params.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns a parameter of the query. A missing one is empty.
    fn query(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Reads data of the API into the part of it that a page shows.
async fn read<T: DeserializeOwned>(api: &impl Api, path: &str) -> Result<T, Refusal> {
    let value = api.get(path).await?;
    serde_json::from_value(value).map_err(|_| Refusal::unexpected(path))
}

/// Reads data that the person may have no right to. `None` if so, or if it does not exist.
async fn read_if_permitted<T: DeserializeOwned>(
    api: &impl Api,
    path: &str,
) -> Result<Option<T>, Refusal> {
    match read(api, path).await {
        Ok(data) => Ok(Some(data)),
        Err(refusal) if refusal.is_missing() => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Returns a path with the parameters that have a value.
fn path_with(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let given: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", text::segment(value))).collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

/// A page of a list of the API.
#[derive(Debug, Clone, serde::Deserialize)]
struct List<T> {
    items: Vec<T>,
    next: Option<String>,
}
