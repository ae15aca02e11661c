//! Starts init in new namespaces and sees it through to the moment before the payload runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_init::plan::{Event, Order, Stage};
use belljar_init::wire;
use belljar_model::{InForce, Layer, LayerState, Requirement, Template};
use belljar_sys::clone::{self, Gate, Spawn, Spawned, Step, namespaces};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use rustix::thread::CapabilitySet;

use crate::cgroup::Cgroup;
use crate::door::Door;
use crate::janitor::{Janitor, socket_pair};
use crate::listeners::{Collected, Sockets};
use crate::prepare::{PrepareError, Prepared, environment, prepare};
use crate::request::Request;
use crate::standing::{Ids, MappedTrees, Standing, is_powerless_root, write_maps};
use crate::{embedded, hint};

/// Why a box did not come to be. Nothing of the payload has run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("make the namespaces of the box: {hint}")]
    Namespaces { hint: String, source: io::Error },
    #[error("layer `cgroup` is required, and this user may not make one here")]
    CgroupRequired,
    #[error("set the limits in the cgroup of the box; `--weaken cgroup` goes without")]
    Cgroup { source: io::Error },
    #[error("start init, at the step {step:?}")]
    Init { step: Step, source: io::Error },
    #[error("{}{what}{}", of_layer(*stage), remedy(*stage))]
    Build { stage: Stage, what: String, source: io::Error },
    #[error("{doing}")]
    Host { doing: &'static str, source: io::Error },
    #[error(
        "this process is root without CAP_SYS_ADMIN, so the program would be root of the machine too: run belljar as a plain user"
    )]
    PowerlessRoot,
    #[error(
        "the command, the variables, the files and the masks of a box are longer than {} KiB together",
        wire::MAX_MESSAGE / 1024
    )]
    TooLong,
    #[error("init ended without a word")]
    Silence,
}

/// A box that stands, with the payload not yet started.
#[derive(Debug)]
pub struct Running {
    pub(crate) init: Spawned,
    pub(crate) control: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) janitor: Option<Janitor>,
    /// Whether the payload was given the word already.
    pub(crate) launched: bool,
    /// Taken out when the run begins, so that closing an end reaches the payload.
    pub(crate) streams: Option<Streams>,
    sockets: Option<Sockets>,
    door: Option<Door>,
    pub(crate) template: Template,
    pub(crate) layers: Vec<LayerState>,
}

impl Running {
    /// Starts the payload ahead of [`Self::supervise`]: one that does nothing before it is told to.
    pub fn launch(&mut self) -> io::Result<()> {
        wire::send(self.control.as_fd(), &Order::Go, &[])?;
        self.launched = true;
        Ok(())
    }

    /// Lets the payload run for so long, from the moment when it is supervised.
    pub fn set_timeout(&mut self, timeout: Option<std::time::Duration>) {
        self.template.limits.timeout = timeout;
    }

    /// The layers that hold it.
    pub fn layers(&self) -> &[LayerState] {
        &self.layers
    }

    /// Another handle of the payload's terminal, if it has one: to read, to write, to resize.
    pub fn terminal(&self) -> io::Result<Option<OwnedFd>> {
        match &self.streams {
            Some(Streams::Terminal(master)) => master.try_clone().map(Some),
            Some(Streams::Pipes { .. }) | None => Ok(None),
        }
    }

    /// The way to start more programs in it, once; `None` for a box that was made without.
    pub fn door(&mut self) -> Option<Door> {
        self.door.take()
    }

    /// The sockets that listen inside the box, once; `None` for a box without a network.
    pub fn take_sockets(&mut self) -> Option<Sockets> {
        self.sockets.take()
    }
}

