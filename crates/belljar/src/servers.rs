//! Other servers (stand-in until the real one).
use crate::failure::Failure;
use crate::state::State;
use belljar_model::Config;
use serde_json::value::RawValue;
use std::path::Path;
use tokio_util::sync::CancellationToken;
#[derive(Debug)]
pub(crate) struct Servers;
#[derive(Debug, Clone)]
pub(crate) struct ForeignTool {
    pub(crate) server: String,
    pub(crate) function: String,
    pub(crate) name: String,
    pub(crate) description: String,
}
impl Servers {
    pub(crate) fn new(_: &Config, _: &State, _: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self)
    }
    pub(crate) async fn tools(&self) -> Vec<ForeignTool> {
        Vec::new()
    }
    pub(crate) async fn search(&self, _: &str, _: usize) -> Vec<ForeignTool> {
        Vec::new()
    }
    pub(crate) async fn call(
        &self,
        _: &str,
        _: &str,
        _: Box<RawValue>,
        _: CancellationToken,
    ) -> Result<Box<RawValue>, String> {
        Err("none".to_owned())
    }
    pub(crate) async fn stop(&self) {}
}
pub(crate) fn declarations(found: &[ForeignTool]) -> String {
    found
        .iter()
        .map(|tool| format!("{}.{}: {}\n", tool.server, tool.function, tool.description))
        .collect()
}
