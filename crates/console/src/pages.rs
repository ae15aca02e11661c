//! All pages. Each one reads its data with the API and fills a template.

mod boxes;
mod ledger;
mod overview;

use askama::Template;

use crate::{Api, PageRequest, Refusal, Text, assets};

/// The paths of all pages. A part in braces is variable.
pub const PATTERNS: &[&str] = &["/", "/boxes", "/ledger"];

/// Returns the HTML of a page.
pub async fn render(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    match request.pattern {
        "/" => overview::page(api, request).await,
        "/boxes" => boxes::page(api, request).await,
        "/ledger" => ledger::page(api, request).await,
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
