//! Where everything is kept: the only file that joins names below the state directory.
//!
//! ```text
//! $BELLJAR_HOME/layout.json        the version of this layout
//!               runs/<id>/         one directory per run
//!               boxes/<name>/      one directory per named box
//!               calls/<id>         held while a call without a directory of its own runs
//!               sessions/<id>/     workspaces of MCP sessions
//!               incoming/<id>/     objects of clones that are being checked
//!               trash/<id>-<name>/ what was removed, for 14 days
//!               logins/<agent>.json
//!               approvals/<id>.json
//!               tenants/<id>/      the same tree for another tenant
//! ```
//! `vault/`, `skills/`, `mcp/`, `ledger/` and `anchor/` are laid out by the crates that own them.

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

/// The version of the layout that this program reads and writes.
const VERSION: u64 = 1;
const FILE: &str = "layout.json";

/// The paths below one tenant's state directory.
#[derive(Clone, Debug)]
pub struct Layout {
    home: PathBuf,
}

/// The content of `layout.json`. Fields of later versions are ignored: only the version counts.
#[derive(Debug, Serialize, Deserialize)]
struct Version {
    version: u64,
}

impl Layout {
    /// The directory of a tenant: the state directory itself for `local`.
    pub fn directory(home: &Path, tenant: &TenantId) -> PathBuf {
        if *tenant == TenantId::local() {
            return home.to_owned();
        }
        home.join("tenants").join(tenant.as_str())
    }

    /// The layout of a state directory whose path has no links.
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

    /// The trash that belongs to the directory of a box.
    pub fn trash_of_box(dir: &Path) -> Option<PathBuf> {
        Some(dir.parent()?.parent()?.join("trash"))
    }

    /// The directory of skills, which `belljar-code` lays out.
    pub fn skills(&self) -> PathBuf {
        self.home.join("skills")
    }

    /// The token file of an MCP server, unless another one is named.
    pub fn mcp_token(&self) -> PathBuf {
        self.home.join("mcp").join("token")
    }

    pub fn approvals(&self) -> PathBuf {
        self.home.join("approvals")
    }

    pub fn login(&self, agent: &AgentName) -> PathBuf {
        self.home.join("logins").join(format!("{agent}.json"))
    }

    /// Refuses a directory of another user or of a newer version, and marks one that has no version yet.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let home = self.home.display();
        let meta = fs::metadata(&self.home).with_context(|| format!("look at {home}"));
        let owner = meta.kind(ErrorKind::Broken)?.uid();
        let own = rustix::process::geteuid().as_raw();
        if owner != own {
            let text = format!(
                "the state directory {home} belongs to user {owner}, and this is user {own}: run belljar as its owner, or name another directory with BELLJAR_HOME"
            );
            return Err(EngineError::message(ErrorKind::Refused, text));
        }
        let version = match fs::read(self.home.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.mark(),
            text => {
                text.with_context(|| format!("read {FILE} in {home}")).kind(ErrorKind::Broken)?
            }
        };
        let version: Version = serde_json::from_slice(&version)
            .with_context(|| {
                format!("{FILE} in {home} is damaged; remove it if no newer belljar was used there")
            })
            .kind(ErrorKind::Damaged)?;
        if version.version > VERSION {
            let text = format!(
                "the state directory {home} was made by a newer belljar (layout {}, and this program knows {VERSION}): use that version, or name another directory with BELLJAR_HOME",
                version.version
            );
            return Err(EngineError::message(ErrorKind::Version, text));
        }
        Ok(())
    }

    /// A directory that cannot be written to, such as a read-only copy or one on a full disk, can still
    /// be read and cleaned up.
    fn mark(&self) -> Result<(), EngineError> {
        let text = serde_json::to_vec(&Version { version: VERSION }).kind(ErrorKind::Broken)?;
        match durable::write(&self.home, FILE, &text) {
            Err(error) if can_still_be_read(&error) => Ok(()),
            written => written
                .with_context(|| format!("write {FILE} in {}", self.home.display()))
                .kind(ErrorKind::Broken),
        }
    }
}

fn can_still_be_read(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied | StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
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
    fn a_state_directory_of_this_version_or_without_one_opens() {
        open(None).unwrap();
        open(Some(r#"{"version": 1}"#)).unwrap();
    }

    #[test]
    fn a_state_directory_of_a_newer_version_is_refused_and_says_what_to_do() {
        let error = open(Some(r#"{"version": 9, "more": true}"#)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        let text = format!("{error:#}");
        assert!(text.contains("layout 9") && text.contains("BELLJAR_HOME"), "{text}");
    }

    #[test]
    fn a_damaged_layout_is_refused_and_names_the_file() {
        for text in ["", "{", r#"{"version": "one"}"#] {
            let error = open(Some(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{text}");
            assert!(format!("{error:#}").contains("layout.json"), "{error:?}");
        }
    }

    #[test]
    fn a_state_directory_of_another_user_is_refused_and_names_both_users() {
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
