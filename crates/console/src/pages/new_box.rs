//! The form for a new box.

use askama::Template;

use super::html;
use crate::frame::Frame;
use crate::{Api, PageRequest, Refusal};

/// The agents that Belljar knows. The policy can have more.
const AGENTS: [&str; 5] = ["aider", "claude", "codex", "gemini", "opencode"];

#[derive(Template)]
#[template(path = "new_box.html")]
struct NewBox {
    frame: Frame,
    agents: [&'static str; 5],
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "New box").await?;
    html(&NewBox { frame, agents: AGENTS })
}
