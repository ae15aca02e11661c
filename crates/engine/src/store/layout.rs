//! The paths in the state directory. No other module joins path components below it.
//!
//! ```text
//! $BELLJAR_HOME/layout.json        the version of this layout
//!               runs/<id>/         one directory per run
//!               plans/<id>/        the files of one run of a plan; see `runs::files`
//!               plans/keys/        one file per submission key
//!               plans/asked/<id>   the run has a new request to the driver
//!               plans/socket       wakes the driver of runs; driver.log has its notices
//!               boxes/<name>/      one directory per named box
//!               calls/<id>         locked while a call without its own directory runs
//!               sessions/<id>/     workspaces of MCP sessions
//!               incoming/<id>/     git objects of clones that are being checked
//!               trash/<id>-<name>/ removed boxes, for 14 days
//!               logins/<agent>.json
//!               approvals/<id>.json
//!               schedules/<name>.json   the schedules of a tenant of the server
//!               runs.db            tables of the runs of plans, derived from the ledger
//!               server/socket      the local socket of `belljar serve`; server/lock is locked by it
//!               gateway.db         principals, tokens and sessions of `belljar serve`
//!               driver.lock        locked by the driver of runs; driver.epoch counts its starts
//!               tenants/<id>/      the same tree for another tenant
//!               policy.toml        the policy of a tenant other than `local`
//!               secrets.toml       the hosts and slots of secrets that were set with the API
//! ```
//! The crates that own `vault/`, `skills/`, `mcp/`, `ledger/` and `anchor/` define their layout.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::RunId;
use belljar_model::agent::AgentName;
use belljar_model::boxes::BoxName;
use belljar_model::caller::TenantId;
use serde::{Deserialize, Serialize};

use super::durable;
use crate::error::{EngineError, ErrorKind, WithKind as _};

/// The version of the state directory layout that this program reads and writes.
const VERSION: u64 = 1;
/// The file that contains the version of the state directory layout.
const VERSION_FILE: &str = "layout.json";

/// The paths in the state directory of one tenant.
#[derive(Clone, Debug)]
pub struct Layout {
    home: PathBuf,
}

/// The content of `layout.json`. Unknown fields of later versions are ignored.
#[derive(Debug, Serialize, Deserialize)]
struct LayoutVersion {
    version: u64,
}

impl Layout {
    /// Returns the directory of a tenant. For the tenant `local` this is the state directory itself.
    pub fn directory(home: &Path, tenant: &TenantId) -> PathBuf {
        if *tenant == TenantId::local() {
            return home.to_owned();
        }
        home.join("tenants").join(tenant.as_str())
    }

    /// Returns the layout of a state directory whose path contains no symbolic links.
    pub(super) const fn new(home: PathBuf) -> Self {
        Self { home }
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn runs(&self) -> PathBuf {
        self.home.join("runs")
    }

    pub fn run(&self, id: RunId) -> PathBuf {
        self.runs().join(id.to_string())
    }

    /// Returns the directory of the runs of plans. It is not `runs/`, because earlier versions remove
    /// unknown directories there.
    pub fn plans(&self) -> PathBuf {
        self.home.join("plans")
    }

    /// Returns the directory of one run of a plan.
    pub fn plan(&self, id: RunId) -> PathBuf {
        self.plans().join(id.to_string())
    }

    /// Returns the directory of the submission keys.
    pub fn submission_keys(&self) -> PathBuf {
        self.plans().join("keys")
    }

    /// Returns the directory with the names of the runs that have new requests to the driver.
    pub fn announced_requests(&self) -> PathBuf {
        self.plans().join("asked")
    }

    /// Returns the directory of the schedules that the server stores.
    pub fn schedules(&self) -> PathBuf {
        self.home.join("schedules")
    }

    /// Returns the database of runs. It is derived from the ledger and may be deleted.
    pub fn runs_database(&self) -> PathBuf {
        self.home.join("runs.db")
    }

    /// Returns the file that the driver of runs locks.
    pub fn driver_lock(&self) -> PathBuf {
        self.home.join("driver.lock")
    }

    /// Returns the name of the file, in the state directory, with the number of starts of the driver.
    pub const fn driver_epoch() -> &'static str {
        "driver.epoch"
    }

    pub fn boxes(&self) -> PathBuf {
        self.home.join("boxes")
    }

    pub fn named_box(&self, name: &BoxName) -> PathBuf {
        self.boxes().join(name.as_str())
    }

    pub fn calls(&self) -> PathBuf {
        self.home.join("calls")
    }

    pub fn call(&self, id: RunId) -> PathBuf {
        self.calls().join(id.to_string())
    }

    pub fn sessions(&self) -> PathBuf {
        self.home.join("sessions")
    }

    pub fn incoming(&self) -> PathBuf {
        self.home.join("incoming")
    }

    pub fn trash(&self) -> PathBuf {
        self.home.join("trash")
    }

    /// Returns the trash directory for a box with the directory `dir`.
    pub fn trash_of_box(dir: &Path) -> Option<PathBuf> {
        Some(dir.parent()?.parent()?.join("trash"))
    }

    /// Returns the directory of skills. The crate `belljar-code` defines its layout.
    pub fn skills(&self) -> PathBuf {
        self.home.join("skills")
    }

    /// Returns the default token file of the MCP server.
    pub fn mcp_token(&self) -> PathBuf {
        self.home.join("mcp").join("token")
    }

    /// Returns the directory of the server's socket and lock.
    pub fn server(&self) -> PathBuf {
        self.home.join("server")
    }

