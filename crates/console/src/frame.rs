//! What all pages have in common: navigation, the person, and counts of what needs the person.

use serde::Deserialize;
use serde_json::Value;

use crate::text::principal;
use crate::{Api, List, PageRequest, Refusal, Text, assets, read, read_if_permitted};

/// The sender, as `GET /v1/me` returns it.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Me {
    pub(crate) principal: String,
    pub(crate) tenant: String,
    #[serde(default)]
    pub(crate) tenants: Vec<String>,
    pub(crate) role: String,
    #[serde(default)]
    pub(crate) csrf: Option<String>,
}

impl Me {
    /// Returns whether the person has one of these roles.
    pub(crate) fn is_any(&self, roles: &[&str]) -> bool {
        roles.contains(&self.role.as_str())
    }

    /// Returns whether the person may start and change boxes and runs.
    pub(crate) fn may_use(&self) -> bool {
        self.role != "auditor"
    }

    /// Returns whether the person may save policies, set secrets and manage people.
    pub(crate) fn is_admin(&self) -> bool {
        self.is_any(&["owner", "admin"])
    }
}

/// A link of the navigation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) is_current: bool,
    /// The number of objects that need the person.
    pub(crate) count: usize,
    pub(crate) has_more: bool,
}

/// The frame of a page.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) title: Text,
    pub(crate) me: Me,
    pub(crate) person: Text,
    pub(crate) version: &'static str,
    pub(crate) main: Vec<Link>,
    pub(crate) control: Vec<Link>,
    pub(crate) record: Vec<Link>,
    pub(crate) admin: Vec<Link>,
    /// The number of questions that wait for an answer.
    pub(crate) open: usize,
}

/// The number of questions that are counted for the navigation.
const COUNTED: usize = 50;

impl Frame {
    /// Reads the data of the frame. `current` is the path of the page in the navigation.
    pub(crate) async fn read(
        api: &impl Api,
        request: &PageRequest,
        title: impl Into<Text>,
    ) -> Result<Self, Refusal> {
        let me: Me = read(api, "/v1/me").await?;
        let path = format!("/v1/approvals?limit={COUNTED}&q=state:open");
        let open: Option<List<Value>> = read_if_permitted(api, &path).await?;
        let (open, has_more) = open.map_or((0, false), |it| (it.items.len(), it.next.is_some()));
        let current = section(request.pattern);
        let link = |path: &'static str, name, icon| {
            let (count, has_more) =
                if path == "/approvals" { (open, has_more) } else { (0, false) };
            Link { path, name, icon, is_current: path == current, count, has_more }
        };
        Ok(Self {
            title: title.into(),
            person: principal(&me.principal),
            version: assets::version(),
            main: vec![
                link("/", "Overview", "home"),
                link("/boxes", "Boxes", "box"),
                link("/runs", "Runs", "run"),
                link("/review", "Review", "review"),
                link("/approvals", "Approvals", "shield"),
            ],
            control: vec![
                link("/requests", "Requests", "requests"),
                link("/policy", "Policy", "policy"),
                link("/secrets", "Secrets", "key"),
            ],
            record: vec![link("/ledger", "Ledger", "link"), link("/usage", "Usage", "usage")],
            admin: vec![
                link("/people", "People and tokens", "people"),
                link("/webhooks", "Webhooks", "webhook"),
                link("/doctor", "Doctor", "pulse"),
            ],
            open,
            me,
        })
    }
}

/// Returns the path in the navigation to which a page belongs.
fn section(pattern: &'static str) -> &'static str {
    let end = pattern.get(1..).and_then(|rest| rest.find('/'));
    match end {
        _ if matches!(pattern, "/new/run" | "/schedules") => "/runs",
        _ if pattern.ends_with("/review") => "/review",
        Some(end) => pattern.get(..=end).unwrap_or(pattern),
        None => pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_an_object_belongs_to_the_list_of_its_kind() {
        let sections = ["/", "/boxes", "/boxes/{box}", "/boxes/{box}/review", "/runs/{run}"];
        let expect = ["/", "/boxes", "/boxes", "/review", "/runs"];
        assert_eq!(sections.map(section), expect);
    }
}
