//! The supervisor's side of the janitor: asks first, takes the answers when it needs them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_init::janitor::{Answer, Ask, Directory};
use belljar_init::wire;
use belljar_sys::clone::{self, Spawn};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

/// A janitor at work. It cleans up when it is told to, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Janitor {
    socket: OwnedFd,
}

impl Janitor {
    /// Starts one from the program that is also init.
    pub(crate) fn hire(program: &OwnedFd, null: &OwnedFd) -> io::Result<Self> {
        let (socket, theirs) = socket_pair()?;
        let beside =
            Spawn::beside(program.as_fd(), c"belljar-janitor", theirs.as_fd(), null.as_fd());
        clone::spawn(&Spawn { dies_with_parent: false, ..beside })?;
        Ok(Self { socket })
    }

    pub(crate) fn ask_cgroups(&self, directories: Vec<Directory>) -> io::Result<()> {
        wire::send(self.socket.as_fd(), &Ask::Cgroups(directories), &[])
    }

    pub(crate) fn ask_namespace(&self, owner: (u32, u32), outside: (u32, u32)) -> io::Result<()> {
        wire::send(self.socket.as_fd(), &Ask::Namespace { owner, outside }, &[])
    }

    /// The answer to the oldest question that has none yet.
    pub(crate) fn answer(&self) -> io::Result<Vec<OwnedFd>> {
        match wire::receive(self.socket.as_fd(), wire::MAX_WORD)? {
            Some((Answer::Here, descriptors)) => Ok(descriptors),
            Some((Answer::Failed { errno }, _)) => Err(io::Error::from_raw_os_error(errno)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Nothing more will be asked: it removes what it made, and ends.
    pub(crate) fn leave(&self) {
        rustix::net::shutdown(&self.socket, Shutdown::Write).ok(); // one that is gone needs no word
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&self) {
        while let Ok(Some((Answer::Here | Answer::Failed { .. }, _))) =
            wire::receive(self.socket.as_fd(), wire::MAX_WORD)
        {}
    }
}

/// Two ends of a socket that keeps messages apart.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