    /// Returns the file that the server locks. It contains the address of the server.
    pub fn server_lock(&self) -> PathBuf {
        self.server().join("lock")
    }

    /// Returns the policy of a tenant other than `local`, whose policy is the operator's belljar.toml.
    pub fn policy(&self) -> PathBuf {
        self.home.join(Self::policy_name())
    }

    /// Returns the name of the file with the policy, in the directory of a tenant.
    pub const fn policy_name() -> &'static str {
        "policy.toml"
    }

    /// Returns the file with the declarations of the secrets that were set with the API of the server.
    pub fn declared_secrets(&self) -> PathBuf {
        self.home.join(Self::declared_secrets_name())
    }

    /// Returns the name of the file with declarations of secrets, in the directory of a tenant.
    pub const fn declared_secrets_name() -> &'static str {
        "secrets.toml"
    }

    /// Returns the database of the server.
    pub fn gateway_database(&self) -> PathBuf {
        self.home.join("gateway.db")
    }

    pub fn approvals(&self) -> PathBuf {
        self.home.join("approvals")
    }

    pub fn login(&self, agent: &AgentName) -> PathBuf {
        self.home.join("logins").join(format!("{agent}.json"))
    }

    /// Refuses a state directory of another user, of a newer version, or that every user can write to. Writes the version file if it is missing.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let home = self.home.display();
        let meta =
            fs::metadata(&self.home).with_context(|| format!("cannot read the owner of {home}"));
        let meta = meta.kind(ErrorKind::Broken)?;
        let owner = meta.uid();
        let user = rustix::process::geteuid().as_raw();
        if owner != user {
            let text = format!(
                "the state directory {home} belongs to user {owner}, but belljar runs as user {user}: run belljar as its owner, or choose another directory with BELLJAR_HOME"
            );
            return Err(EngineError::message(ErrorKind::Refused, text));
        }
        if meta.mode() & 0o002 != 0 {
            let text = format!(
                "every user can write to the state directory {home}: run `chmod o-w {home}`, or choose another directory with BELLJAR_HOME"
            );
            return Err(EngineError::message(ErrorKind::Refused, text));
        }
        let version = match fs::read(self.home.join(VERSION_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.write_version(),
            text => text
                .with_context(|| format!("cannot read {VERSION_FILE} in {home}"))
                .kind(ErrorKind::Broken)?,
        };
        let version: LayoutVersion = serde_json::from_slice(&version)
            .with_context(|| format!("cannot parse {VERSION_FILE} in {home}"))
            .map_err(|error| {
                let advice = "if no newer belljar used this directory, remove the file";
                EngineError::new(ErrorKind::Damaged, error).advise(advice)
            })?;
        if version.version > VERSION {
            let text = format!(
                "the state directory {home} was created by a newer belljar (layout {}, but this program supports {VERSION}): use that version, or choose another directory with BELLJAR_HOME",
                version.version
            );
            return Err(EngineError::message(ErrorKind::Version, text));
        }
        Ok(())
    }

    /// Writes the version file.
    ///
    /// A state directory that is not writable, such as a read-only copy or one on a full disk, is accepted,
    /// because commands can still read it.
    fn write_version(&self) -> Result<(), EngineError> {
        let text =
            serde_json::to_vec(&LayoutVersion { version: VERSION }).kind(ErrorKind::Broken)?;
        match durable::write(&self.home, VERSION_FILE, &text) {
            Err(error) if is_read_only(&error) => Ok(()),
            written => written
                .with_context(|| format!("cannot write {VERSION_FILE} in {}", self.home.display()))
                .kind(ErrorKind::Broken),
        }
    }
}

/// Checks whether a write error leaves the directory readable.
fn is_read_only(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied | StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use crate::error::ErrorKind;
    use crate::store::Store;

    fn open(layout: Option<&str>) -> Result<Store, crate::error::EngineError> {
        let dir = tempfile::tempdir().unwrap();
        if let Some(text) = layout {
            std::fs::write(dir.path().join("layout.json"), text).unwrap();
        }
        Store::open(dir.path())
    }

    #[test]
    fn open_accepts_a_state_directory_of_this_version_or_without_a_version() {
        open(None).unwrap();
        open(Some(r#"{"version": 1}"#)).unwrap();
    }

    #[test]
    fn open_refuses_a_state_directory_of_a_newer_version() {
        let error = open(Some(r#"{"version": 9, "more": true}"#)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let text = format!("{error:#}");
        assert!(text.contains("layout 9") && text.contains("BELLJAR_HOME"), "{text}");
    }

    #[test]
    fn open_refuses_a_damaged_layout_file_and_names_it() {
        for text in ["", "{", r#"{"version": "one"}"#] {
            let error = open(Some(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{text}");
            assert!(format!("{error:#}").contains("layout.json"), "{error:?}");
        }
    }

    #[test]
    fn open_refuses_a_state_directory_that_every_user_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let allow = |mode| std::fs::set_permissions(dir.path(), Permissions::from_mode(mode));
        for mode in [0o777, 0o1777, 0o702] {
            allow(mode).unwrap();
            let error = Store::open(dir.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(format!("{error:#}").contains("chmod o-w"), "{error:?}");
        }
        allow(0o755).unwrap();
        Store::open(dir.path()).unwrap();
    }

    #[test]
    fn open_refuses_a_state_directory_of_another_user_and_names_the_user() {
        if !rustix::process::geteuid().is_root() {
            return belljar_testkit::skip("only root can give a directory to another user");
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(format!("{error:#}").contains("user 12345"), "{error:?}");
    }
}
