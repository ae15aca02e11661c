//! Adds routes with rtnetlink. See rtnetlink(7).

use std::io;

use super::Family;
use super::netlink::{Attributes, Batch, CREATE};

const NEW_ROUTE: u16 = 24;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_STATIC: u8 = 4;
const SCOPE_HOST: u8 = 254;
const TYPE_LOCAL: u8 = 2;
const OUTPUT_INTERFACE: u16 = 4;
/// The interface index of the loopback, which is the first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Makes every address of a family a local address of the loopback: `ip route add local default dev lo`.
/// Needs CAP_NET_ADMIN in the network namespace.
pub fn make_every_address_local(family: Family) -> io::Result<()> {
    let family = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    let family = u8::try_from(family).map_err(io::Error::other)?;
    // struct rtmsg: prefix lengths of destination and source are zero, so the route matches every address.
    let mut body =
        vec![family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
    body.extend(Attributes::default().bytes(OUTPUT_INTERFACE, &LOOPBACK.to_ne_bytes()).finish());
    let mut batch = Batch::default();
    batch.acknowledged(NEW_ROUTE, CREATE, &body)?;
    batch.send(None)
}
