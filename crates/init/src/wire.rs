//! Messages over the control socket: one datagram each, descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// Largest message. Far above any real plan, and below the kernel's default socket buffer.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// Largest message that is not a plan.
pub const MAX_WORD: usize = 4096;

/// Most descriptors with one message; the kernel allows 253.
pub const MAX_DESCRIPTORS: usize = 64;

/// Sends one message.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message of at most `size` bytes. `None`: the other side is gone.
pub fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    size: usize,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; size];
    let Some((length, descriptors)) = receive_raw(socket, &mut buffer)? else { return Ok(None) };
    let bytes = buffer.get(..length).unwrap_or_default();
    let message = decode(bytes)?;
    Ok(Some((message, descriptors)))
}

/// Receives one datagram as it is.
pub fn receive_raw(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(buffer)];
    let received = match recvmsg(socket.as_fd(), into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        // The other side ended with something of ours unread.
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        received => received?,
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptors = ancillary
        .drain()
        .flat_map(|message| {
            let RecvAncillaryMessage::ScmRights(descriptors) = message else { return Vec::new() };
            descriptors.collect()
        })
        .collect();
    Ok(Some((received.bytes, descriptors)))
}

/// Reads one message from its bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(io::Error::other)
}