/// Our side of the payload's streams.
#[derive(Debug)]
pub(crate) enum Streams {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

/// All but two that init makes itself: cgroup, once it is in its own, and time, once it has set it.
const NAMESPACES: u64 = namespaces::USER
    | namespaces::MOUNT
    | namespaces::PID
    | namespaces::NET
    | namespaces::IPC
    | namespaces::UTS;

/// What init needs to build the box, and then gives up. The file rights are for overlayfs, which
/// keeps the credentials it was mounted with.
const NEEDED: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Builds the box that `request` describes. The payload starts with [`Running::supervise`].
///
/// `meanwhile` runs while init builds, which would otherwise be spent waiting. It is told the layers
/// that hold the box: init makes them all hold, or this fails.
pub fn start<T>(
    request: &Request,
    meanwhile: impl FnOnce(&[LayerState]) -> T,
) -> Result<(Running, T), StartError> {
    let standing = Standing::of_this_process();
    if is_powerless_root(standing) {
        return Err(StartError::PowerlessRoot);
    }
    let ids = standing.ids(request.template.user, request.random);
    let program = embedded::init().map_err(host("copy init into memory"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(host("open /dev/null"))?;
    let cgroup = find_cgroup(request)?;
    let janitor = if cgroup.is_some() || standing == Standing::Root {
        Some(Janitor::hire(&program, &null).map_err(host("start the janitor"))?)
    } else {
        None
    };
    let site = Site { request, standing, ids, cgroup: cgroup.as_ref(), janitor: janitor.as_ref() };
    let landlock_abi = belljar_sys::landlock::abi().unwrap_or(0);
    let layers = layers(&request.template, landlock_abi, cgroup.as_ref());
    // On failure the janitor finds itself alone, and cleans up.
    let ((init, control, Built { streams, sockets, line }), done) =
        site.start([&program, &null], || meanwhile(&layers))?;
    tracing::debug!(
        pid = init.pid,
        ?standing,
        cgroup = cgroup.is_some(),
        janitor = janitor.is_some(),
        landlock_abi,
        network = sockets.is_some(),
        "box is built"
    );
    for LayerState { layer, state } in &layers {
        tracing::trace!(%layer, ?state, "layer");
    }
    let door = line.map(|line| Door::new(line, init.pid, environment(request)));
    let template = request.template.clone();
    let streams = Some(streams);
    let launched = false;
    let running = Running {
        init,
        control,
        cgroup,
        janitor,
        launched,
        streams,
        sockets,
        door,
        template,
        layers,
    };
    Ok((running, done))
}

/// A cgroup, where one can and should be had.
fn find_cgroup(request: &Request) -> Result<Option<Cgroup>, StartError> {
    let template = &request.template;
    if template.weaken.contains(&Layer::Cgroup) {
        return Ok(None);
    }
    let found = Cgroup::find(request.id);
    if found.is_none() && template.require.contains(&Requirement::Cgroup) {
        return Err(StartError::CgroupRequired);
    }
    Ok(found)
}

type Started = (Spawned, OwnedFd, Built);

/// What comes from a box that stands.
struct Built {
    streams: Streams,
    sockets: Option<Sockets>,
    line: Option<OwnedFd>,
}

/// Everything that the start of one box needs to know.
struct Site<'a> {
    request: &'a Request,
    standing: Standing,
    ids: Ids,
    cgroup: Option<&'a Cgroup>,
    janitor: Option<&'a Janitor>,
}

impl Site<'_> {
    /// Starts init while the janitor works, then brings both together in the plan.
    fn start<T>(
        &self,
        [program, null]: [&OwnedFd; 2],
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Started, T), StartError> {
        let owner = self.ask().map_err(host("instruct the janitor"))?;
        let mut doors = Vec::new();
        let is_birthplace = self.cgroup.is_some_and(Cgroup::is_birthplace);
        if is_birthplace {
            doors = self.doors()?;
        }
        let (control, theirs) = socket_pair().map_err(host("make a socket pair"))?;
        let (gate, opener) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(host("make a pipe"))?;
        let init = clone::spawn(&Spawn {
            namespaces: NAMESPACES,
            cgroup: doors.first().map(AsFd::as_fd),
            gate: Some(Gate { read: gate.as_fd(), write: opener.as_fd() }),
            ids: (self.standing == Standing::Root).then_some((self.ids.inside, self.ids.inside)),
            ambient: self.capabilities().bits(),
            program: program.as_fd(),
            role: c"belljar-init",
            environment: &[],
            control: theirs.as_fd(),
            null: null.as_fd(),
            dies_with_parent: true,
        })
        .map_err(no_namespaces)?;
        drop(theirs);
        let built = self.open_gate(&init, &opener).and_then(|()| {
            let doors = if is_birthplace { Vec::new() } else { self.doors()? };
            let Prepared { plan, trees } = self.prepare(owner, doors)?;
            build(&control, plan, &trees, self.request.program.as_ref(), meanwhile)
        });
        match built {
            Ok((built, done)) => Ok(((init, control, built), done)),
            Err(error) => {
                // Best effort: without its supervisor's socket init ends anyway.
                rustix::process::pidfd_send_signal(&init.pidfd, Signal::KILL).ok();
                belljar_sys::process::wait(init.pid, true).ok();
                Err(error)
            }
        }
    }

    fn capabilities(&self) -> CapabilitySet {
        match self.request.net {
            Some(_) => NEEDED | CapabilitySet::NET_BIND_SERVICE,
            None => NEEDED,
        }
    }

    /// Asks the janitor for all that is known to be needed. Returns the owner of the workspace, if
    /// a namespace for it was asked for.
    fn ask(&self) -> io::Result<Option<(u32, u32)>> {
        let Some(janitor) = self.janitor else { return Ok(None) };
        if let Some(cgroup) = self.cgroup {
            janitor.ask_cgroups(cgroup.recipe(&self.request.template.limits))?;
        }
        let Some(workspace) = self.request.workspace.as_ref() else { return Ok(None) };
        if self.standing != Standing::Root {
            return Ok(None);
        }
        let stat = rustix::fs::fstat(&workspace.place)?;
        let owner = (stat.st_uid, stat.st_gid);
        janitor.ask_namespace(owner, self.ids.outside())?;
        Ok(Some(owner))
    }

    /// The doors of the cgroup that was asked for.
    fn doors(&self) -> Result<Vec<OwnedFd>, StartError> {
        match (self.janitor, self.cgroup) {
            (Some(janitor), Some(_)) => {
                janitor.answer().map_err(|source| StartError::Cgroup { source })
            }
            _ => Ok(Vec::new()),
        }
    }

    fn open_gate(&self, init: &Spawned, opener: &OwnedFd) -> Result<(), StartError> {
        write_maps(init.pid, self.standing, self.ids).map_err(no_namespaces)?;
        rustix::io::write(opener, b"1").map_err(host("let init go on"))?;
        Ok(())
    }

    fn prepare(
        &self,
        owner: Option<(u32, u32)>,
        doors: Vec<OwnedFd>,
    ) -> Result<Prepared, StartError> {
        let mut mapped = MappedTrees::new(self.ids, self.janitor);
        if let (Some(owner), Some(janitor)) = (owner, self.janitor) {
            let namespace = janitor.answer().map_err(host("get a user namespace"))?.pop();
            mapped.add(owner, namespace.ok_or(StartError::Silence)?);
        }
        let cgroup = self.cgroup.is_some();
        Ok(prepare(self.request, self.standing, self.ids, mapped, doors, cgroup)?)
    }
}

/// Sends the plan and waits until the box stands.
fn build<T>(
    control: &OwnedFd,
    plan: belljar_init::plan::Plan,
    trees: &[OwnedFd],
    program: Option<&OwnedFd>,
    meanwhile: impl FnOnce() -> T,
) -> Result<(Built, T), StartError> {
    let mut descriptors: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
    let terminal = matches!(plan.stdio, belljar_init::plan::Stdio::Terminal { .. });
    let has_net = plan.net.is_some();
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(host("make a pipe"));
    let (input, output, error) = (pipe()?, pipe()?, pipe()?);
    if !terminal {
        descriptors.extend([input.0.as_fd(), output.1.as_fd(), error.1.as_fd()]);
    }
    descriptors.extend(program.map(AsFd::as_fd));
    let line = plan.line.then(|| socket_pair().map_err(host("make a socket pair"))).transpose()?;
    let (line, theirs) = line.unzip();
    descriptors.extend(theirs.as_ref().map(AsFd::as_fd));
    let order = Order::Build(Box::new(plan));
    if let Err(source) = wire::send(control.as_fd(), &order, &descriptors) {
        if source.kind() == io::ErrorKind::InvalidInput {
            return Err(StartError::TooLong);
        }
        // A child that failed before it could listen has left a report.
        return Err(early_failure(control)
            .unwrap_or(StartError::Host { doing: "send the plan to init", source }));
    }
    drop(theirs);
    let done = meanwhile();
    let (mut with, sockets) = wait_for_built(control)?;
    let streams = if terminal {
        Streams::Terminal(with.pop().ok_or(StartError::Silence)?)
    } else {
        Streams::Pipes { input: input.1, output: output.0, error: error.0 }
    };
    if has_net && sockets.is_none() {
        return Err(StartError::Silence);
    }
    Ok((Built { streams, sockets, line }, done))
}

/// Hears init out: sockets, then the descriptors of the box that stands.
fn wait_for_built(control: &OwnedFd) -> Result<(Vec<OwnedFd>, Option<Sockets>), StartError> {
    let mut sockets = Collected::default();
    let mut buffer = [0; wire::MAX_WORD];
    loop {
        let received =
            wire::receive_raw(control.as_fd(), &mut buffer).map_err(host("hear from init"))?;
        let Some((length, with)) = received else { return Err(StartError::Silence) };
        let bytes = buffer.get(..length).unwrap_or_default();
        if let Some((step, source)) = Step::from_report(bytes) {
            return Err(StartError::Init { step, source });
        }
        let event: Event = wire::decode(bytes).map_err(host("understand init"))?;
        match event {
            Event::Sockets(names) => sockets.add(names, with),
            Event::Built { .. } => return Ok((with, sockets.finish())),
            Event::Failed { stage, what, errno } => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(StartError::Build { stage, what, source });
            }
            Event::Started | Event::ExecFailed { .. } | Event::Ended { .. } => {
                return Err(StartError::Silence);
            }
        }
    }
}

