//! People of a tenant: roles, invitations, and what needs a recent login.

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded};

const ALICE: &str = "person:https://id.example#alice";

/// Returns the person with a principal in the list of people.
async fn find(server: &TestGateway, login: &Login, principal: &str) -> Value {
    let list = login.get(server, "/v1/users").await;
    let items = list["items"].as_array().unwrap();
    let found = items.iter().find(|item| item["principal"] == principal);
    found.unwrap_or_else(|| panic!("no {principal} in {list}")).clone()
}

/// Changes a person with the version that the list has.
async fn change(server: &TestGateway, login: &Login, user: &Value, body: &Value) -> TestResponse {
    let path = format!("/v1/users/{}", user["id"].as_str().unwrap());
    let version = format!("If-Match: \"{}\"", user["version"].as_str().unwrap());
    login.patch(server, &path, body, &[&version]).await
}

async fn invite(server: &TestGateway, login: &Login, body: &Value) -> Value {
    let created = login.post(server, "/v1/invites", body).await;
    assert_eq!(created.status, 201, "{created:?}");
    serde_json::from_str(&created.body).unwrap()
}

/// Uses the link of an invitation.
async fn accept(server: &TestGateway, invitation: &Value) -> TestResponse {
    let (url, code) = invitation["url"].as_str().unwrap().split_once("/login#").unwrap();
    let host = url.strip_prefix("http://").unwrap();
    server.post_to(host, "/auth/link", &json!({ "code": code }), &[]).await
}

#[tokio::test]
async fn owner_changes_the_role_of_a_person_who_has_it_at_once() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let alice = server.login_as("local", ALICE, "member").await;
    problem(&alice.request(&server, "GET", "/v1/users").await, 403, "forbidden");
    let user = find(&server, &owner, ALICE).await;
    assert_eq!((&user["role"], &user["state"]), (&json!("member"), &json!("active")));
    let changed = change(&server, &owner, &user, &json!({ "role": "auditor" })).await;
    assert_eq!((changed.status, changed.header("etag")), (200, Some("\"2\"")), "{changed:?}");
    assert_eq!(alice.get(&server, "/v1/me").await["role"], "auditor");
    assert_eq!(alice.get(&server, "/v1/users?q=role:owner").await["items"][0]["role"], "owner");
    assert_eq!(alice.get(&server, "/v1/users?q=alice").await["items"][0]["principal"], ALICE);
    let same = find(&server, &owner, ALICE).await;
    let nothing = change(&server, &owner, &same, &json!({ "role": "auditor" })).await;
    assert_eq!(nothing.header("etag"), Some("\"2\""), "no change keeps the version");
    let acts = recorded(&server, "local", "access.changed");
    let found = acts.iter().find(|it| it["act"] == "user.changed").unwrap();
    assert_eq!((&found["subject"], &found["details"]), (&json!(ALICE), &json!(["role auditor"])));
}

#[tokio::test]
async fn change_of_a_person_needs_the_current_version_and_a_valid_body() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    server.login_as("local", ALICE, "member").await;
    let user = find(&server, &owner, ALICE).await;
    let path = format!("/v1/users/{}", user["id"].as_str().unwrap());
    let body = json!({ "role": "auditor" });
    problem(&owner.patch(&server, &path, &body, &[]).await, 428, "version-required");
    problem(&owner.patch(&server, &path, &body, &["If-Match: \"7\""]).await, 412, "stale");
    for (body, field) in [
        (json!({ "role": "root" }), "/role"),
        (json!({ "role": 1 }), "/role"),
        (json!({ "disabled": "yes" }), "/disabled"),
        (json!({ "name": "x" }), "/name"),
    ] {
        let refused = problem(&change(&server, &owner, &user, &body).await, 400, "invalid");
        assert_eq!(refused["field"], field, "{refused}");
    }
    let unknown = owner.patch(&server, "/v1/users/0123456789abcdef", &body, &[]).await;
    problem(&unknown, 404, "not-found");
    assert_eq!(change(&server, &owner, &user, &body).await.status, 200, "control");
    problem(&change(&server, &owner, &user, &body).await, 412, "stale");
}

