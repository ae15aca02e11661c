//! Starts init in new namespaces and waits until the box is built. The payload does not run yet.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_init::plan::{Event, InitCommand, Stage};
use belljar_init::wire;
use belljar_model::{InForce, Layer, LayerState, Requirement, Template};
use belljar_sys::clone::{self, Gate, Spawn, SpawnStep, Spawned, namespaces};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use rustix::thread::CapabilitySet;

use crate::cgroup::Cgroup;
use crate::exec::ExecChannel;
use crate::janitor::{Janitor, socket_pair};
use crate::listeners::{Collected, Sockets};
use crate::prepare::{PrepareError, Prepared, environment, prepare};
use crate::privilege::{Ids, MappedTrees, Privilege, is_root_without_capabilities, write_maps};
use crate::request::Request;
use crate::{embedded, hint};

/// The reason why a box could not be built. The payload did not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("cannot create the namespaces of the box: {hint}")]
    Namespaces { hint: String, source: io::Error },
    #[error(
        "layer `cgroup` is required, but this user cannot create a cgroup; see `belljar doctor`"
    )]
    CgroupRequired,
    #[error(
        "cannot set the limits of the box in its cgroup; run without this layer by `--weaken cgroup`"
    )]
    Cgroup { source: io::Error },
    #[error("cannot start init: step {step:?} failed")]
    Init { step: SpawnStep, source: io::Error },
    #[error("{}{what}{}", layer_prefix(*stage), remedy(*stage))]
    Build { stage: Stage, what: String, source: io::Error },
    #[error("{doing}")]
    Host { doing: &'static str, source: io::Error },
    #[error(
        "this process is root without CAP_SYS_ADMIN, so the program would be root on this machine; run belljar as a plain user"
    )]
    PowerlessRoot,
    #[error(
        "the command, the variables, the files and the masks of the box are larger than {} KiB in total",
        wire::MAX_MESSAGE / 1024
    )]
    TooLong,
    #[error("init exited without reporting an error")]
    InitExited,
}

/// A built box whose payload is not started yet, or is running.
#[derive(Debug)]
pub struct BuiltBox {
    pub(crate) init: Spawned,
    pub(crate) control: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) janitor: Option<Janitor>,
    /// Whether the payload was already started.
    pub(crate) launched: bool,
    /// The host's ends of the payload's streams; taken when supervision begins.
    pub(crate) streams: Option<Streams>,
    sockets: Option<Sockets>,
    exec_channel: Option<ExecChannel>,
    pub(crate) template: Template,
    pub(crate) layers: Vec<LayerState>,
}

impl BuiltBox {
    /// Starts the payload before [`Self::supervise`]. Only for a payload that waits for its input.
    pub fn launch(&mut self) -> io::Result<()> {
        wire::send(self.control.as_fd(), &InitCommand::Go, &[])?;
        self.launched = true;
        Ok(())
    }

    /// Sets the timeout of the payload, counted from the start of supervision.
    pub fn set_timeout(&mut self, timeout: Option<std::time::Duration>) {
        self.template.limits.timeout = timeout;
    }

    /// Returns the state of each isolation layer of the box.
    pub fn layers(&self) -> &[LayerState] {
        &self.layers
    }

    /// Returns another descriptor of the payload's terminal, if it has one.
    pub fn terminal(&self) -> io::Result<Option<OwnedFd>> {
        match &self.streams {
            Some(Streams::Terminal(master)) => master.try_clone().map(Some),
            Some(Streams::Pipes { .. }) | None => Ok(None),
        }
    }

    /// Removes and returns the channel that starts more programs in the box. Returns `None` if it
    /// was not requested, or taken.
    pub fn take_exec_channel(&mut self) -> Option<ExecChannel> {
        self.exec_channel.take()
    }

    /// Removes and returns the listening sockets of the box. Returns `None` without a network, or
    /// if already taken.
    pub fn take_sockets(&mut self) -> Option<Sockets> {
        self.sockets.take()
    }
}

