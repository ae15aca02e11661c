//! The usage of boxes and runs over the API.

use serde_json::{Value, json};

use crate::gateway::{TestGateway, problem};
use crate::runs::{person, start, wait_for};

fn names(report: &Value) -> Vec<&str> {
    report["items"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn usage_is_added_up_by_principal_run_and_interval_for_those_who_may_see_it() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let ada = person(&server, "ada", "member").await;
    let plan = "[task.a]\ndo.command = ['sleep', '0.1']\n";
    for login in [&login, &ada] {
        let run = start(&server, login, plan).await;
        wait_for(&server, login, &run, "succeeded").await;
    }
    let ada_name = "person:https://id.example#ada";
    let report = login.get(&server, "/v1/usage?by=principal&step=total").await;
    assert_eq!(names(&report), [ada_name, "user:1000"], "{report:#}");
    let usage = &report["items"][0]["usage"];
    assert!(usage["time"].as_u64().is_some_and(|time| time > 0), "{report:#}");
    assert_eq!((&usage["money"], &usage["calls"]), (&json!("0.00"), &json!(0)));
    for step in ["hour", "day", "month", "total"] {
        let report = login.get(&server, &format!("/v1/usage?step={step}")).await;
        assert!(!report["items"].as_array().unwrap().is_empty(), "{step} {report}");
    }
    let runs = login.get(&server, "/v1/usage?by=run&step=month").await;
    assert_eq!(names(&runs).len(), 2, "{runs:#}");
    let own = ada.get(&server, "/v1/usage?by=principal&step=total").await;
    assert_eq!(names(&own), [ada_name], "a member sees the own usage only");
    assert_eq!(names(&ada.get(&server, "/v1/usage?by=run&step=total").await).len(), 1);
    let empty = login.get(&server, "/v1/usage?by=run&from=1000&to=1000").await;
    assert_eq!(empty["items"], json!([]));
    let token = login.token(&server, &["runs:read"]).await;
    problem(&server.with_token(&token, "/v1/usage").await, 403, "forbidden");
    let token = login.token(&server, &["usage:read"]).await;
    assert_eq!(server.with_token(&token, "/v1/usage").await.status, 200, "control");
}

#[tokio::test]
async fn invalid_parameters_of_usage_are_refused_with_their_field() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    for (query, field) in [
        ("by=color", "/by"),
        ("step=week", "/step"),
        ("from=253402300800000", "/from"),
        ("to=253402300800000", "/to"),
    ] {
        let refused = login.request(&server, "GET", &format!("/v1/usage?{query}")).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field, "{query}");
    }
}

#[tokio::test]
async fn f08_usage_has_nothing_of_another_tenant() {
    let server = TestGateway::start().await;
    let (local, team) = (server.login("local").await, crate::runs::team(&server).await);
    let run = start(&server, &local, "[task.a]\ndo.command = ['true']\n").await;
    wait_for(&server, &local, &run, "succeeded").await;
    for by in ["all", "principal", "run", "box", "model", "secret"] {
        let report = team.get(&server, &format!("/v1/usage?by={by}&step=total")).await;
        assert_eq!(names(&report), [""; 0], "{by}");
    }
    assert_eq!(names(&local.get(&server, "/v1/usage?by=run&step=total").await), [&run], "control");
}
