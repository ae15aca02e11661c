use serde_json::json;

use super::*;

fn document(paths: &serde_json::Value) -> Document {
    let text = json!({"openapi": "3.1.0", "info": {}, "paths": paths}).to_string();
    Document::parse(text.as_bytes()).unwrap()
}

fn names(paths: &serde_json::Value) -> Vec<String> {
    document(paths).operations().iter().map(Operation::full_name).collect()
}

#[track_caller]
fn named(method: &str, path: &str, definition: &serde_json::Value, expect: &str) {
    assert_eq!(names(&json!({path: {method: definition}})), [expect]);
}

#[test]
fn operation_with_an_id_is_named_after_its_id() {
    named("get", "/x", &json!({"operationId": "repos/list-for-org"}), "repos.listForOrg");
    named("get", "/x", &json!({"operationId": "repos.get"}), "repos.get");
    named("get", "/x", &json!({"operationId": "getPetById", "tags": ["pet"]}), "pet.getPetById");
    named("get", "/x", &json!({"operationId": "GetPet", "tags": ["PETS"]}), "pets.getPet");
    named("get", "/x", &json!({"operationId": "get_pet"}), "get_pet");
    named("get", "/x", &json!({"operationId": "a/b/c"}), "a.bC");
    named("get", "/x", &json!({"operationId": "/"}), "x.get");
}

#[test]
fn operation_without_an_id_is_named_after_its_method_and_path() {
    named("get", "/", &json!({}), "get2");
    named("get", "/pets", &json!({}), "pets.get");
    named("post", "/pets", &json!({}), "pets.post");
    named("get", "/pets/{petId}", &json!({}), "pets.getByPetId");
    named("get", "/pets/{id}/toys/{toy-id}", &json!({"tags": ["x"]}), "pets.getToysByIdToyId");
    named("delete", "/{id}", &json!({}), "deleteById");
}

#[test]
fn duplicate_and_reserved_operation_names_get_a_suffix() {
    let definition = json!({"operationId": "get"});
    let paths = json!({"/a": {"get": definition, "post": definition}, "/b": {"get": {"operationId": "post/x"}}});
    assert_eq!(names(&paths), ["get2", "get3", "post_.x"]);
    let definition = json!({"operationId": "a/b"});
    assert_eq!(names(&json!({"/a": {"get": definition, "post": definition}})), ["a.b", "a.b2"]);
}

#[test]
fn operation_arguments_with_equal_names_get_their_location_as_prefix() {
    let parameters = json!([
        {"name": "id", "in": "query"},
        {"name": "id", "in": "path"},
        {"name": "body", "in": "query"},
        {"name": "id", "in": "query", "schema": {"type": "number"}},
        {"name": "x", "in": "nowhere"},
    ]);
    let definition =
        json!({"parameters": parameters, "requestBody": {"content": {"application/json": {}}}});
    let document = document(
        &json!({"/{id}": {"post": definition, "parameters": [{"name": "all", "in": "header"}]}}),
    );
    let operations = document.operations();
    let told: Vec<_> =
        operations[0].parameters.iter().map(|it| (it.argument.as_str(), it.is_required)).collect();
    assert_eq!(told, [("id", false), ("path_id", true), ("query_body", false), ("all", false)]);
}

#[test]
fn invalid_openapi_documents_are_refused_with_a_reason() {
    for (text, expect) in [
        ("openapi: 3.0.0\ninfo:\n", "looks like YAML, but only JSON is supported"),
        ("{", "the document is not valid JSON"),
        ("[]", "not an OpenAPI document"),
        ("{\"openapi\":\"4.0\"}", "not an OpenAPI document"),
        ("{\"swagger\":\"2.0\"}", "Swagger 2 is not supported"),
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
fn openapi_server_url_contains_the_defaults_of_its_variables() {
    let server = |server: serde_json::Value| {
        let text = json!({"openapi": "3.0.0", "servers": [server]}).to_string();
        Document::parse(text.as_bytes()).unwrap().server()
    };
    let variables = json!({"region": {"default": "eu"}, "v": {"default": "v3"}});
    let url = "https://{region}.example/{v}/{w}";
    let told = server(json!({"url": url, "variables": variables}));
    assert_eq!(told.as_deref(), Some("https://eu.example/v3/{w}"));
    let told = server(json!({"url": "//{region}.example/{v}", "variables": variables}));
    assert_eq!(told.as_deref(), Some("https://eu.example/v3"), "a URL without a scheme has a host");
    assert_eq!(server(json!({"url": "/v3"})).as_deref(), Some("/v3"), "a path has none");
    // Variables that expand exponentially are stopped by the length limit.
    let doubling: serde_json::Map<String, serde_json::Value> = (0..32)
        .map(|it| {
            (format!("a{it:02}"), json!({"default": format!("{{a{:02}}}", it + 1).repeat(100)}))
        })
        .collect();
    assert_eq!(server(json!({"url": "{a00}", "variables": doubling})), None);
}

#[test]
fn authentication_scheme_is_read_from_the_openapi_document() {
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
