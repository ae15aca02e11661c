//! Records which build of Belljar supervises a named box, so that a command of another build does not send
//! requests that the supervisor cannot read.
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

/// The file in the directory of a named box that describes its supervisor. Belljar 0.1 did not write this
/// file.
const FILE: &str = "supervisor.json";

/// The content of `supervisor.json`: the version of a box's supervisor.
#[derive(Debug, Serialize, Deserialize)]
struct Build {
    protocol: u32,
    build: String,
}

/// Writes `supervisor.json` with the version of this build. The caller must hold the lock of the box.
pub(super) fn write(dir: &Path) -> anyhow::Result<()> {
    let build = Build { protocol: PROTOCOL, build: BUILD.to_owned() };
    let text = serde_json::to_vec(&build)?;
    durable::write_unsynced(dir, FILE, &text).with_context(|| format!("cannot write {FILE}"))
}

/// Returns whether a supervisor of Belljar 0.1 is running for the box in `dir`. A held lock without a
/// socket means that a supervisor of this build is starting.
pub(super) fn is_legacy(dir: &Path) -> bool {
    lock::is_held(&dir.join("lock")) && read(dir).is_none() && dir.join("socket").exists()
}

fn read(dir: &Path) -> Option<Build> {
    let text = fs::read(dir.join(FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns an error if the supervisor of a box uses another protocol version than this build. Requests to
/// stop are always allowed.
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
        "box {name} was started by {build}, but this is belljar {BUILD} (protocol {PROTOCOL}); run `belljar stop {name}` and then `belljar start {name}` to restart the box with this version"
    );
    Err(EngineError::message(ErrorKind::Version, text))
}

#[cfg(test)]
mod tests {
    use belljar_model::boxes::{BoxRecord, BoxWorkspace};
    use belljar_model::spec::BoxSpec;

    use super::*;

    #[test]
    fn check_allows_only_stop_requests_to_a_supervisor_of_another_build() {
        let dir = tempfile::tempdir().unwrap();
        let record = BoxRecord {
            name: "one".parse().unwrap(),
            created: 0,
            spec: BoxSpec::default(),
            typed_in: "/".into(),
            ground: BoxWorkspace::Nothing,
            maker: None,
        };
        let of = NamedBox { dir: dir.path().to_owned(), record };
        check(&of, &ToSupervisor::Status).expect("no supervisor is running");
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
