//! Decides which IP addresses can be dialled. Pure: the caller resolves a name once, and dials only
//! the address that this module returned.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use belljar_model::net::embedded;
pub use belljar_model::net::{Range, is_metadata_name, range};

/// An IP address of the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Public(IpAddr);

/// An IP address outside the public internet, with the range that contains it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the address {address} is not public: it is {range}")]
pub struct Private {
    pub address: IpAddr,
    pub range: Range,
}

/// The IP addresses that an allowed request can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The request can reach public addresses only.
    Public,
    /// The request can reach public and private addresses, because a rule names the target.
    Named,
}

/// An IP address that passed the address filter, so that the broker can dial it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dialable(IpAddr);

/// Decides which IP addresses the broker can dial; contains the addresses of its own machine.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    own: BTreeSet<IpAddr>,
}

impl Public {
    pub fn check(address: IpAddr) -> Result<Self, Private> {
        match range(address) {
            None => Ok(Self(address)),
            Some(range) => Err(Private { address, range }),
        }
    }

    pub fn ip(self) -> IpAddr {
        self.0
    }
}

impl Dialable {
    pub fn ip(self) -> IpAddr {
        self.0
    }
}

impl Filter {
    /// Creates a filter that refuses the given addresses of this machine, so that no name leads to
    /// its services (A03, A28).
    pub fn new(own: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { own: own.into_iter().collect() }
    }

    /// Returns the address as dialable if `reach` allows it, or an error for a private address.
    pub fn check(&self, address: IpAddr, reach: Reach) -> Result<Dialable, Private> {
        let refuse = |range| Err(Private { address, range });
        match (range(address), reach) {
            (None | Some(Range::Local), _) if self.is_own(address) => refuse(Range::Own),
            (None, _) => Ok(Dialable(address)),
            (Some(Range::Local), Reach::Named) if embedded(address).is_none() => {
                Ok(Dialable(address))
            }
            (Some(range), _) => refuse(range),
        }
    }

    /// Returns the `connect` address of a rule as dialable, or an error for a private address. The
    /// operator wrote the address, so only metadata services and addresses without a single host
    /// are refused.
    pub fn check_connect(&self, address: SocketAddr) -> Result<Dialable, Private> {
        match range(address.ip()) {
            Some(range @ (Range::Metadata | Range::Unspecified | Range::Multicast)) => {
                Err(Private { address: address.ip(), range })
            }
            Some(
                Range::Local | Range::Loopback | Range::LinkLocal | Range::Own | Range::Reserved,
            )
            | None => Ok(Dialable(address.ip())),
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.contains(&address)
            || embedded(address).is_some_and(|inside| self.own.contains(&inside.into()))
    }
}

#[cfg(test)]
mod tests;
