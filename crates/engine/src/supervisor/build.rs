//! Which build of Belljar supervises a named box. A command of another build must not use a protocol that
//! the supervisor does not know.
//!
//! ```text
//! $BELLJAR_HOME/boxes/NAME/supervisor.json    written before the supervisor listens
//! ```

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::protocol::{BUILD, PROTOCOL, ToSupervisor};
use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind};
use crate::store::{durable, lock};

/// Belljar 0.1 wrote no such file.
const FILE: &str = "supervisor.json";

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Build {
    protocol: u32,
    build: String,
}

/// Names this build as the supervisor of a box. The caller holds the lock of the box.
pub(super) fn write(dir: &Path) -> anyhow::Result<()> {
    let build = Build { protocol: PROTOCOL, build: BUILD.to_owned() };
    let text = serde_json::to_vec(&build)?;
    durable::write_unsynced(dir, FILE, &text).with_context(|| format!("write {FILE}"))
}

/// Whether Belljar 0.1 supervises a box. Without a socket, a supervisor of this build is just starting.
pub(super) fn is_legacy(dir: &Path) -> bool {
    lock::is_held(&dir.join("lock")) && read(dir).is_none() && dir.join("socket").exists()
}

fn read(dir: &Path) -> Option<Build> {
    let text = fs::read(dir.join(FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Refuses a request to a supervisor of another protocol. Every version can be stopped.
pub(super) fn check(of: &NamedBox, request: &ToSupervisor) -> Result<(), EngineError> {
    if request.is_stop() {
        return Ok(());
    }
    let build = match read(&of.dir) {
        None if is_legacy(&of.dir) => "belljar 0.1 (protocol 1)".to_owned(),
        Some(build) if build.protocol != PROTOCOL && lock::is_held(&of.dir.join("lock")) => {
            format!("belljar {} (protocol {})", build.build, build.protocol)
        }
        Some(_) | None => return Ok(()),
    };
    let name = of.name();
    let text = format!(
        "box {name} was started by {build}, and this is belljar {BUILD} (protocol {PROTOCOL}): `belljar stop {name}` stops it, `belljar start {name}` starts it with this version"
    );
    Err(EngineError::message(ErrorKind::Version, text))
}

#[cfg(test)]
mod tests {
    use belljar_model::boxes::{BoxRecord, BoxWorkspace};
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
            ground: BoxWorkspace::Nothing,
        };
        let of = NamedBox { dir: dir.path().to_owned(), record };
        check(&of, &ToSupervisor::Status).expect("nobody supervises it");
        let file = fs::File::create(dir.path().join("lock")).unwrap();
        assert!(lock::try_acquire(&file, lock::PROBE_TIMEOUT));
        let refused = |contains: &str| {
            let error = check(&of, &ToSupervisor::Status).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Version);
            let text = error.to_string();
            assert!(text.contains(contains) && text.contains("belljar stop one"), "{text}");
            check(&of, &ToSupervisor::Stop { now: false }).expect("every version can be stopped");
        };
        check(&of, &ToSupervisor::Status).expect("a supervisor of this build is starting");
        fs::write(dir.path().join("socket"), "").unwrap();
        refused("belljar 0.1 (protocol 1)");
        assert!(is_legacy(dir.path()));
        let newer = r#"{"protocol": 9, "build": "7.0.0"}"#;
        fs::write(dir.path().join(FILE), newer).unwrap();
        refused("belljar 7.0.0 (protocol 9)");
        write(dir.path()).unwrap();
        check(&of, &ToSupervisor::Status).expect("the supervisor is of this build");
        assert!(!is_legacy(dir.path()));
    }
}
