//! Combines the options that a named box was created with and the current configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_box::Mask;
use belljar_model::boxes::{BoxRecord, BoxWorkspace};
use belljar_model::permission::Permissions;
use belljar_model::{ByteSize, Config, Identity, Limits, Overrides, Template};
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};

use crate::agents::{self, HomeFile, Outfit, OutfitRequest};
use crate::box_store::NamedBox;
use crate::clones;
use crate::config::{self, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::NetworkConfig;
use crate::notice::Notice;
use crate::policy::refuse_own_program;
use crate::scope::Scoped;

/// Everything that a named box is started with.
#[derive(Debug)]
pub struct Setup {
    pub template: Template,
    /// The template without the changes that `belljar network` made.
    pub base: Template,
    pub config: Config,
    pub sources: Vec<Source>,
    pub network_config: NetworkConfig,
    pub argv: Vec<OsString>,
    pub tty: bool,
    /// The paths and contents of read-only files in the box. Placeholders are filled in later.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub masks: Vec<Mask>,
    /// The files that a new home directory starts with.
    pub home: Vec<HomeFile>,
}

/// The template of a box and its outfit under the current configuration files.
struct Declared {
    /// The template without the changes that `belljar network` made.
    base: Template,
    config: Config,
    sources: Vec<Source>,
    outfit: Outfit,
}

impl Declared {
    fn of(of: &NamedBox, state: &Scoped) -> Result<Self, EngineError> {
        let BoxRecord { spec, typed_in, ground, .. } = &of.record;
        let host = state.host();
        let workspace = ground.path();
        let (config, sources) = state.load_config_from(spec.config_file.as_deref(), workspace)?;
        let declared = config::template(&config, &spec.template)?;
        let agent = spec.agent.as_ref().map(|name| agents::find(host, name)).transpose()?;
        let overrides = Overrides { health: spec.health.clone(), ..spec.overrides.clone() };
        let directory = match ground {
            BoxWorkspace::Repo(_) => Some(of.dir.join("repo")).filter(|clone| clone.exists()),
            BoxWorkspace::Directory { path } => Some(path.clone()),
            BoxWorkspace::Nothing => None,
        };
        let mut outfit = agents::outfit(&OutfitRequest {
            agent: agent.as_ref(),
            permissions: &config.permissions(&spec.template),
            state,
            workspace: directory.as_deref(),
            has_host_programs: overrides.rootfs.is_none() && declared.rootfs.is_none(),
            runs_agent: spec.program.is_none(),
            found: None,
        })?;
        let config = config.with_secrets(std::mem::take(&mut outfit.secrets));
        let unbounded = [overrides.timeout.is_none(), overrides.output.is_none()];
        let base = declared.with(std::mem::take(&mut outfit.overrides));
        let base = base.and_then(|it| it.with(overrides)).kind(ErrorKind::Invalid)?;
        let mut base = base.anchored(typed_in, host.user_home().as_deref());
        remove_default_limits(&mut base, unbounded);
        state.clamp(&mut base.limits)?;
        Ok(Self { base, config, sources, outfit })
    }
}

/// Returns the template of a box with the changes of `belljar network`.
fn changed(of: &NamedBox, base: &Template) -> Template {
    let network = of.record.spec.network.as_ref();
    network.map_or_else(|| base.clone(), |change| change.onto(base.clone()))
}

/// Returns the template of a box, with and without the changes of `belljar network`, under the current
/// configuration.
pub fn rules(of: &NamedBox, state: &Scoped) -> Result<BoxRules, EngineError> {
    let Declared { base, config, .. } = Declared::of(of, state)?;
    Ok(BoxRules { template: changed(of, &base), base, config })
}

/// The template of a box under a configuration.
#[derive(Debug)]
pub struct BoxRules {
    pub template: Template,
    /// The template without the changes that `belljar network` made.
    pub base: Template,
    pub config: Config,
}

impl Setup {
    /// Combines the options that a box was created with and the current configuration files.
    pub fn of(of: &NamedBox, state: &Scoped) -> Result<Self, EngineError> {
        let BoxRecord { spec, ground, .. } = &of.record;
        let identity = gitconfig(state, spec.git_identity.as_ref());
        let Declared { base, config, sources, outfit } = Declared::of(of, state)?;
        for remark in &outfit.remarks {
            state.notice(&Notice::Outfit(remark.clone()));
        }
        let template = changed(of, &base);
        refuse_own_program(state.host(), &template, ground.path())?;
        let network_config = NetworkConfig::of_box(&template, &config, state)?;
        let has_needed = outfit.again_needs.is_none_or(|path| has_content(&of.dir, &path));
        let is_again = of.run().is_some() && has_needed;
        let agent_argv = if is_again { outfit.argv_again } else { outfit.argv };
        let argv = match &spec.program {
            None if agent_argv.is_empty() => vec![OsString::from(shell())],
            None => agent_argv,
            Some(program) => program.words().to_vec(),
        };
        let files = outfit.files.into_iter().chain([identity]).collect();
        let (masks, home) = (outfit.masks, outfit.home);
        let tty = spec.terminal;
        Ok(Self { template, base, config, sources, network_config, argv, tty, files, masks, home })
    }
}

/// Returns whether a path in the home of a box is a file, or a directory with an entry. Links are not
/// followed, because the box wrote its home.
fn has_content(of: &Path, path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = || -> rustix::io::Result<bool> {
        let home_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let home = rustix::fs::open(of.join("home"), home_flags, Mode::empty())?;
        let found = rustix::fs::openat2(&home, path, flags, Mode::empty(), beneath)?;
        if !rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).is_dir() {
            return Ok(true);
        }
        let is_entry = |entry: rustix::fs::DirEntry| {
            ![&b"."[..], b".."].contains(&entry.file_name().to_bytes())
        };
        Ok(Dir::read_from(&found)?.any(|entry| entry.is_ok_and(is_entry)))
    };
    open().unwrap_or(false)
}

/// Returns the permissions of a named box under the current configuration.
pub fn permissions(state: &Scoped, of: &NamedBox) -> Result<Permissions, EngineError> {
    let spec = &of.record.spec;
    let file = spec.config_file.as_deref();
    let (config, _) = state.load_config_from(file, of.record.ground.path())?;
    Ok(config.permissions(&spec.template))
}

/// Returns the path and content of the box's `/etc/gitconfig`: the author of commits, and no signing, since
/// the box has no signing keys.
pub(super) fn gitconfig(state: &Scoped, identity: Option<&Identity>) -> (PathBuf, Vec<u8>) {
    let identity = identity.cloned().or_else(|| state.user().and_then(clones::identity));
    let mut text = "[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n".to_owned();
    text.push_str("[safe]\n\tdirectory = /workspace\n");
    if let Some(identity) = identity {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let (name, email) = (quoted(identity.name()), quoted(identity.email()));
        text.push_str(&format!("[user]\n\tname = \"{name}\"\n\temail = \"{email}\"\n"));
    }
    (PathBuf::from("/etc/gitconfig"), text.into_bytes())
}

/// Removes the default limits of time and output from a template, since a named box runs until it is
/// stopped. `timeout` and `output` tell whether the user left this limit unset.
fn remove_default_limits(template: &mut Template, [timeout, output]: [bool; 2]) {
    let defaults = Limits::default();
    if timeout && template.limits.timeout == defaults.timeout {
        template.limits.timeout = None;
    }
    if output && template.limits.output == defaults.output {
        template.limits.output = ByteSize::MAX;
    }
}

fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}