fn early_failure(control: &OwnedFd) -> Option<StartError> {
    let mut buffer = [0; 16];
    let (length, _) = wire::receive_raw(control.as_fd(), &mut buffer).ok()??;
    let (step, source) = Step::from_report(buffer.get(..length)?)?;
    Some(StartError::Init { step, source })
}

fn no_namespaces(source: io::Error) -> StartError {
    StartError::Namespaces { hint: hint::user_namespaces(&source), source }
}

fn host<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> StartError {
    move |source| StartError::Host { doing, source: source.into() }
}

/// What holds this box, layer by layer.
fn layers(template: &Template, landlock_abi: u32, cgroup: Option<&Cgroup>) -> Vec<LayerState> {
    let state = |layer: Layer| {
        if template.weaken.contains(&layer) {
            return InForce::Weakened;
        }
        let detail = match layer {
            Layer::Namespaces => "user, mount, pid, net, ipc, uts, cgroup".to_owned(),
            Layer::Landlock => format!("abi {landlock_abi}"),
            Layer::Seccomp => std::env::consts::ARCH.to_owned(),
            Layer::Cgroup => match cgroup {
                Some(cgroup) => cgroup.describe().to_owned(),
                None => {
                    let mechanism = "rlimits, and a watcher that adds up the box's processes";
                    return InForce::StandIn { mechanism: mechanism.to_owned() };
                }
            },
            Layer::TimeNamespace
            | Layer::ReadOnlySystem
            | Layer::ProcMask
            | Layer::Capabilities
            | Layer::NoNewPrivs
            | Layer::NestedUserns
            | Layer::Rlimits
            | Layer::SelfTest => String::new(),
        };
        InForce::InForce { detail }
    };
    Layer::ALL.into_iter().map(|layer| LayerState { layer, state: state(layer) }).collect()
}

