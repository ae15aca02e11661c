//! The outfit of a box: program, settings, files and masks for an agent and its permissions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_box::{Mask, view};
use belljar_broker::vault::store::Store;
use belljar_model::agent::{Agent, AgentFile};
use belljar_model::net::{SecretDecl, SecretName};
use belljar_model::permission::Permissions;
use belljar_model::{EnvVar, Overrides};

use super::program::AgentProgram;
use super::{copy, login, masks, program, settings};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::scope::Scoped;

/// The parameters for computing the outfit of a box.
#[derive(Debug, Clone, Copy)]
pub struct OutfitRequest<'a> {
    pub agent: Option<&'a Agent>,
    pub permissions: &'a Permissions,
    pub state: &'a Scoped,
    /// The directory that the box gets as its workspace.
    pub workspace: Option<&'a Path>,
    /// Whether the box uses the programs of the host instead of a root file system of its own.
    pub has_host_programs: bool,
    /// Whether the box runs the agent's program.
    pub runs_agent: bool,
    /// The agent's program, if it was found before; else it is searched in the operator's `PATH`.
    pub found: Option<&'a AgentProgram>,
}

/// The program, settings, files and masks that a box is given for an agent.
///
/// All fields are computed again at each start of the box, except `home`, which only a new box gets.
#[derive(Debug, Default)]
pub struct Outfit {
    /// The agent's program with its arguments, for the first start of the box.
    pub argv: Vec<OsString>,
    /// The agent's program with its arguments, for all later starts of the box.
    pub argv_again: Vec<OsString>,
    /// The path in the home of the box that `argv_again` needs, if it needs one.
    pub again_needs: Option<PathBuf>,
    /// Options that override the template. Options of the command line override these.
    pub overrides: Overrides,
    /// Secrets that the agent declares in addition to the configuration. See `Config::with_secrets`.
    pub secrets: Vec<SecretDecl>,
    /// Read-only files at absolute paths inside the box. Placeholders are inserted at the start.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The files to write to the home directory of a new box.
    pub home: Vec<HomeFile>,
    pub masks: Vec<Mask>,
    pub remarks: Vec<String>,
}

/// A file in the home directory of a new box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    /// The path relative to the home directory.
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub mode: u32,
}

/// Computes the outfit of a box from the agent and the permissions.
pub fn outfit(request: &OutfitRequest<'_>) -> Result<Outfit, EngineError> {
    let mut outfit = outfit_of_permissions(request)?;
    if let Some(agent) = request.agent {
        outfit.add_agent(agent, request)?;
    }
    Ok(outfit)
}

/// Computes the network rules and the masks that the permissions require.
fn outfit_of_permissions(request: &OutfitRequest<'_>) -> Result<Outfit, EngineError> {
    let OutfitRequest { permissions, workspace, .. } = request;
    let Permissions { allow, deny, ask, .. } = permissions;
    let overrides = Overrides {
        allow: allow
            .iter()
            .filter_map(|permission| permission.net_allowed().transpose())
            .collect::<Result<_, _>>()
            .kind(ErrorKind::Invalid)?,
        ask: ask
            .iter()
            .filter_map(|permission| permission.net_asked().transpose())
            .collect::<Result<_, _>>()
            .kind(ErrorKind::Invalid)?,
        deny: deny
            .iter()
            .filter_map(|permission| permission.net_denied().transpose())
            .collect::<Result<_, _>>()
            .kind(ErrorKind::Invalid)?,
        ..Overrides::default()
    };
    let masks = workspace.map(|workspace| masks::find(permissions, workspace)).transpose()?;
    Ok(Outfit { overrides, masks: masks.unwrap_or_default(), ..Outfit::default() })
}

impl Outfit {
    fn add_agent(&mut self, agent: &Agent, request: &OutfitRequest<'_>) -> Result<(), EngineError> {
        self.program(agent, request)?;
        self.overrides.env.extend(agent.env.iter().cloned());
        self.overrides.allow.extend(agent.allow.iter().cloned());
        self.secrets = agent.declared.clone();
        self.overrides.secrets = self.given_secrets(agent, request)?;
        self.files(agent, request)?;
        let is_given = |file: &AgentFile| self.has(file.secret.as_ref());
        let own = agent.home.iter().filter(|file| is_given(file)).map(|file| HomeFile {
            path: file.path.clone(),
            content: file.content.clone().into_bytes(),
            mode: 0o600,
        });
        let own: Vec<HomeFile> = own.collect();
        let (copied, remarks) = match request.state.user().and_then(HostEnv::user_home) {
            Some(home) => copy::collect(&home, &agent.copy),
            None => Default::default(),
        };
        self.home.extend(own.into_iter().chain(copied));
        self.remarks.extend(remarks);
        Ok(())
    }

