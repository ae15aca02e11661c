//! The form that checks and submits a plan.

use askama::Template;

use super::html;
use crate::frame::Frame;
use crate::{Api, PageRequest, Refusal};

/// The plan that the form begins with. It is small and has a gate.
const SAMPLE: &str = r#"[run]
name = "hello"
budget = { boxes = 1, time = "10m" }

[task.write]
do.command = ["echo", "hello"]

[task.approve]
do = { approval = "Go on with this text?", deadline = "1h" }
data = ["write"]

[task.read]
do.command = ["cat"]
data = ["approve"]
"#;

#[derive(Template)]
#[template(path = "plan.html")]
struct NewRun {
    frame: Frame,
    sample: &'static str,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Submit a plan").await?;
    html(&NewRun { frame, sample: SAMPLE })
}
