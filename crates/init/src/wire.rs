//! Sends and receives messages on a control socket: one datagram per message, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// The maximum size of a message, in bytes. It is above any real plan and below the kernel's socket
/// buffer.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// The maximum size of a message that does not contain a plan or a command line, in bytes.
pub const MAX_SMALL_MESSAGE: usize = 4096;

/// The maximum number of descriptors in one message; the kernel allows 253.
pub const MAX_DESCRIPTORS: usize = 64;

/// Encodes and sends one message with descriptors. Fails if the message exceeds the limits.
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

/// Receives and decodes one message of at most `size` bytes, with its descriptors. Returns `None`
/// if the peer closed the socket.
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

/// Receives one datagram and its descriptors without decoding the datagram. Returns `None` if the
/// peer closed the socket.
pub fn receive_raw(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(buffer)];
    let received = match recvmsg(socket.as_fd(), into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        // The peer closed the socket before it read all our messages.
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

/// Decodes one message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(io::Error::other)
}
