//! Encodes netlink messages, sends them to the kernel and checks the acknowledgements. See netlink(7).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_ACK`.
const ACK: u16 = 4;
/// `NLM_F_CREATE`.
pub(super) const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub(super) const APPEND: u16 = 0x800;
/// The netlink message type `NLMSG_ERROR`, which is also an acknowledgement if its error number is
/// 0.
const ERROR: u16 = 2;
/// The size of `struct nlmsghdr` in bytes.
const HEADER: usize = 16;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// Netlink messages that are sent together in one system call.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    expected_acks: u32,
    count: u32,
}

impl Batch {
    /// Adds a netlink message that the kernel must acknowledge.
    pub(super) fn acknowledged(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.expected_acks += 1;
        self.push(kind, flags | ACK, body)
    }

    /// Adds a netlink message that the kernel does not acknowledge.
    pub(super) fn unacknowledged(&mut self, kind: u16, body: &[u8]) -> io::Result<()> {
        self.push(kind, 0, body)
    }

    fn push(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.count += 1;
        let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | REQUEST).to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend(0_u32.to_ne_bytes());
        self.bytes.extend(body);
        pad(&mut self.bytes);
        Ok(())
    }

    /// Sends the netlink messages to one protocol (`None` is routes) and waits for all
    /// acknowledgements. Returns the first error that the kernel reports.
    pub(super) fn send(self, protocol: Option<Protocol>) -> io::Result<()> {
        let socket = open(protocol)?;
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&socket, &self.bytes, SendFlags::empty(), &kernel)?;
        let mut left = self.expected_acks;
        let mut buffer = vec![0; 16 * 1024];
        while left > 0 {
            let (length, _) = rustix::net::recv(&socket, &mut buffer, RecvFlags::empty())?;
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some((kind, body, next)) = split(rest) {
                if kind == ERROR {
                    check_ack(body)?;
                    left = left.saturating_sub(1);
                }
                rest = next;
            }
        }
        Ok(())
    }
}

/// Sends one request and returns the body of the response. An error of the kernel is returned as such.
pub(super) fn ask(protocol: Protocol, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = Batch::default();
    request.unacknowledged(kind, body)?;
    let socket = open(Some(protocol))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request.bytes, SendFlags::empty(), &kernel)?;
    let mut buffer = vec![0; 4 * 1024];
    let (length, _) = rustix::net::recv(&socket, &mut buffer, RecvFlags::empty())?;
    match split(buffer.get(..length).unwrap_or_default()) {
        Some((ERROR, body, _)) => Err(check_ack(body).err().unwrap_or(io::ErrorKind::Other.into())),
        Some((_, body, _)) => Ok(body.to_vec()),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    // A missing acknowledgement must not block the start of a box forever.
    let timeout = Some(std::time::Duration::from_secs(10));
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        timeout,
    )?;
    Ok(socket)
}

/// Splits off the first netlink message: its type, its body and the remaining bytes. `None` if it
/// is truncated.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, next))
}

/// Returns the error that the body of an `NLMSG_ERROR` message contains, if any.
fn check_ack(body: &[u8]) -> io::Result<()> {
    let errno = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    match errno {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Encoded netlink attributes, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // No caller needs more than 16 bits of length: values are names, numbers and short lists.
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        pad(&mut self.0);
        self
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute with a number in network byte order, which nf_tables expects.
    pub(super) fn big_endian(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(super) fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_attribute_length_does_not_include_its_padding() {
        let bytes = Attributes::default().text(1, "ab").bytes(2, &[9]).finish();
        assert_eq!(bytes.len(), 16);
        assert_eq!(bytes[..2], 7_u16.to_ne_bytes());
        assert_eq!(bytes[8..10], 5_u16.to_ne_bytes());
    }

    #[test]
    fn netlink_acknowledgement_with_a_nonzero_errno_is_an_error() {
        assert!(check_ack(&0_i32.to_ne_bytes()).is_ok());
        let refused = check_ack(&(-1_i32).to_ne_bytes()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1));
        assert!(check_ack(&[]).is_err());
    }

    #[test]
    fn split_separates_netlink_messages_and_returns_none_for_a_truncated_one() {
        let mut batch = Batch::default();
        batch.acknowledged(7, 0, &[1, 2, 3]).unwrap();
        batch.unacknowledged(8, &[]).unwrap();
        let (kind, body, rest) = split(&batch.bytes).unwrap();
        assert_eq!((kind, body), (7, &[1, 2, 3][..]));
        assert_eq!(split(rest).map(|(kind, body, _)| (kind, body.len())), Some((8, 0)));
        assert!(split(&batch.bytes[..10]).is_none());
    }
}
