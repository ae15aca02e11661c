//! From what was said at `up`, and the configuration as it is now, to what a box is started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_box::Mask;
use belljar_model::boxes::{BoxRecord, Ground};
use belljar_model::permission::Permissions;
use belljar_model::{ByteSize, Config, Identity, Limits, Overrides, Template};
use clap::Parser as _;

use crate::agents::{self, HomeFile, Occasion};
use crate::boxes::NamedBox;
use crate::cli::boxes::{UpArgs, UpOptions};
use crate::cli::{Cli, Command};
use crate::commands::run::refuse_own_program;
use crate::config::{self, Source};
use crate::failure::{Code as _, FAILED, Failure, USAGE, usage};
use crate::outlet::Outlet;
use crate::print;
use crate::repo;
use crate::state::State;

/// What a run of a box starts with.
pub(crate) struct Setup {
    pub(crate) template: Template,
    /// The same without what `belljar network` said.
    pub(crate) base: Template,
    pub(crate) config: Config,
    pub(crate) sources: Vec<Source>,
    pub(crate) outlet: Outlet,
    pub(crate) argv: Vec<OsString>,
    pub(crate) tty: bool,
    /// Read-only files inside, which placeholders still go into.
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) masks: Vec<Mask>,
    /// What a new home begins with.
    pub(crate) home: Vec<HomeFile>,
}

impl Setup {
    /// Reads the options of `up` again, with the files of rules as they are now.
    pub(crate) fn of(of: &NamedBox, state: &State) -> Result<Self, Failure> {
        let BoxRecord { command, typed_in, config, ground, network, .. } = &of.record;
        let options = options(&of.record)?;
        let workspace = ground.path();
        let (config, sources) = config::load_from(config.as_deref(), workspace)?;
        let known = config::template(&config, &options.template)?;
        let identity = gitconfig(options.git_identity.as_ref());
        let agent = options.agent.as_ref().map(agents::find).transpose()?;
        let said = Overrides { health: options.health, ..options.furnish.overrides() };
        let inside = match ground {
            Ground::Repo(_) => Some(of.dir.join("repo")).filter(|clone| clone.exists()),
            Ground::Directory { path } => Some(path.clone()),
            Ground::Nothing => None,
        };
        let outfit = agents::outfit(&Occasion {
            agent: agent.as_ref(),
            permissions: &config.permissions(&options.template),
            state,
            workspace: inside.as_deref(),
            hosts_programs: said.rootfs.is_none() && known.rootfs.is_none(),
            runs_agent: command.is_empty(),
        })?;
        outfit.remarks.iter().for_each(|remark| print::note(remark));
        let config = config.with_secrets(outfit.secrets);
        let unbounded = [said.timeout.is_none(), said.output.is_none()];
        let mut base = known.with(outfit.said).and_then(|it| it.with(said)).code(USAGE)?;
        base = base.anchored(typed_in, config::home().as_deref());
        unbind(&mut base, unbounded);
        let template =
            network.as_ref().map_or_else(|| base.clone(), |said| said.onto(base.clone()));
        refuse_own_program(&template, workspace)?;
        let outlet = Outlet::of_box(&template, &config, state)?;
        let own = if of.run().is_some() { outfit.again } else { outfit.argv };
        let argv = match command.as_slice() {
            [] if own.is_empty() => vec![OsString::from(shell())],
            [] => own,
            command => command.iter().map(OsString::from).collect(),
        };
        let files = outfit.files.into_iter().chain([identity]).collect();
        let (masks, home) = (outfit.masks, outfit.home);
        let tty = !options.no_tty;
        Ok(Self { template, base, config, sources, outlet, argv, tty, files, masks, home })
    }
}

/// What a box may do, by the rules in force now: what must not be taken over from it is among them.
pub(crate) fn permissions(of: &NamedBox) -> Result<Permissions, Failure> {
    let options = options(&of.record)?;
    let (config, _) = config::load_from(of.record.config.as_deref(), of.record.ground.path())?;
    Ok(config.permissions(&options.template))
}

/// Who commits inside, and that nobody signs: the keys for that are not there.
fn gitconfig(identity: Option<&Identity>) -> (PathBuf, Vec<u8>) {
    let identity = identity.cloned().or_else(repo::identity);
    let mut text = "[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n".to_owned();
    text.push_str("[safe]\n\tdirectory = /workspace\n");
    if let Some(identity) = identity {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let (name, email) = (quoted(identity.name()), quoted(identity.email()));
        text.push_str(&format!("[user]\n\tname = \"{name}\"\n\temail = \"{email}\"\n"));
    }
    (PathBuf::from("/etc/gitconfig"), text.into_bytes())
}

/// The options of `up` as values.
pub(crate) fn options(record: &BoxRecord) -> Result<UpOptions, Failure> {
    let words = ["belljar", "up", record.name.as_str()].into_iter();
    let words = words.chain(record.options.iter().map(String::as_str));
    let cli = Cli::try_parse_from(words);
    let cli = cli.context("understand what was said when the box was made").code(FAILED)?;
    let Command::Up(args) = cli.command else {
        return Err(usage("box.json does not hold the options of `up`"));
    };
    let UpArgs { options, .. } = *args;
    Ok(options)
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
