//! The supervisor's connection to the janitor: sends requests early, reads the responses when needed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_init::janitor::{CgroupSpec, JanitorRequest, JanitorResponse};
use belljar_init::wire;
use belljar_sys::clone::{self, Spawn};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

/// A running janitor process, which creates and removes cgroups. It cleans up on request, or when
/// this value is dropped.
#[derive(Debug)]
pub(crate) struct Janitor {
    socket: OwnedFd,
}

impl Janitor {
    /// Starts a janitor process from the same program as init.
    pub(crate) fn spawn(program: &OwnedFd, null: &OwnedFd) -> io::Result<Self> {
        let (socket, theirs) = socket_pair()?;
        let beside = Spawn::without_namespaces(
            program.as_fd(),
            c"belljar-janitor",
            theirs.as_fd(),
            null.as_fd(),
        );
        clone::spawn(&Spawn { dies_with_parent: false, ..beside })?;
        Ok(Self { socket })
    }

    /// Requests the creation of cgroup directories from the janitor.
    pub(crate) fn request_cgroups(&self, directories: Vec<CgroupSpec>) -> io::Result<()> {
        wire::send(self.socket.as_fd(), &JanitorRequest::Cgroups(directories), &[])
    }

    /// Requests a user namespace from the janitor that maps the `owner` of files to `outside`.
    pub(crate) fn request_namespace(
        &self,
        owner: (u32, u32),
        outside: (u32, u32),
    ) -> io::Result<()> {
        wire::send(self.socket.as_fd(), &JanitorRequest::Namespace { owner, outside }, &[])
    }

    /// Receives the janitor's response to the oldest pending request: its descriptors.
    pub(crate) fn receive(&self) -> io::Result<Vec<OwnedFd>> {
        match wire::receive(self.socket.as_fd(), wire::MAX_SMALL_MESSAGE)? {
            Some((JanitorResponse::Done, descriptors)) => Ok(descriptors),
            Some((JanitorResponse::Failed { errno }, _)) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Tells the janitor to remove its cgroups and to exit.
    pub(crate) fn shut_down(&self) {
        rustix::net::shutdown(&self.socket, Shutdown::Write).ok(); // fails if the janitor has exited
    }

    /// Waits until the janitor has exited.
    pub(crate) fn wait(&self) {
        while let Ok(Some((JanitorResponse::Done | JanitorResponse::Failed { .. }, _))) =
            wire::receive(self.socket.as_fd(), wire::MAX_SMALL_MESSAGE)
        {}
    }
}

/// Creates a pair of connected sockets that preserve message boundaries.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
