//! Which build of Belljar supervises a box: a command of another build must not speak a protocol that the
//! supervisor does not know.
//!
//! ```text
//! $BELLJAR_HOME/boxes/NAME/supervisor.json    written before the supervisor listens
//! ```

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::protocol::Request;
use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind};
use crate::store::{durable, lock};

/// The version of the messages in [`super::protocol`]. Belljar 0.1 spoke version 1 and wrote no file.
const PROTOCOL: u64 = 2;
const FILE: &str = "supervisor.json";

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Build {
    protocol: u64,
    build: String,
}

/// Names this build as the supervisor of a box. The caller holds the lock of the box.
pub(super) fn write(dir: &Path) -> anyhow::Result<()> {
    let build = Build { protocol: PROTOCOL, build: env!("CARGO_PKG_VERSION").to_owned() };
    let text = serde_json::to_vec(&build)?;
    durable::write_soon(dir, FILE, &text).with_context(|| format!("write {FILE}"))
}

/// Refuses a request to a supervisor of another protocol. Every version can be stopped.
pub(super) fn check(of: &NamedBox, request: &Request) -> Result<(), EngineError> {
    if matches!(request, Request::Stop { .. }) || !lock::is_held(&of.dir.join("lock")) {
        return Ok(());
    }
    let text = fs::read(of.dir.join(FILE)).ok();
    let theirs = text.and_then(|text| serde_json::from_slice::<Build>(&text).ok());
    let build = match theirs {
        Some(build) if build.protocol == PROTOCOL => return Ok(()),
        Some(build) => format!("belljar {} (protocol {})", build.build, build.protocol),
        None => "belljar 0.1 (protocol 1)".to_owned(),
    };
    let (name, own) = (of.name(), env!("CARGO_PKG_VERSION"));
    let text = format!(
        "box {name} was started by {build}, and this is belljar {own} (protocol {PROTOCOL}): `belljar stop {name}` stops it, `belljar start {name}` starts it with this version"
    );
    Err(EngineError::message(ErrorKind::Version, text))
}

#[cfg(test)]
mod tests {
    use belljar_model::boxes::{BoxRecord, Ground};
    use belljar_model::spec::BoxSpec;

    use super::*;

    #[test]
    fn a_live_supervisor_of_another_build_can_only_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let record = BoxRecord {
            name: "one".parse().unwrap(),
            created: 0,
            spec: BoxSpec::default(),
            typed_in: "/".into(),
            ground: Ground::Nothing,
        };
        let of = NamedBox { dir: dir.path().to_owned(), record };
        check(&of, &Request::Status).expect("nobody supervises it");
        let file = fs::File::create(dir.path().join("lock")).unwrap();
        assert!(lock::take(&file, lock::GLANCE));
        let refused = |contains: &str| {
            let error = check(&of, &Request::Status).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Version);
            let text = error.to_string();
            assert!(text.contains(contains) && text.contains("belljar stop one"), "{text}");
            check(&of, &Request::Stop { now: false }).expect("every version can be stopped");
        };
        refused("belljar 0.1 (protocol 1)");
        let newer = r#"{"protocol": 9, "build": "7.0.0"}"#;
        fs::write(dir.path().join(FILE), newer).unwrap();
        refused("belljar 7.0.0 (protocol 9)");
        write(dir.path()).unwrap();
        check(&of, &Request::Status).expect("the supervisor is of this build");
    }
}
