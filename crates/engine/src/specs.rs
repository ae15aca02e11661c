//! Reads specs and callers that another program wrote as JSON.
//!
//! Only the form is checked here: fields, types and the version. Whether a directory or a template exists
//! is checked when the spec is used.

use anyhow::Context as _;
use belljar_model::Caller;
use belljar_model::spec::{BoxSpec, RunSpec};
use serde::de::DeserializeOwned;

use crate::error::{EngineError, ErrorKind, WithKind as _};

/// Reads the spec of a box. An unknown field is an error that names the field.
pub fn box_spec(json: &[u8]) -> Result<BoxSpec, EngineError> {
    read("box spec", json)
}

/// Reads the spec of a run. An unknown field is an error that names the field.
pub fn run_spec(json: &[u8]) -> Result<RunSpec, EngineError> {
    read("run spec", json)
}

/// Reads a caller. Principal and tenant are required.
pub fn caller(json: &[u8]) -> Result<Caller, EngineError> {
    read("caller", json)
}

fn read<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(json)
        .with_context(|| format!("cannot read the {what}; correct the field that is named"))
        .kind(ErrorKind::Invalid)
}

#[cfg(test)]
mod tests {
    use belljar_model::spec::{Argv, SpecVersion};
    use serde_json::{Value, json};

    use super::*;
    use crate::scope::local_caller;

    fn refused<T>(read: Result<T, EngineError>, field: &str) {
        let Err(error) = read else { panic!("it was accepted") };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = format!("{error:#}");
        assert!(text.contains("correct the field") && text.contains(field), "{text}");
    }

    fn with(mut value: Value, field: &str) -> Vec<u8> {
        value[field] = json!(1);
        value.to_string().into_bytes()
    }

    #[test]
    fn spec_with_an_unknown_field_is_invalid_and_the_field_is_named() {
        let on = BoxSpec::default();
        let known = serde_json::to_value(&on).unwrap();
        assert_eq!(box_spec(known.to_string().as_bytes()).unwrap(), on, "control");
        refused(box_spec(&with(known, "memroy")), "memroy");
        let program = Argv::new(["true"]).unwrap();
        let version = SpecVersion::default();
        let run = RunSpec { version, name: None, on, program, terminal: None };
        let known = serde_json::to_value(&run).unwrap();
        assert_eq!(run_spec(known.to_string().as_bytes()).unwrap(), run, "control");
        refused(run_spec(&with(known, "progam")), "progam");
    }

    #[test]
    fn caller_without_a_tenant_is_invalid_and_the_field_is_named() {
        let mut known = serde_json::to_value(local_caller()).unwrap();
        assert_eq!(caller(known.to_string().as_bytes()).unwrap(), local_caller(), "control");
        known.as_object_mut().unwrap().remove("tenant");
        refused(caller(known.to_string().as_bytes()), "tenant");
    }
}
