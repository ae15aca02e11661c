//! Turns a request into the plan that init executes: mounts, files, limits, system call filter.
//!
//! Reads files of the host, but changes nothing.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use belljar_init::plan::{
    Access, Landlock, Limit, MAX_PORTS, NetPlan, Plan, RootKind, Scratch, Source, Stdio, Step,
};
use belljar_model::{Access as MountAccess, Layer, Mode, Mount, Template};
use rustix::fs::{FileType, Mode as FileMode, OFlags};

use crate::git;
use crate::privilege::{Ids, MappedTrees, Privilege};
use crate::request::{DataMount, HomeMount, MAX_FILES, Mask, NetRequest, Request, Workspace};
use crate::seccomp::{self, Accounting, Machine};
use crate::sockets;
use crate::trust;
use crate::view::{self, HOME, HOSTNAME, WORKSPACE};

/// The reason why a box cannot be prepared: an invalid request, or a file of the host that a box
/// cannot use.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot mount {}: it is a {kind}, and only directories and regular files can be mounted", path.display())]
    NotMountable { path: PathBuf, kind: &'static str },
    #[error("cannot mount {}: it is part of Belljar's own state", path.display())]
    OwnState { path: PathBuf },
    #[error("cannot map the owner of {} to the user id of the box; if its file system does not support id-mapped mounts, run as its owner", path.display())]
    MapOwner { path: PathBuf, source: io::Error },
    #[error(
        "layer `seccomp` does not support {}; run without it by `--weaken seccomp`",
        std::env::consts::ARCH
    )]
    NoFilter,
    #[error(
        "the rules name {count} ports, but a box supports at most {MAX_PORTS}; name fewer ports or use `--net full`"
    )]
    TooManyPorts { count: usize },
    #[error("invalid mask {}: use a path relative to the workspace, without `..`", path.display())]
    Mask { path: PathBuf },
    #[error("invalid path {} of a file for the box: use an absolute path without `..`", path.display())]
    File { path: PathBuf },
    #[error("the files for the box are larger than {} KiB in total", MAX_FILES / 1024)]
    FilesTooLong,
}

/// A plan for init, with the descriptors that the plan refers to.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) trees: Vec<OwnedFd>,
}

/// Collects the mounts of a box and the descriptors that they need.
struct Mounts<'a> {
    privilege: Privilege,
    mapped: MappedTrees<'a>,
    hidden: &'a [PathBuf],
    trees: Vec<OwnedFd>,
    steps: Vec<Step>,
    writable: Vec<Vec<u8>>,
}

/// Creates the plan of one box, which init carries out. `cgroup_files` are the cgroups (v1) that
/// init joins.
pub(crate) fn prepare(
    request: &Request,
    privilege: Privilege,
    ids: Ids,
    mapped: MappedTrees<'_>,
    cgroup_files: Vec<OwnedFd>,
    cgroup: bool,
) -> Result<Prepared, PrepareError> {
    let template = &request.template;
    let limits = &template.limits;
    let enabled = |layer: Layer| !template.weaken.contains(&layer);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut mounts = Mounts {
        privilege,
        mapped,
        hidden: &request.hidden,
        trees: Vec::new(),
        steps: Vec::new(),
        writable: ["/tmp", HOME, "/dev/shm"].map(|path| path.as_bytes().to_vec()).to_vec(),
    };
    let root = mounts.root(template)?;
    if let Some(home) = &request.home {
        mounts.home(home)?;
    }
    let net = request.net.as_ref().map(net_plan).transpose()?;
    if matches!(root, RootKind::Empty) {
        mounts.steps.extend(view::system_steps(net.is_some()));
    } else {
        mounts.writable.push(b"/".to_vec());
    }
    mounts.steps.extend(view::own_files(ids, cpus));
    mounts.steps.push(view::resolver(net.is_some()));
    if let Some(net) = &request.net {
        mounts.steps.extend(trust::steps(&net.trust));
    }
    let mask = enabled(Layer::ProcMask).then(|| view::proc_mask(limits, cpus, request.now));
    mounts.steps.extend([Step::Proc { mask }, Step::Devices]);
    if let Some(workspace) = &request.workspace {
        mounts.workspace(workspace, template.mode)?;
    }
    for mount in &template.mounts {
        mounts.mount(mount)?;
    }
    if let Some(data) = &request.data {
        mounts.data(data)?;
    }
    mounts.masks(&request.masks)?;
    mounts.files(&request.files)?;
    let seccomp = if enabled(Layer::Seccomp) {
        let machine = Machine::current().ok_or(PrepareError::NoFilter)?;
        let accounting = if cgroup { Accounting::Cgroup } else { Accounting::StandIn };
        let program = seccomp::filter(machine, accounting);
        Some(program.iter().map(|i| (i.code, i.jump_true, i.jump_false, i.k)).collect())
    } else {
        None
    };
    let Mounts { trees, steps, writable, .. } = mounts;
    let (doors, trees) = (cgroup_files.len(), cgroup_files.into_iter().chain(trees).collect());
    let landlock = enabled(Layer::Landlock).then(|| Landlock {
        writable,
        devices: ["null", "zero", "full", "random", "urandom", "tty", "pts"]
            .map(|name| format!("/dev/{name}").into_bytes())
            .to_vec(),
    });
    let workdir = if request.workspace.is_some() { WORKSPACE } else { HOME };
    let plan = Plan {
        hostname: HOSTNAME.into(),
        net,
        cgroup_files: doors,
        root,
        scratch: scratch(
            if cgroup { limits.disk } else { limits.disk.min(limits.memory) }.as_u64(),
            request.home.is_some(),
        ),
        steps,
        has_program_fd: request.program.is_some(),
        has_exec_channel: request.exec_channel,
        workdir: workdir.into(),
        argv: request.argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        env: environment(request),
        limits: rlimits(template, cgroup),
        affinity: (!cgroup).then(|| limits.cpus.millis().div_ceil(1000)),
        own_clocks: enabled(Layer::TimeNamespace),
        forbid_nested_userns: enabled(Layer::NestedUserns),
        landlock,
        seccomp,
        stdio: request
            .terminal
            .map_or(Stdio::Pipes, |(rows, columns)| Stdio::Terminal { rows, columns }),
        self_test: enabled(Layer::SelfTest),
    };
    Ok(Prepared { plan, trees })
}