    /// Finds the agent's program, and adds the mounts and variables that it needs to run.
    fn program(&mut self, agent: &Agent, request: &OutfitRequest<'_>) -> Result<(), EngineError> {
        let found = match request.has_host_programs {
            false => {
                AgentProgram { path: PathBuf::from(&agent.program), ..AgentProgram::default() }
            }
            true => match found(agent, request) {
                Some(found) => found,
                None if !request.runs_agent => return Ok(()),
                None => return Err(missing(agent)),
            },
        };
        self.overrides.mounts.extend(found.mounts());
        if !found.search_dirs.is_empty() {
            self.overrides.env.extend(search_path(&found));
        }
        let skip_all = match request.permissions.skips_all() {
            true => agent.skip_all.as_slice(),
            false => &[],
        };
        let command = |arguments: &[String]| {
            let arguments = arguments.iter().chain(skip_all).map(OsString::from);
            std::iter::once(found.path.clone().into_os_string()).chain(arguments).collect()
        };
        self.argv = command(&agent.start);
        self.argv_again = command(&agent.again);
        self.again_needs = agent.again_needs.clone();
        Ok(())
    }

    /// Returns the secrets of the agent that the box is given: the login, or all keys in the vault.
    fn given_secrets(
        &mut self,
        agent: &Agent,
        request: &OutfitRequest<'_>,
    ) -> Result<Vec<SecretName>, EngineError> {
        let store = Store::open(request.state.home()).kind(ErrorKind::Broken)?;
        let stored = store
            .map(|store| store.list())
            .transpose()
            .kind(ErrorKind::Broken)?
            .unwrap_or_default();
        let is_set = |name: &&SecretName| stored.iter().any(|stored| stored.name == **name);
        let set: Vec<SecretName> = agent.secrets.iter().filter(is_set).cloned().collect();
        let login = agent.login.as_ref().map(|login| &login.secret);
        if let Some(login) = login.filter(|login| set.contains(login)) {
            if set.len() > 1 {
                self.remarks.push(format!(
                    "{} uses its login and gets no API key; to use a key, remove the login with `belljar secret rm {login}`",
                    agent.title
                ));
            }
            return Ok(vec![login.clone()]);
        }
        if set.is_empty() && !agent.secrets.is_empty() {
            let names: Vec<&str> = agent.secrets.iter().map(SecretName::as_str).collect();
            let login =
                agent.login.as_ref().map(|_| format!(" or `belljar agent login {}`", agent.name));
            self.remarks.push(format!(
                "{} has no credentials: none of the secrets {} is set; use `belljar secret set {}`{}",
                agent.title,
                names.join(", "),
                names.first().unwrap_or(&""),
                login.unwrap_or_default()
            ));
        }
        Ok(set)
    }

    /// Adds the agent's managed settings, its token file and the other files of each start.
    fn files(&mut self, agent: &Agent, request: &OutfitRequest<'_>) -> Result<(), EngineError> {
        if let Some(managed) = &agent.settings {
            let (text, unsupported) = settings::write(managed, request.permissions)
                .with_context(|| format!("cannot write the settings of agent {}", agent.name))
                .kind(ErrorKind::Invalid)?;
            self.files.push((managed.path.clone(), text));
            self.remarks.extend(unsupported.iter().map(|rule| {
                format!("the settings of {} cannot express the permission `{rule}`", agent.title)
            }));
        }
        let login = agent.login.as_ref().filter(|login| self.has(Some(&login.secret)));
        if let Some(login) = login {
            let text = login::box_file(request.state, agent);
            let path = Path::new(view::HOME).join(&login.file);
            self.files.extend(text.map(|text| (path, text)));
        }
        for file in &agent.files {
            if self.has(file.secret.as_ref()) {
                self.files.push((file.path.clone(), file.content.clone().into_bytes()));
            }
        }
        Ok(())
    }

    /// Returns whether the box is given this secret. `None` counts as given.
    fn has(&self, secret: Option<&SecretName>) -> bool {
        secret.is_none_or(|name| self.overrides.secrets.contains(name))
    }
}

fn found(agent: &Agent, request: &OutfitRequest<'_>) -> Option<AgentProgram> {
    let before = request.found.filter(|found| found.path.exists());
    before.cloned().or_else(|| program::find(request.state.host(), &agent.program))
}

fn missing(agent: &Agent) -> EngineError {
    let install = agent.install.as_ref().map(|command| format!("; install it with: {command}"));
    let (title, program) = (&agent.title, &agent.program);
    let install = install.unwrap_or_default();
    invalid(format!("{title}: cannot find the program `{program}` in your PATH{install}"))
}

/// Returns the variable `PATH` for the box: the directories of the program, then the default ones.
fn search_path(found: &AgentProgram) -> Option<EnvVar> {
    let dirs = found.search_dirs.iter().map(PathBuf::as_path).chain([Path::new(view::PATH)]);
    let dirs: Option<Vec<&str>> = dirs.map(Path::to_str).collect();
    EnvVar::new("PATH", Some(&dirs?.join(":"))).ok()
}
