//! The pages of the console: who gets them, with which headers, and what they show to whom.

use serde_json::json;

use crate::gateway::{Login, TestGateway};

/// Pages that need no object.
const PAGES: [&str; 3] = ["/", "/boxes", "/ledger"];

async fn open(server: &TestGateway, login: &Login, path: &str) -> crate::client::TestResponse {
    login.request(server, "GET", path).await
}

#[tokio::test]
async fn page_without_a_session_leads_to_the_login_and_a_token_opens_no_page() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let token = login.token(&server, &["boxes:read", "ledger:read"]).await;
    for page in PAGES {
        let answer = server.get(page).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/login")), "{page}");
        let refused = server.with_token(&token, page).await;
        assert_eq!(refused.status, 403, "{page}: {refused:?}");
        let shown = open(&server, &login, page).await;
        assert_eq!(shown.status, 200, "control: {page} {shown:?}");
        assert_eq!(shown.header("content-type"), Some("text/html; charset=utf-8"));
    }
}

/// A browser sends no strict cookie when a page of another site leads to the console.
#[tokio::test]
async fn page_that_another_site_leads_to_is_opened_again_by_the_server_itself() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let host = format!("Host: {}", login.host);
    let path = "/boxes?q=%22%3E%3Cscript%3E";
    let start = format!("GET {path} HTTP/1.1");
    let again = server.lines(&[&start, &host, "Sec-Fetch-Site: cross-site"]).await;
    assert_eq!(again.status, 200, "{again:?}");
    assert!(
        again.body.contains("http-equiv=\"refresh\"") && again.body.contains(path),
        "{again:?}"
    );
    let direct = server.lines(&[&start, &host, "Sec-Fetch-Site: none"]).await;
    assert_eq!(direct.status, 303, "control: {direct:?}");
}

#[tokio::test]
async fn f12_text_of_a_person_and_of_a_query_is_escaped() {
    let server = TestGateway::unlimited().await;
    let hostile = "person:https://id.example#<img/src=x>";
    let login = server.login_as("local", hostile, "member").await;
    let page = open(&server, &login, "/boxes?q=%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(!page.body.contains("<img") && !page.body.contains("<script>"), "{page:?}");
    assert!(page.body.contains("&#60;img/src=x&#62;"), "control: the name is shown {page:?}");
    for (name, part) in [
        ("content-security-policy", "default-src 'none'; script-src 'self'; style-src 'self';"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert!(page.header(name).is_some_and(|value| value.contains(part)), "{name}: {page:?}");
    }
    let script = server.get("/static/console.js").await;
    assert_eq!(script.header("cache-control"), Some("public, max-age=31536000, immutable"));
}

#[tokio::test]
async fn f08_page_of_a_member_shows_no_box_of_others() {
    let server = TestGateway::unlimited().await;
    let owner = server.login("local").await;
    let new = json!({ "name": "canary7", "start": false });
    assert_eq!(owner.post(&server, "/v1/boxes", &new).await.status, 201);
    let member = server.login_as("local", "person:https://id.example#ada", "member").await;
    for page in ["/boxes", "/ledger"] {
        let shown = open(&server, &member, page).await;
        assert_eq!(shown.status, 200, "{page}: {shown:?}");
        assert!(!shown.body.contains("canary7"), "{page}: {shown:?}");
        let control = open(&server, &owner, page).await;
        assert!(control.body.contains("canary7"), "control: {page}");
    }
}