/// Returns the network part of the plan, with each TCP port once. Fails above [`MAX_PORTS`].
fn net_plan(net: &NetRequest) -> Result<NetPlan, PrepareError> {
    let mut ports = net.ports.clone();
    ports.sort_unstable();
    ports.dedup();
    if ports.len() > MAX_PORTS {
        return Err(PrepareError::TooManyPorts { count: ports.len() });
    }
    Ok(NetPlan { ports, any_port: net.any_port })
}

/// Returns the environment variables of the payload, as `NAME=value`. Variables of the request
/// override those for the CA bundle.
pub(crate) fn environment(request: &Request) -> Vec<Vec<u8>> {
    let is_set = |name: &str| request.env.iter().any(|(own, _)| own == name);
    let ca_variables = request.net.iter().flat_map(|_| trust::variables());
    let own =
        request.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let ca_variables = ca_variables
        .filter(|(name, _)| !is_set(name))
        .map(|(name, value)| format!("{name}={value}").into_bytes());
    own.chain(ca_variables).collect()
}

/// Returns the description of the tmpfs for all writable directories outside the workspace.
///
/// Without a cgroup, the caller limits `bytes` to the memory limit, because nothing else counts its pages.
fn scratch(bytes: u64, has_home_mount: bool) -> Scratch {
    let at = [("tmp", "/tmp", 0o1777), ("shm", "/dev/shm", 0o1777), ("home", HOME, 0o755)];
    let at = at.iter().filter(|(_, target, _)| !(has_home_mount && *target == HOME));
    Scratch {
        bytes,
        inodes: (bytes / 4096).max(1024),
        at: at.map(|(name, target, mode)| ((*name).into(), (*target).into(), *mode)).collect(),
    }
}

fn rlimits(template: &Template, cgroup: bool) -> Vec<(Limit, u64)> {
    const OUR_PROCESSES: u64 = 1; // init has the same user id
    let limits = &template.limits;
    let processes = u64::from(limits.pids) + OUR_PROCESSES;
    // With a cgroup, the cgroup must refuse forks first, because only its counter shows the refusal.
    let processes = if cgroup { processes * 2 + 64 } else { processes };
    let mut set = vec![
        (Limit::Files, limits.files),
        (Limit::Processes, processes),
        (Limit::FileSize, limits.disk.as_u64()),
        (Limit::Core, 1), // not 0: with 0 the kernel still pipes core dumps into a program, see core(5)
        (Limit::MessageQueues, 1 << 20),
        (Limit::PendingSignals, 4096),
        (Limit::LockedMemory, 8 << 20),
    ];
    if !cgroup {
        // The watcher kills the box at the limit; this rlimit bounds the overshoot between two checks.
        set.push((Limit::Data, limits.memory.as_u64().saturating_add(1 << 30)));
    }
    set
}

