use serde_json::json;

use super::*;

fn document(paths: &serde_json::Value) -> Document {
    let text = json!({"openapi": "3.1.0", "info": {}, "paths": paths}).to_string();
    Document::parse(text.as_bytes()).unwrap()
}

fn names(paths: &serde_json::Value) -> Vec<String> {
    document(paths).operations().iter().map(Operation::called).collect()
}

#[track_caller]
fn named(method: &str, path: &str, said: &serde_json::Value, expect: &str) {
    assert_eq!(names(&json!({path: {method: said}})), [expect]);
}

#[test]
fn operations_are_called_as_their_document_calls_them() {
    named("get", "/x", &json!({"operationId": "repos/list-for-org"}), "repos.listForOrg");
    named("get", "/x", &json!({"operationId": "repos.get"}), "repos.get");
    named("get", "/x", &json!({"operationId": "getPetById", "tags": ["pet"]}), "pet.getPetById");
    named("get", "/x", &json!({"operationId": "GetPet", "tags": ["PETS"]}), "pets.getPet");
    named("get", "/x", &json!({"operationId": "get_pet"}), "get_pet");
    named("get", "/x", &json!({"operationId": "a/b/c"}), "a.bC");
    named("get", "/x", &json!({"operationId": "/"}), "x.get");
}

#[test]
fn operations_without_a_name_are_called_by_method_and_path() {
    named("get", "/", &json!({}), "get2");
    named("get", "/pets", &json!({}), "pets.get");
    named("post", "/pets", &json!({}), "pets.post");
    named("get", "/pets/{petId}", &json!({}), "pets.getByPetId");
    named("get", "/pets/{id}/toys/{toy-id}", &json!({"tags": ["x"]}), "pets.getToysByIdToyId");
    named("delete", "/{id}", &json!({}), "deleteById");
}

#[test]
fn no_two_operations_have_the_same_name_and_none_that_clients_have() {
    let said = json!({"operationId": "get"});
    let paths =
        json!({"/a": {"get": said, "post": said}, "/b": {"get": {"operationId": "post/x"}}});
    assert_eq!(names(&paths), ["get2", "get3", "post_.x"]);
    let said = json!({"operationId": "a/b"});
    assert_eq!(names(&json!({"/a": {"get": said, "post": said}})), ["a.b", "a.b2"]);
}

#[test]
fn arguments_are_told_apart_by_their_place() {
    let parameters = json!([
        {"name": "id", "in": "query"},
        {"name": "id", "in": "path"},
        {"name": "body", "in": "query"},
        {"name": "id", "in": "query", "schema": {"type": "number"}},
        {"name": "x", "in": "nowhere"},
    ]);
    let said =
        json!({"parameters": parameters, "requestBody": {"content": {"application/json": {}}}});
    let document = document(
        &json!({"/{id}": {"post": said, "parameters": [{"name": "all", "in": "header"}]}}),
    );
    let operations = document.operations();
    let told: Vec<_> =
        operations[0].parameters.iter().map(|it| (it.argument.as_str(), it.is_required)).collect();
    assert_eq!(told, [("id", false), ("path_id", true), ("query_body", false), ("all", false)]);
}

#[test]
fn what_is_no_document_is_told() {
    for (text, expect) in [
        ("openapi: 3.0.0\ninfo:\n", "looks like YAML; only JSON is read"),
        ("{", "not JSON"),
        ("[]", "no OpenAPI document"),
        ("{\"openapi\":\"4.0\"}", "no OpenAPI document"),
        ("{\"swagger\":\"2.0\"}", "Swagger 2 is not read"),
    ] {
        let error = Document::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
    let deep = format!("{{\"openapi\":\"3.0.0\",\"x\":{}{}}}", "[".repeat(500), "]".repeat(500));
    assert!(matches!(Document::parse(deep.as_bytes()), Err(DocumentError::Json { .. })));
    let long = vec![b' '; MAX_DOCUMENT + 1];
    assert!(matches!(Document::parse(&long), Err(DocumentError::TooLong { .. })));
    let mark = "\u{feff}{\"openapi\":\"3.0.0\"}";
    assert!(Document::parse(mark.as_bytes()).unwrap().operations().is_empty(), "the control");
}

#[test]
fn servers_are_told_with_the_defaults_of_their_variables() {
    let server = |server: serde_json::Value| {
        let text = json!({"openapi": "3.0.0", "servers": [server]}).to_string();
        Document::parse(text.as_bytes()).unwrap().server()
    };
    let variables = json!({"region": {"default": "eu"}, "v": {"default": "v3"}});
    let url = "https://{region}.example/{v}/{w}";
    let told = server(json!({"url": url, "variables": variables}));
    assert_eq!(told.as_deref(), Some("https://eu.example/v3/{w}"));
    // Variables that double each other end, and soon.
    let doubling: serde_json::Map<String, serde_json::Value> = (0..32)
        .map(|it| {
            (format!("a{it:02}"), json!({"default": format!("{{a{:02}}}", it + 1).repeat(100)}))
        })
        .collect();
    assert_eq!(server(json!({"url": "{a00}", "variables": doubling})), None);
}

#[test]
fn a_token_is_introduced_as_the_document_says() {
    for (scheme, expect) in [
        (json!({"type": "http", "scheme": "Bearer"}), Some("Bearer")),
        (json!({"type": "oauth2"}), Some("Bearer")),
        (json!({"type": "http", "scheme": "basic"}), Some("Basic")),
        (json!({"type": "apiKey", "in": "header", "name": "Authorization"}), Some("")),
        (json!({"type": "apiKey", "in": "query", "name": "key"}), None),
    ] {
        let text = json!({"openapi": "3.0.0", "components": {"securitySchemes": {"x": scheme}}});
        let document = Document::parse(text.to_string().as_bytes()).unwrap();
        assert_eq!(document.scheme(), expect);
    }
}