/// The layer that a stage of the building belongs to.
fn layer_of(stage: Stage) -> Option<Layer> {
    match stage {
        Stage::Namespaces => Some(Layer::Namespaces),
        Stage::Cgroup => Some(Layer::Cgroup),
        Stage::TimeNamespace => Some(Layer::TimeNamespace),
        Stage::Root => Some(Layer::ReadOnlySystem),
        Stage::Proc => Some(Layer::ProcMask),
        Stage::NestedUserns => Some(Layer::NestedUserns),
        Stage::Landlock => Some(Layer::Landlock),
        Stage::Seccomp => Some(Layer::Seccomp),
        Stage::Capabilities => Some(Layer::Capabilities),
        Stage::NoNewPrivs => Some(Layer::NoNewPrivs),
        Stage::Rlimits => Some(Layer::Rlimits),
        Stage::SelfTest => Some(Layer::SelfTest),
        Stage::Protocol | Stage::Net | Stage::Redirect | Stage::Workspace | Stage::Terminal => None,
    }
}

fn of_layer(stage: Stage) -> String {
    layer_of(stage).map_or_else(String::new, |layer| format!("layer `{layer}`: "))
}

fn remedy(stage: Stage) -> String {
    if stage == Stage::Redirect {
        return "; the kernel needs nf_tables with tproxy for `--net full` and for rules with ports \
                from 1024 up: `modprobe nf_tables nft_tproxy` as root, or stay with `--net \
                restricted` and lower ports"
            .to_owned();
    }
    match layer_of(stage) {
        Some(layer) if layer.weakenable() => format!("; `--weaken {layer}` goes without"),
        _ => String::new(),
    }
}