impl Mounts<'_> {
    fn root(&mut self, template: &Template) -> Result<RootKind, PrepareError> {
        let Some(path) = &template.rootfs else { return Ok(RootKind::Empty) };
        let (place, real) = self.open(path)?;
        Ok(RootKind::Directory(self.source(&place, &real)?))
    }

    /// Adds a mount of the persistent home directory. Mounts below the home come later.
    fn home(&mut self, home: &HomeMount) -> Result<(), PrepareError> {
        let source = self.source(&home.place, &home.path)?;
        let (target, access) = (HOME.into(), Access::ReadWrite);
        self.steps.push(Step::Bind { source, target, access, optional: false });
        Ok(())
    }

    fn workspace(&mut self, workspace: &Workspace, mode: Mode) -> Result<(), PrepareError> {
        let lower = self.source(&workspace.place, &workspace.path)?;
        let target = WORKSPACE.as_bytes().to_vec();
        if workspace.scratch {
            // Boxes wrote its files, so none of them is trusted, not even a `.git` file.
            self.writable.push(target.clone());
            let (source, access) = (lower, Access::ReadWrite);
            self.steps.push(Step::Bind { source, target, access, optional: false });
            return Ok(());
        }
        match (mode, &workspace.layers) {
            // Direct mode skips the review, but hostile code still does not write the user's files: the
            // caller applies the harmless changes after the program has ended.
            (Mode::Overlay | Mode::Direct, Some(layers)) => {
                let sync = layers.sync;
                let layers = match &layers.image {
                    Some(image) => self.image(image, &layers.dir)?,
                    None => {
                        let (place, real) = open(&layers.dir)?;
                        self.source(&place, &real)?
                    }
                };
                self.steps.push(Step::Overlay { lower, layers, target: target.clone(), sync });
                self.writable.push(target);
            }
            (Mode::ReadOnly, _) | (Mode::Overlay | Mode::Direct, None) => {
                self.steps.push(Step::ReadOnlyOverlay { source: lower, target });
            }
        }
        self.git_directory(workspace)?;
        self.hide_state(&workspace.path, WORKSPACE);
        Ok(())
    }

    fn mount(&mut self, mount: &Mount) -> Result<(), PrepareError> {
        let (place, real) = self.open(mount.source())?;
        let source = self.source(&place, &real)?;
        let target = mount.target().as_os_str().as_bytes().to_vec();
        match mount.access() {
            MountAccess::ReadOnly => self.steps.push(Step::ReadOnlyOverlay { source, target }),
            MountAccess::ReadWrite => {
                self.writable.push(target.clone());
                let access = Access::ReadWrite;
                self.steps.push(Step::Bind { source, target, access, optional: false });
                self.hide_sockets(&place, mount.target());
            }
        }
        self.hide_state(&real, &mount.target().to_string_lossy());
        Ok(())
    }

    /// Adds a read-only mount of a directory of Belljar, after all mounts of the user.
    fn data(&mut self, data: &DataMount) -> Result<(), PrepareError> {
        let source = self.source(&data.place, &data.path)?;
        let (target, access) = (data.target.as_os_str().as_bytes().to_vec(), Access::ReadOnly);
        self.steps.push(Step::Bind { source, target, access, optional: false });
        Ok(())
    }

    /// Adds the masks that hide paths of the workspace or make them read-only. Runs after all
    /// mounts in the workspace.
    fn masks(&mut self, masks: &[Mask]) -> Result<(), PrepareError> {
        for Mask { path, kind } in masks {
            if !path.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(PrepareError::Mask { path: path.clone() });
            }
            let (beneath, path) = (WORKSPACE.into(), path.as_os_str().as_bytes().to_vec());
            self.steps.push(Step::Mask { beneath, path, kind: *kind });
        }
        Ok(())
    }

    /// Injects files. Runs last, so that no other mount covers them.
    fn files(&mut self, files: &[(PathBuf, Vec<u8>)]) -> Result<(), PrepareError> {
        if files.iter().map(|(_, content)| content.len()).sum::<usize>() > MAX_FILES {
            return Err(PrepareError::FilesTooLong);
        }
        for (path, content) in files {
            let mut parts = path.components();
            let absolute = parts.next() == Some(Component::RootDir);
            if !absolute || !parts.all(|part| matches!(part, Component::Normal(_))) {
                return Err(PrepareError::File { path: path.clone() });
            }
            let path = path.as_os_str().as_bytes().to_vec();
            self.steps.push(Step::FixedFile { path, content: content.clone() });
        }
        Ok(())
    }

    /// Adds a read-only mount of the repository of a worktree or submodule.
    fn git_directory(&mut self, workspace: &Workspace) -> Result<(), PrepareError> {
        let inside = Path::new(WORKSPACE);
        let Some(found) = git::find(&workspace.place, &workspace.path, inside) else {
            return Ok(());
        };
        let (place, real) = self.open(&found.source)?;
        let source = self.source(&place, &real)?;
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        self.steps.push(Step::ReadOnlyOverlay { source, target: bytes(&found.target) });
        if let Some(alias) = found.alias.filter(|alias| alias != inside) {
            self.steps.push(Step::Symlink { path: bytes(&alias), target: WORKSPACE.into() });
        }
        Ok(())
    }

    /// Adds steps that hide the Unix sockets in a writable mount, because each could be a way out
    /// of the box.
    fn hide_sockets(&mut self, place: &OwnedFd, target: &Path) {
        for socket in sockets::beneath(place) {
            let path = target.join(socket);
            self.steps.push(Step::Hide { path: path.as_os_str().as_bytes().to_vec() });
        }
    }

    /// Adds a step that hides Belljar's own state below a mounted directory: the box sees an empty
    /// directory.
    fn hide_state(&mut self, mounted: &Path, target: &str) {
        for hidden in self.hidden {
            if let Ok(beneath) = hidden.strip_prefix(mounted) {
                let path = Path::new(target).join(beneath);
                self.steps.push(Step::Hide { path: path.as_os_str().as_bytes().to_vec() });
            }
        }
    }

    /// Opens a host path of the user, unless it is part of Belljar's own state. Refuses Belljar's
    /// own state, sockets, pipes and devices.
    fn open(&self, path: &Path) -> Result<(OwnedFd, PathBuf), PrepareError> {
        let (place, real) = open(path)?;
        if self.hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Err(PrepareError::OwnState { path: path.to_owned() });
        }
        let stat = rustix::fs::fstat(&place)
            .map_err(|error| PrepareError::Open { path: path.to_owned(), source: error.into() })?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory | FileType::RegularFile => return Ok((place, real)),
            FileType::Socket => "socket",
            FileType::Fifo => "pipe",
            FileType::CharacterDevice | FileType::BlockDevice => "device",
            FileType::Symlink | FileType::Unknown => "file of an unknown kind",
        };
        Err(PrepareError::NotMountable { path: path.to_owned(), kind })
    }

    /// Returns the mount source of an image for init: the mount itself, whose owners are mapped.
    fn image(&mut self, image: &OwnedFd, path: &Path) -> Result<Source, PrepareError> {
        let mapped = rustix::fs::fstat(image).map_err(io::Error::from).and_then(|stat| {
            self.mapped.map(image.as_fd(), (stat.st_uid, stat.st_gid))?;
            image.try_clone()
        });
        let failed = |source| PrepareError::MapOwner { path: path.to_owned(), source };
        Ok(self.descriptor(mapped.map_err(failed)?))
    }

    fn descriptor(&mut self, tree: OwnedFd) -> Source {
        self.trees.push(tree);
        Source::Descriptor(u32::try_from(self.trees.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns the mount source of a host path for init: a mapped mount for root, else the path.
    fn source(&mut self, place: &OwnedFd, path: &Path) -> Result<Source, PrepareError> {
        match self.privilege {
            Privilege::Root => {
                let tree = self
                    .mapped
                    .clone_of(place.as_fd())
                    .map_err(|source| PrepareError::MapOwner { path: path.to_owned(), source })?;
                Ok(self.descriptor(tree))
            }
            Privilege::Rootless => {
                let stat = rustix::fs::fstat(place).map_err(|error| PrepareError::Open {
                    path: path.to_owned(),
                    source: error.into(),
                })?;
                let path = path.as_os_str().as_bytes().to_vec();
                Ok(Source::Path { path, identity: Some((stat.st_dev, stat.st_ino)) })
            }
        }
    }
}

/// Opens a host path with `O_PATH`, and returns the descriptor and the resolved path.
pub fn open(path: &Path) -> Result<(OwnedFd, PathBuf), PrepareError> {
    let failed = |source: rustix::io::Errno| PrepareError::Open {
        path: path.to_owned(),
        source: source.into(),
    };
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, FileMode::empty())
        .map_err(failed)?;
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place));
    let real = rustix::fs::readlink(link, Vec::new()).map_err(failed)?;
    Ok((place, PathBuf::from(OsStr::from_bytes(real.as_bytes()))))
}