#[tokio::test]
async fn f11_disabled_person_has_no_session_and_no_token_until_enabled_again() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let alice = server.login_as("local", ALICE, "member").await;
    let token = alice.token(&server, &["boxes:read"]).await;
    assert_eq!(server.with_token(&token, "/v1/me").await.status, 200, "control");
    let user = find(&server, &owner, ALICE).await;
    let changed = change(&server, &owner, &user, &json!({ "disabled": true })).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    problem(&alice.request(&server, "GET", "/v1/me").await, 401, "unauthenticated");
    problem(&server.with_token(&token, "/v1/me").await, 401, "unauthenticated");
    let user = find(&server, &owner, ALICE).await;
    assert_eq!(user["state"], "disabled");
    let enabled = change(&server, &owner, &user, &json!({ "disabled": false })).await;
    assert_eq!(enabled.status, 200, "{enabled:?}");
    assert_eq!(server.with_token(&token, "/v1/me").await.status, 200, "the token was not revoked");
    problem(&alice.request(&server, "GET", "/v1/me").await, 401, "unauthenticated");
}

#[tokio::test]
async fn last_owner_of_a_tenant_stays_owner() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let user = find(&server, &owner, "user:1000").await;
    for body in [json!({ "role": "admin" }), json!({ "disabled": true })] {
        problem(&change(&server, &owner, &user, &body).await, 409, "last-owner");
    }
    server.login_as("local", ALICE, "owner").await;
    let changed = change(&server, &owner, &user, &json!({ "role": "admin" })).await;
    assert_eq!(changed.status, 200, "control: another owner is left {changed:?}");
    assert_eq!(owner.get(&server, "/v1/me").await["role"], "admin");
}

#[tokio::test]
async fn f11_administrator_cannot_make_or_change_an_owner() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let admin = server.login_as("local", "person:https://id.example#admin", "admin").await;
    server.login_as("local", ALICE, "member").await;
    let (own, alice) = (
        find(&server, &admin, "person:https://id.example#admin").await,
        find(&server, &admin, ALICE).await,
    );
    let boss = find(&server, &admin, "user:1000").await;
    for (user, body) in [
        (&own, json!({ "role": "owner" })),
        (&alice, json!({ "role": "owner" })),
        (&boss, json!({ "role": "member" })),
        (&boss, json!({ "disabled": true })),
    ] {
        problem(&change(&server, &admin, user, &body).await, 403, "forbidden");
    }
    let invitation = json!({ "name": "eve", "role": "owner" });
    problem(&admin.post(&server, "/v1/invites", &invitation).await, 403, "forbidden");
    let changed = change(&server, &admin, &alice, &json!({ "role": "operator" })).await;
    assert_eq!(changed.status, 200, "control: {changed:?}");
    assert_eq!(owner.post(&server, "/v1/invites", &invitation).await.status, 201, "control");
}

#[tokio::test]
async fn f17_acts_of_owners_and_wide_tokens_need_a_recent_login() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    server.login_as("local", ALICE, "owner").await;
    let alice = find(&server, &owner, ALICE).await;
    let demotion = json!({ "role": "member" });
    let invitation = json!({ "name": "eve", "role": "owner" });
    let token = |scope: &str| json!({ "name": "t", "kind": "service", "scopes": [scope] });
    owner.age(&server, 11);
    for response in [
        change(&server, &owner, &alice, &demotion).await,
        owner.post(&server, "/v1/invites", &invitation).await,
        owner.post(&server, "/v1/tokens", &token("secrets:write")).await,
        owner.post(&server, "/v1/tokens", &token("changes:apply")).await,
        owner.post(&server, "/v1/ledger/redact", &json!({ "events": [], "reason": "x" })).await,
    ] {
        let problem = problem(&response, 403, "login-too-old");
        assert!(problem["detail"].as_str().unwrap().contains("log in again"), "{problem}");
    }
    let narrow = owner.post(&server, "/v1/tokens", &token("boxes:read")).await;
    assert_eq!(narrow.status, 201, "control: a narrow token {narrow:?}");
    let recent = server.login("local").await;
    let changed = change(&server, &recent, &alice, &demotion).await;
    assert_eq!(changed.status, 200, "control: a recent login {changed:?}");
}

