//! From what was said at `up`, and the configuration as it is now, to what a box is started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_box::Mask;
use belljar_model::boxes::{BoxRecord, BoxWorkspace};
use belljar_model::permission::Permissions;
use belljar_model::{ByteSize, Config, Identity, Limits, Overrides, Template};

use crate::agents::{self, HomeFile, OutfitRequest};
use crate::box_store::NamedBox;
use crate::clones;
use crate::config::{self, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HostEnv;
use crate::network::NetworkConfig;
use crate::notice::Notice;
use crate::policy::refuse_own_program;
use crate::scope::Scoped;

/// What a run of a box starts with.
#[derive(Debug)]
pub struct Setup {
    pub template: Template,
    /// The same without what `belljar network` said.
    pub base: Template,
    pub config: Config,
    pub sources: Vec<Source>,
    pub network_config: NetworkConfig,
    pub argv: Vec<OsString>,
    pub tty: bool,
    /// Read-only files inside, which placeholders still go into.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub masks: Vec<Mask>,
    /// What a new home begins with.
    pub home: Vec<HomeFile>,
}

impl Setup {
    /// Reads the options of `up` again, with the files of rules as they are now.
    pub fn of(of: &NamedBox, state: &Scoped) -> Result<Self, EngineError> {
        let BoxRecord { spec, typed_in, ground, .. } = &of.record;
        let host = state.host();
        let workspace = ground.path();
        let (config, sources) = config::load_from(host, spec.config_file.as_deref(), workspace)?;
        let known = config::template(&config, &spec.template)?;
        let identity = gitconfig(host, spec.git_identity.as_ref());
        let agent = spec.agent.as_ref().map(|name| agents::find(host, name)).transpose()?;
        let said = Overrides { health: spec.health.clone(), ..spec.overrides.clone() };
        let inside = match ground {
            BoxWorkspace::Repo(_) => Some(of.dir.join("repo")).filter(|clone| clone.exists()),
            BoxWorkspace::Directory { path } => Some(path.clone()),
            BoxWorkspace::Nothing => None,
        };
        let outfit = agents::outfit(&OutfitRequest {
            agent: agent.as_ref(),
            permissions: &config.permissions(&spec.template),
            state,
            workspace: inside.as_deref(),
            has_host_programs: said.rootfs.is_none() && known.rootfs.is_none(),
            runs_agent: spec.program.is_none(),
        })?;
        for remark in &outfit.remarks {
            state.notice(&Notice::Outfit(remark.clone()));
        }
        let config = config.with_secrets(outfit.secrets);
        let unbounded = [said.timeout.is_none(), said.output.is_none()];
        let mut base =
            known.with(outfit.overrides).and_then(|it| it.with(said)).kind(ErrorKind::Invalid)?;
        base = base.anchored(typed_in, host.user_home().as_deref());
        unbind(&mut base, unbounded);
        let template =
            spec.network.as_ref().map_or_else(|| base.clone(), |said| said.onto(base.clone()));
        refuse_own_program(host, &template, workspace)?;
        let network_config = NetworkConfig::of_box(&template, &config, state)?;
        let own = if of.run().is_some() { outfit.argv_again } else { outfit.argv };
        let argv = match &spec.program {
            None if own.is_empty() => vec![OsString::from(shell())],
            None => own,
            Some(program) => program.words().to_vec(),
        };
        let files = outfit.files.into_iter().chain([identity]).collect();
        let (masks, home) = (outfit.masks, outfit.home);
        let tty = spec.terminal;
        Ok(Self { template, base, config, sources, network_config, argv, tty, files, masks, home })
    }
}

/// What a box may do, by the rules in force now: what must not be taken over from it is among them.
pub fn permissions(state: &Scoped, of: &NamedBox) -> Result<Permissions, EngineError> {
    let spec = &of.record.spec;
    let file = spec.config_file.as_deref();
    let (config, _) = config::load_from(state.host(), file, of.record.ground.path())?;
    Ok(config.permissions(&spec.template))
}

/// Who commits inside, and that nobody signs: the keys for that are not there.
fn gitconfig(host: &HostEnv, identity: Option<&Identity>) -> (PathBuf, Vec<u8>) {
    let identity = identity.cloned().or_else(|| clones::identity(host));
    let mut text = "[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n".to_owned();
    text.push_str("[safe]\n\tdirectory = /workspace\n");
    if let Some(identity) = identity {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let (name, email) = (quoted(identity.name()), quoted(identity.email()));
        text.push_str(&format!("[user]\n\tname = \"{name}\"\n\temail = \"{email}\"\n"));
    }
    (PathBuf::from("/etc/gitconfig"), text.into_bytes())
}

/// A box is there until it is stopped, and says as much as it likes: only what somebody said bounds it.
fn unbind(template: &mut Template, [timeout, output]: [bool; 2]) {
    let usual = Limits::default();
    if timeout && template.limits.timeout == usual.timeout {
        template.limits.timeout = None;
    }
    if output && template.limits.output == usual.output {
        template.limits.output = ByteSize::MAX;
    }
}

fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}
