//! What a box is given for an agent, and for what it may do.

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
use crate::scope::Scoped;

/// What a box is wanted for.
#[derive(Debug, Clone, Copy)]
pub struct OutfitRequest<'a> {
    pub agent: Option<&'a Agent>,
    pub permissions: &'a Permissions,
    pub state: &'a Scoped,
    /// As the box will have it.
    pub workspace: Option<&'a Path>,
    /// Whether the box has the host's programs, and not a root file system of its own.
    pub hosts_programs: bool,
    /// Whether the agent's program is what the box is to run.
    pub runs_agent: bool,
}

/// What a box gets. Everything in it is looked up anew at each start, but for `home`.
#[derive(Debug, Default)]
pub struct Outfit {
    /// The agent's program with its arguments, at the first start and at every other one.
    pub argv: Vec<OsString>,
    pub again: Vec<OsString>,
    /// On top of the template, and beneath what was said on the command line.
    pub said: Overrides,
    /// Declarations that the configuration lacks; see `Config::with_secrets`.
    pub secrets: Vec<SecretDecl>,
    /// Read-only, at absolute paths inside. To be filled in when there are placeholders; see [`fill`].
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// First contents of the home.
    pub home: Vec<HomeFile>,
    pub masks: Vec<Mask>,
    pub remarks: Vec<String>,
}

/// A file that a new home begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    /// Relative to the home.
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub mode: u32,
}

/// Looks up what a box is to be given.
pub fn outfit(request: &OutfitRequest<'_>) -> Result<Outfit, EngineError> {
    let mut outfit = permitted(request)?;
    if let Some(agent) = request.agent {
        outfit.dress(agent, request)?;
    }
    Ok(outfit)
}

/// What the permissions mean for the box itself.
fn permitted(request: &OutfitRequest<'_>) -> Result<Outfit, EngineError> {
    let OutfitRequest { permissions, workspace, .. } = request;
    let Permissions { allow, deny, ask, .. } = permissions;
    let said = Overrides {
        allow: allow
            .iter()
            .filter_map(|it| it.net_allowed().transpose())
            .collect::<Result<_, _>>()
            .kind(ErrorKind::Invalid)?,
        ask: ask
            .iter()
            .filter_map(|it| it.net_asked().transpose())
            .collect::<Result<_, _>>()
            .kind(ErrorKind::Invalid)?,
        deny: deny
            .iter()
            .filter_map(|it| it.net_denied().transpose())
            .collect::<Result<_, _>>()
            .kind(ErrorKind::Invalid)?,
        ..Overrides::default()
    };
    let masks = workspace.map(|workspace| masks::find(permissions, workspace)).transpose()?;
    Ok(Outfit { said, masks: masks.unwrap_or_default(), ..Outfit::default() })
}

impl Outfit {
    fn dress(&mut self, agent: &Agent, request: &OutfitRequest<'_>) -> Result<(), EngineError> {
        self.program(agent, request)?;
        self.said.env.extend(agent.env.iter().cloned());
        self.said.allow.extend(agent.allow.iter().cloned());
        self.secrets = agent.declared.clone();
        self.said.secrets = self.given_secrets(agent, request)?;
        self.files(agent, request)?;
        let given = |file: &AgentFile| self.has(file.secret.as_ref());
        let first = agent.home.iter().filter(|file| given(file)).map(|file| HomeFile {
            path: file.path.clone(),
            content: file.content.clone().into_bytes(),
            mode: 0o600,
        });
        let first: Vec<HomeFile> = first.collect();
        let (copied, remarks) = match request.state.host().user_home() {
            Some(home) => copy::collect(&home, &agent.copy),
            None => Default::default(),
        };
        self.home.extend(first.into_iter().chain(copied));
        self.remarks.extend(remarks);
        Ok(())
    }

    /// The agent's program, and what must be shown for it to run.
    fn program(&mut self, agent: &Agent, request: &OutfitRequest<'_>) -> Result<(), EngineError> {
        let found = match request.hosts_programs {
            false => {
                AgentProgram { path: PathBuf::from(&agent.program), ..AgentProgram::default() }
            }
            true => match program::find(request.state.host(), &agent.program) {
                Some(found) => found,
                None if !request.runs_agent => return Ok(()),
                None => return Err(missing(agent)),
            },
        };
        self.said.mounts.extend(found.mounts());
        if !found.search.is_empty() {
            self.said.env.extend(search_path(&found));
        }
        let skip_all = match request.permissions.skips_all() {
            true => agent.skip_all.as_slice(),
            false => &[],
        };
        let line = |arguments: &[String]| {
            let arguments = arguments.iter().chain(skip_all).map(OsString::from);
            std::iter::once(found.path.clone().into_os_string()).chain(arguments).collect()
        };
        self.argv = line(&agent.start);
        self.again = line(&agent.again);
        Ok(())
    }

    /// Those secrets of the agent that are in the vault.
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
                    "{} is logged in, so it gets no other key; `belljar secret rm {login}` logs it out",
                    agent.title
                ));
            }
            return Ok(vec![login.clone()]);
        }
        if set.is_empty() && !agent.secrets.is_empty() {
            let names: Vec<&str> = agent.secrets.iter().map(SecretName::as_str).collect();
            let login =
                agent.login.as_ref().map(|_| format!(", or `belljar agent login {}`", agent.name));
            self.remarks.push(format!(
                "{} has no key: none of {} is set; `belljar secret set {}`{}",
                agent.title,
                names.join(", "),
                names.first().unwrap_or(&""),
                login.unwrap_or_default()
            ));
        }
        Ok(set)
    }

    /// The agent's managed settings, and the other files that it gets for each start.
    fn files(&mut self, agent: &Agent, request: &OutfitRequest<'_>) -> Result<(), EngineError> {
        if let Some(said) = &agent.settings {
            let (text, mute) = settings::write(said, request.permissions)
                .with_context(|| format!("the settings of {}", agent.name))
                .kind(ErrorKind::Invalid)?;
            self.files.push((said.path.clone(), text));
            self.remarks.extend(mute.iter().map(|rule| {
                format!("{} has no words for `{rule}`, so it is not told", agent.title)
            }));
        }
        let login = agent.login.as_ref().filter(|login| self.has(Some(&login.secret)));
        if let Some(login) = login {
            let text = login::shown(request.state, agent);
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

    fn has(&self, secret: Option<&SecretName>) -> bool {
        secret.is_none_or(|name| self.said.secrets.contains(name))
    }
}

fn missing(agent: &Agent) -> EngineError {
    let how = agent.install.as_ref().map(|how| format!("; for example: {how}"));
    let (title, program) = (&agent.title, &agent.program);
    invalid(format!("{title}: there is no `{program}` on your PATH{}", how.unwrap_or_default()))
}

/// The usual path, behind the directories that the program's interpreter is in.
fn search_path(found: &AgentProgram) -> Option<EnvVar> {
    let dirs = found.search.iter().map(PathBuf::as_path).chain([Path::new(view::PATH)]);
    let dirs: Option<Vec<&str>> = dirs.map(Path::to_str).collect();
    EnvVar::new("PATH", Some(&dirs?.join(":"))).ok()
}
