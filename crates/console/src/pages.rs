//! All pages. Each one reads its data with the API and fills a template.

mod approvals;
mod box_page;
mod boxes;
mod doctor;
mod ledger;
mod new_box;
mod overview;
mod people;
mod plans;
mod policy;
mod requests;
mod review;
mod runs;
mod schedules;
mod secrets;
mod usage;
mod webhooks;

use askama::Template;

use crate::{Api, PageRequest, Refusal, Text, assets};

/// The paths of all pages. A part in braces is variable.
pub const PATTERNS: &[&str] = &[
    "/",
    "/boxes",
    "/boxes/{box}",
    "/boxes/{box}/review",
    "/new/box",
    "/review",
    "/runs",
    "/runs/{run}",
    "/new/run",
    "/schedules",
    "/approvals",
    "/approvals/{approval}",
    "/requests",
    "/policy",
    "/policy/proposals/{proposal}",
    "/secrets",
    "/ledger",
    "/usage",
    "/people",
    "/webhooks",
    "/webhooks/{webhook}",
    "/doctor",
];

/// Returns the HTML of a page.
pub async fn render(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    match request.pattern {
        "/" => overview::page(api, request).await,
        "/boxes" => boxes::page(api, request).await,
        "/ledger" => ledger::page(api, request).await,
        "/runs" => runs::page(api, request).await,
        "/runs/{run}" => runs::run::page(api, request).await,
        "/new/run" => plans::page(api, request).await,
        "/schedules" => schedules::page(api, request).await,
        "/approvals" => approvals::page(api, request).await,
        "/approvals/{approval}" => approvals::one(api, request).await,
        "/boxes/{box}" => box_page::page(api, request).await,
        "/boxes/{box}/review" => review::page(api, request).await,
        "/new/box" => new_box::page(api, request).await,
        "/review" => review::list_page(api, request).await,
        "/requests" => requests::page(api, request).await,
        "/policy" => policy::page(api, request).await,
        "/policy/proposals/{proposal}" => policy::proposal(api, request).await,
        "/people" => people::page(api, request).await,
        "/secrets" => secrets::page(api, request).await,
        "/usage" => usage::page(api, request).await,
        "/webhooks" => webhooks::page(api, request).await,
        "/webhooks/{webhook}" => webhooks::one(api, request).await,
        "/doctor" => doctor::page(api, request).await,
        _ => Err(Refusal {
            status: 404,
            title: "The page does not exist".to_owned(),
            detail: "the console has no such page".to_owned(),
        }),
    }
}

#[derive(Template)]
#[template(path = "refused.html")]
struct Refused<'a> {
    refusal: &'a Refusal,
    version: &'static str,
}

/// Returns the page for a request that is refused.
pub fn refused(refusal: &Refusal) -> String {
    let page = Refused { refusal, version: assets::version() };
    page.render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "again.html")]
struct OpenedAgain<'a> {
    path: &'a Text,
}

/// Returns a page that opens a path of this server again.
pub fn opened_again(path: &Text) -> String {
    OpenedAgain { path }.render().unwrap_or_default()
}

/// Fills a template.
fn html(page: &impl Template) -> Result<String, Refusal> {
    page.render().map_err(|_| Refusal::unexpected("a template"))
}