/// The host's ends of the payload's standard streams.
#[derive(Debug)]
pub(crate) enum Streams {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

/// The namespaces that clone3(2) creates for init. Init creates the cgroup and time namespaces
/// itself, later.
const NAMESPACES: u64 = namespaces::USER
    | namespaces::MOUNT
    | namespaces::PID
    | namespaces::NET
    | namespaces::IPC
    | namespaces::UTS;

/// The capabilities that init needs to build the box, and then drops.
///
/// The file capabilities are for overlayfs, which keeps the credentials of its mount.
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

/// Builds the box that `request` describes. [`BuiltBox::supervise`] starts the payload.
///
/// `meanwhile` runs while init builds the box. Its argument is the state of each layer: init enforces all
/// of them, or this function fails.
pub fn start<T>(
    request: &Request,
    meanwhile: impl FnOnce(&[LayerState]) -> T,
) -> Result<(BuiltBox, T), StartError> {
    let privilege = Privilege::of_this_process();
    if is_root_without_capabilities(privilege) {
        return Err(StartError::PowerlessRoot);
    }
    let ids = privilege.ids(request.template.user, request.random);
    let program = embedded::init().map_err(host("cannot copy init into memory"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(host("cannot open /dev/null"))?;
    let cgroup = find_cgroup(request)?;
    let janitor = if cgroup.is_some() || privilege == Privilege::Root {
        Some(Janitor::spawn(&program, &null).map_err(host("cannot start the janitor"))?)
    } else {
        None
    };
    let starter =
        Starter { request, privilege, ids, cgroup: cgroup.as_ref(), janitor: janitor.as_ref() };
    let landlock_abi = belljar_sys::landlock::abi().unwrap_or(0);
    let layers = layers(request, landlock_abi, cgroup.as_ref());
    // After a failure the janitor sees its socket closed, and cleans up.
    let ((init, control, Built { streams, sockets, exec_socket }), done) =
        starter.start([&program, &null], || meanwhile(&layers))?;
    tracing::debug!(
        pid = init.pid,
        ?privilege,
        cgroup = cgroup.is_some(),
        janitor = janitor.is_some(),
        landlock_abi,
        network = sockets.is_some(),
        "box is built"
    );
    for LayerState { layer, state } in &layers {
        tracing::trace!(%layer, ?state, "layer");
    }
    let exec_channel =
        exec_socket.map(|socket| ExecChannel::new(socket, init.pid, environment(request)));
    let template = request.template.clone();
    let streams = Some(streams);
    let launched = false;
    let built = BuiltBox {
        init,
        control,
        cgroup,
        janitor,
        launched,
        streams,
        sockets,
        exec_channel,
        template,
        layers,
    };
    Ok((built, done))
}

/// Returns the cgroup for a box, or `None` if cgroups are disabled or cannot be created.
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

/// The descriptors of a box that init has built.
struct Built {
    streams: Streams,
    sockets: Option<Sockets>,
    exec_socket: Option<OwnedFd>,
}

/// The inputs for building one box.
struct Starter<'a> {
    request: &'a Request,
    privilege: Privilege,
    ids: Ids,
    cgroup: Option<&'a Cgroup>,
    janitor: Option<&'a Janitor>,
}

impl Starter<'_> {
    /// Starts init while the janitor works, then sends init the plan with the results of the janitor.
    fn start<T>(
        &self,
        [program, null]: [&OwnedFd; 2],
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Started, T), StartError> {
        let owner =
            self.request_resources().map_err(host("cannot send a request to the janitor"))?;
        let mut cgroup_files = Vec::new();
        let clone_into_cgroup = self.cgroup.is_some_and(Cgroup::needs_clone_into);
        if clone_into_cgroup {
            cgroup_files = self.receive_cgroups()?;
        }
        let (control, theirs) = socket_pair().map_err(host("cannot create a socket pair"))?;
        let (gate, opener) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(host("cannot create a pipe"))?;
        let init = clone::spawn(&Spawn {
            namespaces: NAMESPACES,
            cgroup: cgroup_files.first().map(AsFd::as_fd),
            gate: Some(Gate { read: gate.as_fd(), write: opener.as_fd() }),
            ids: (self.privilege == Privilege::Root).then_some((self.ids.inside, self.ids.inside)),
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
            let cgroup_files = if clone_into_cgroup { Vec::new() } else { self.receive_cgroups()? };
            let Prepared { plan, trees } = self.prepare(owner, cgroup_files)?;
            build(&control, plan, &trees, self.request.program.as_ref(), meanwhile)
        });
        match built {
            Ok((built, done)) => Ok(((init, control, built), done)),
            Err(error) => {
                // Best effort: init also exits when its control socket is closed.
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

    /// Requests the cgroup and the user namespace from the janitor.
    ///
    /// Returns the owner of the workspace, if a namespace for this owner was requested.
    fn request_resources(&self) -> io::Result<Option<(u32, u32)>> {
        let Some(janitor) = self.janitor else { return Ok(None) };
        if let Some(cgroup) = self.cgroup {
            janitor.request_cgroups(cgroup.directory_specs(&self.request.template.limits))?;
        }
        let Some(workspace) = self.request.workspace.as_ref() else { return Ok(None) };
        if self.privilege != Privilege::Root {
            return Ok(None);
        }
        let stat = rustix::fs::fstat(&workspace.place)?;
        let owner = (stat.st_uid, stat.st_gid);
        janitor.request_namespace(owner, self.ids.outside())?;
        Ok(Some(owner))
    }

    /// Receives the descriptors of the requested cgroup from the janitor.
    fn receive_cgroups(&self) -> Result<Vec<OwnedFd>, StartError> {
        match (self.janitor, self.cgroup) {
            (Some(janitor), Some(_)) => {
                janitor.receive().map_err(|source| StartError::Cgroup { source })
            }
            _ => Ok(Vec::new()),
        }
    }

    fn open_gate(&self, init: &Spawned, opener: &OwnedFd) -> Result<(), StartError> {
        write_maps(init.pid, self.privilege, self.ids).map_err(no_namespaces)?;
        rustix::io::write(opener, b"1").map_err(host("cannot start init"))?;
        Ok(())
    }

    fn prepare(
        &self,
        owner: Option<(u32, u32)>,
        cgroup_files: Vec<OwnedFd>,
    ) -> Result<Prepared, StartError> {
        let mut mapped = MappedTrees::new(self.ids, self.janitor);
        if let (Some(owner), Some(janitor)) = (owner, self.janitor) {
            let namespace =
                janitor.receive().map_err(host("cannot create a user namespace"))?.pop();
            mapped.add(owner, namespace.ok_or(StartError::InitExited)?);
        }
        let cgroup = self.cgroup.is_some();
        Ok(prepare(self.request, self.privilege, self.ids, mapped, cgroup_files, cgroup)?)
    }
}

/// Sends the plan to init and waits until the box is built.
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
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(host("cannot create a pipe"));
    let (input, output, error) = (pipe()?, pipe()?, pipe()?);
    if !terminal {
        descriptors.extend([input.0.as_fd(), output.1.as_fd(), error.1.as_fd()]);
    }
    descriptors.extend(program.map(AsFd::as_fd));
    let exec_pair = plan
        .has_exec_channel
        .then(|| socket_pair().map_err(host("cannot create a socket pair")))
        .transpose()?;
    let (exec_socket, theirs) = exec_pair.unzip();
    descriptors.extend(theirs.as_ref().map(AsFd::as_fd));
    let order = InitCommand::Build(Box::new(plan));
    if let Err(source) = wire::send(control.as_fd(), &order, &descriptors) {
        if source.kind() == io::ErrorKind::InvalidInput {
            return Err(StartError::TooLong);
        }
        // A child that failed before it read the socket has left a report in it.
        return Err(early_failure(control)
            .unwrap_or(StartError::Host { doing: "cannot send the plan to init", source }));
    }
    drop(theirs);
    let done = meanwhile();
    let (mut descriptors, sockets) = wait_for_built(control)?;
    let streams = if terminal {
        Streams::Terminal(descriptors.pop().ok_or(StartError::InitExited)?)
    } else {
        Streams::Pipes { input: input.1, output: output.0, error: error.0 }
    };
    if has_net && sockets.is_none() {
        return Err(StartError::InitExited);
    }
    Ok((Built { streams, sockets, exec_socket }, done))
}

/// Receives the listening sockets and then the descriptors of the built box from init.
fn wait_for_built(control: &OwnedFd) -> Result<(Vec<OwnedFd>, Option<Sockets>), StartError> {
    let mut sockets = Collected::default();
    let mut buffer = [0; wire::MAX_SMALL_MESSAGE];
    loop {
        let received = wire::receive_raw(control.as_fd(), &mut buffer)
            .map_err(host("cannot read from init"))?;
        let Some((length, descriptors)) = received else { return Err(StartError::InitExited) };
        let bytes = buffer.get(..length).unwrap_or_default();
        if let Some((step, source)) = SpawnStep::from_report(bytes) {
            return Err(StartError::Init { step, source });
        }
        let event: Event = wire::decode(bytes).map_err(host("cannot decode a message of init"))?;
        match event {
            Event::Sockets(names) => sockets.add(names, descriptors),
            Event::Built { .. } => return Ok((descriptors, sockets.finish())),
            Event::Failed { stage, what, errno } => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(StartError::Build { stage, what, source });
            }
            Event::Started | Event::ExecFailed { .. } | Event::Ended { .. } => {
                return Err(StartError::InitExited);
            }
        }
    }
}

/// Returns the error of a child process that failed before it could read the plan, if it reported
/// one.
fn early_failure(control: &OwnedFd) -> Option<StartError> {
    let mut buffer = [0; 16];
    let (length, _) = wire::receive_raw(control.as_fd(), &mut buffer).ok()??;
    let (step, source) = SpawnStep::from_report(buffer.get(..length)?)?;
    Some(StartError::Init { step, source })
}

fn no_namespaces(source: io::Error) -> StartError {
    StartError::Namespaces { hint: hint::user_namespaces(&source), source }
}

fn host<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> StartError {
    move |source| StartError::Host { doing, source: source.into() }
}

/// Returns the state of each isolation layer of a new box.
fn layers(request: &Request, landlock_abi: u32, cgroup: Option<&Cgroup>) -> Vec<LayerState> {
    let template = &request.template;
    let writes_to_disk = request.home.is_some()
        || request.workspace.as_ref().is_some_and(|it| it.scratch || it.layers.is_some());
    let layers = request.workspace.as_ref().and_then(|it| it.layers.as_ref());
    let has_image = request.home.is_none() && layers.is_some_and(|it| it.image.is_some());
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
            Layer::Rlimits if has_image => "disk: a file system of limited size".to_owned(),
            // The kernel limits no directory of the host.
            Layer::Rlimits if writes_to_disk => {
                "disk: stand-in, a watcher adds up the files of the box".to_owned()
            }
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

/// Returns the isolation layer that init enforces in a stage of the build, if any.
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

fn layer_prefix(stage: Stage) -> String {
    layer_of(stage).map_or_else(String::new, |layer| format!("layer `{layer}`: "))
}

fn remedy(stage: Stage) -> String {
    if stage == Stage::Redirect {
        return "; `--net full` and rules with ports of 1024 or more need nf_tables with tproxy: run \
                `modprobe nf_tables nft_tproxy` as root, or use `--net restricted` and lower \
                ports"
            .to_owned();
    }
    match layer_of(stage) {
        Some(layer) if layer.weakenable() => {
            format!("; run without this layer by `--weaken {layer}`")
        }
        _ => String::new(),
    }
}
