//! The route of the OpenAPI document.

use axum::response::Response;
use http::StatusCode;

use super::{Access, Operation, Routes, all};
use crate::serve::call::{Call, json_response};
use crate::serve::openapi;
use crate::serve::problem::Problem;

pub(super) fn add(routes: Routes) -> Routes {
    let operation = Operation::get("/openapi.json", Access::Anyone)
        .about("Returns this document")
        .returns::<serde_json::Value>(StatusCode::OK);
    routes.add(operation, openapi_document)
}

/// Describes all routes of the server.
async fn openapi_document(_: Call) -> Result<Response, Problem> {
    let operations = all().operations;
    json_response(StatusCode::OK, &openapi::document(operations.iter().map(AsRef::as_ref)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "../../docs/openapi.json";

    /// The committed document is the contract with clients: a change of the API must be visible in a review.
    /// `BELLJAR_UPDATE=1` writes the file.
    #[test]
    fn openapi_document_is_the_committed_file() {
        let operations = all().operations;
        let document = openapi::document(operations.iter().map(AsRef::as_ref));
        let current = serde_json::to_string_pretty(&document).unwrap() + "\n";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
        if belljar_testkit::environment().iter().any(|(name, _)| name == "BELLJAR_UPDATE") {
            std::fs::write(&path, &current).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == current,
            "docs/openapi.json differs from the routes; run this test with BELLJAR_UPDATE=1"
        );
    }

    /// serde accepts a missing field for a value that can be null only if its type is plain, or has a default.
    #[test]
    fn no_field_of_a_request_that_can_be_null_is_required() {
        let operations = all().operations;
        let document = openapi::document(operations.iter().map(AsRef::as_ref));
        let bodies = document.pointer("/paths").and_then(serde_json::Value::as_object).unwrap();
        let bodies = bodies.values().flat_map(|methods| methods.as_object().unwrap().values());
        let named = bodies.filter_map(|operation| {
            let schema = "/requestBody/content/application~1json/schema/$ref";
            operation.pointer(schema)?.as_str()?.strip_prefix('#')
        });
        let mut checked = 0;
        for name in named {
            let schema = document.pointer(name).unwrap();
            let required = schema["required"].as_array().into_iter().flatten();
            for field in required.filter_map(serde_json::Value::as_str) {
                let types = schema.pointer(&format!("/properties/{field}/type"));
                let types = types.and_then(serde_json::Value::as_array).into_iter().flatten();
                assert!(types.clone().all(|it| it != "null"), "{name} requires {field}");
                checked += 1;
            }
        }
        assert!(checked > 20, "control: {checked} fields were checked");
    }

    #[test]
    fn every_operation_of_the_api_is_described_with_a_success() {
        for operation in all().operations {
            if operation.path.starts_with("/v1/") {
                assert!(!operation.summary.is_empty(), "{} has no summary", operation.path);
                assert!(!operation.responses.is_empty(), "{} has no response", operation.path);
                for name in openapi::path_parameters(operation.path) {
                    let mut known = openapi::PATH_PARAMETERS.iter();
                    assert!(known.any(|(known, _)| *known == name), "no pattern for {name}");
                }
            }
        }
    }
}
