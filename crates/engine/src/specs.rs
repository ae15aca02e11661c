//! Parses specs and callers that another program wrote as JSON.
//!
//! Parsing checks only the form: fields, types and the version. The existence of directories and
//! templates is checked when the spec is used.

use anyhow::Context as _;
use belljar_model::Caller;
use belljar_model::spec::{BoxSpec, RunSpec};
use serde::de::DeserializeOwned;

use crate::error::{EngineError, ErrorKind};

/// Parses the spec of a box from JSON. An unknown field is an error that names the field.
pub fn box_spec(json: &[u8]) -> Result<BoxSpec, EngineError> {
    read("box spec", json)
}

/// Parses the spec of a run from JSON. An unknown field is an error that names the field.
pub fn run_spec(json: &[u8]) -> Result<RunSpec, EngineError> {
    read("run spec", json)
}

/// Parses a caller from JSON. Its principal and its tenant are required.
pub fn caller(json: &[u8]) -> Result<Caller, EngineError> {
    read("caller", json)
}

fn read<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(json)
        .with_context(|| format!("cannot parse the {what} as JSON"))
        .map_err(|error| {
            EngineError::new(ErrorKind::Invalid, error).advise("correct the named field")
        })
}

#[cfg(test)]
mod tests {
    use belljar_model::spec::{Argv, SpecVersion};
    use serde_json::{Value, json};

    use super::*;
    use crate::scope::local_caller;

    fn assert_refused<T>(read: Result<T, EngineError>, field: &str) {
        let Err(error) = read else { panic!("the JSON was accepted") };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = format!("{error:#}");
        assert!(text.contains("correct the named field") && text.contains(field), "{text}");
    }

    fn with(mut value: Value, field: &str) -> Vec<u8> {
        value[field] = json!(1);
        value.to_string().into_bytes()
    }

    #[test]
    fn spec_with_an_unknown_field_is_invalid_and_the_error_names_the_field() {
        let on = BoxSpec::default();
        let known = serde_json::to_value(&on).unwrap();
        assert_eq!(box_spec(known.to_string().as_bytes()).unwrap(), on, "control");
        assert_refused(box_spec(&with(known, "memroy")), "memroy");
        let program = Argv::new(["true"]).unwrap();
        let version = SpecVersion::default();
        let run = RunSpec { version, name: None, on, program, terminal: None };
        let known = serde_json::to_value(&run).unwrap();
        assert_eq!(run_spec(known.to_string().as_bytes()).unwrap(), run, "control");
        assert_refused(run_spec(&with(known, "progam")), "progam");
    }

    #[test]
    fn caller_without_a_tenant_is_invalid_and_the_error_names_the_field() {
        let mut known = serde_json::to_value(local_caller()).unwrap();
        assert_eq!(caller(known.to_string().as_bytes()).unwrap(), local_caller(), "control");
        known.as_object_mut().unwrap().remove("tenant");
        assert_refused(caller(known.to_string().as_bytes()), "tenant");
    }
}