#[tokio::test]
async fn f17_invitation_works_once_and_gives_its_role() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let invitation = invite(&server, &owner, &json!({ "name": "bob", "role": "operator" })).await;
    assert_eq!(invitation["role"], "operator");
    let used = accept(&server, &invitation).await;
    assert_eq!(used.status, 204, "{used:?}");
    let cookie = used.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let bob = Login::of_cookie(&server, owner.host.clone(), cookie).await;
    let me = bob.get(&server, "/v1/me").await;
    assert_eq!((&me["principal"], &me["role"]), (&json!("person:belljar#bob"), &json!("operator")));
    problem(&accept(&server, &invitation).await, 410, "gone");
    // Another link for the same person and role is another login. Another role is no invitation.
    let again = invite(&server, &owner, &json!({ "name": "bob", "role": "operator" })).await;
    assert_eq!(accept(&server, &again).await.status, 204);
    let other = json!({ "name": "bob", "role": "admin" });
    problem(&owner.post(&server, "/v1/invites", &other).await, 409, "exists");
    let acts = recorded(&server, "local", "access.changed");
    for act in ["invite.created", "user.added"] {
        let found = acts.iter().find(|it| it["act"] == act).unwrap();
        assert_eq!(found["subject"], "person:belljar#bob", "{found}");
    }
    let code = invitation["url"].as_str().unwrap().split_once('#').unwrap().1;
    assert!(!format!("{acts:?}").contains(code), "no code is recorded");
}

#[tokio::test]
async fn f11_invitation_of_a_person_who_lost_the_right_to_invite_is_void() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let principal = "person:https://id.example#admin";
    let admin = server.login_as("local", principal, "admin").await;
    let invitations = [
        invite(&server, &admin, &json!({ "name": "first", "role": "admin" })).await,
        invite(&server, &admin, &json!({ "name": "second", "role": "admin" })).await,
    ];
    assert_eq!(accept(&server, &invitations[0]).await.status, 204, "control");
    let user = find(&server, &owner, principal).await;
    let changed = change(&server, &owner, &user, &json!({ "role": "member" })).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    problem(&accept(&server, &invitations[1]).await, 410, "gone");
}

#[tokio::test]
async fn invalid_invitation_is_refused_with_its_field() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    for (name, value, field) in [
        ("name", json!(""), "/name"),
        ("name", json!("a#b"), "/name"),
        ("role", json!("root"), "/role"),
        ("hours", json!(0), "/hours"),
        ("hours", json!(169), "/hours"),
        ("mail", json!("x"), "/mail"),
    ] {
        let mut body = json!({ "name": "bob", "role": "member" });
        body[name] = value;
        let refused = problem(&owner.post(&server, "/v1/invites", &body).await, 400, "invalid");
        assert_eq!(refused["field"], field, "{refused}");
    }
}

#[tokio::test]
async fn f08_people_of_another_tenant_are_unknown() {
    let server = TestGateway::start().await;
    let team = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &team).await.status, 201);
    let (ours, theirs) = (server.login("local").await, server.login("team-7").await);
    let ada = find(&server, &theirs, "person:https://id.example#ada").await;
    let list = ours.get(&server, "/v1/users").await.to_string();
    assert!(!list.contains("ada"), "{list}");
    let disable = json!({ "disabled": true });
    problem(&change(&server, &ours, &ada, &disable).await, 404, "not-found");
    problem(&change(&server, &theirs, &ada, &disable).await, 409, "last-owner");
    // A person who is an owner of one tenant has no right in another.
    let invitation = invite(&server, &theirs, &json!({ "name": "bob", "role": "owner" })).await;
    let used = accept(&server, &invitation).await;
    let cookie = used.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let bob = Login::of_cookie(&server, ours.host.clone(), cookie).await;
    let switch = json!({ "tenant": "local" });
    problem(&bob.post(&server, "/auth/tenant", &switch).await, 404, "not-found");
    assert_eq!(bob.get(&server, "/v1/me").await["tenants"], json!(["team-7"]), "control");
}

#[tokio::test]
async fn invitation_is_shown_once_under_an_idempotency_key() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let body = json!({ "name": "bob", "role": "member" });
    let mut headers = owner.headers().to_vec();
    headers.push("Idempotency-Key: key-1".to_owned());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let first = server.post_to(&owner.host, "/v1/invites", &body, &headers).await;
    assert_eq!(first.status, 201, "{first:?}");
    let again = server.post_to(&owner.host, "/v1/invites", &body, &headers).await;
    problem(&again, 409, "shown-once");
}
