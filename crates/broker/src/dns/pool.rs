//! Assigns addresses to names inside one box.
//!
//! The addresses come from ranges without real hosts: 198.18.0.0/15 (RFC 2544, for benchmarks) and
//! one unique local /64. They are never routed; the broker maps a dialled address back to its name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use belljar_model::net::Hostname;

/// The time to live of a DNS answer, in seconds.
pub const TTL: u32 = 60;

/// The maximum number of DNS names that have an address of the pool.
const MAX_NAMES: usize = 4096;
/// The minimum time without a query or connection before the pool gives an address to another name.
const MIN_UNUSED: Duration = Duration::from_secs(2 * TTL as u64);

const IPV4_BASE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// The number of usable host numbers in 198.18.0.0/15, without the first and the last.
const LAST: u32 = (1 << 17) - 2;
/// The IPv6 prefix `fdbe:11a4::/64` of the pool, an arbitrary unique local prefix that is never
/// seen outside a box.
const IPV6_BASE: u128 = 0xfdbe_11a4_0000_0000 << 64;

/// The addresses that the broker assigned to DNS names of one box.
#[derive(Debug)]
pub struct Pool {
    ipv6: bool,
    numbers: HashMap<Hostname, u32>,
    names: HashMap<u32, Entry>,
    last: u32,
}

#[derive(Debug)]
struct Entry {
    name: Hostname,
    used: Instant,
}

impl Pool {
    /// Creates an empty pool of addresses for DNS names; `ipv6` enables IPv6 addresses.
    pub fn new(ipv6: bool) -> Self {
        Self { ipv6, numbers: HashMap::new(), names: HashMap::new(), last: 0 }
    }

    /// Returns the pool's addresses of a name and assigns new ones if necessary; `None` if all are
    /// in use.
    pub fn assign(
        &mut self,
        name: &Hostname,
        now: Instant,
    ) -> Option<(Ipv4Addr, Option<Ipv6Addr>)> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.add(name, now)?,
        };
        if let Some(entry) = self.names.get_mut(&number) {
            entry.used = now;
        }
        let six = self.ipv6.then(|| Ipv6Addr::from(IPV6_BASE | u128::from(number)));
        Some((Ipv4Addr::from(IPV4_BASE + number), six))
    }

    /// Returns the DNS name that an address of the pool was assigned to, if any.
    pub fn name(&mut self, address: IpAddr, now: Instant) -> Option<&Hostname> {
        let entry = self.names.get_mut(&number(address)?)?;
        entry.used = now;
        Some(&entry.name)
    }

    fn add(&mut self, name: &Hostname, now: Instant) -> Option<u32> {
        if self.names.len() >= MAX_NAMES {
            self.drop_oldest(now)?;
        }
        // Round robin, so that an address is reused as late as possible.
        let mut number = self.last;
        loop {
            number = if number >= LAST { 1 } else { number + 1 };
            if !self.names.contains_key(&number) {
                break;
            }
        }
        self.last = number;
        self.numbers.insert(name.clone(), number);
        self.names.insert(number, Entry { name: name.clone(), used: now });
        Some(number)
    }

    fn drop_oldest(&mut self, now: Instant) -> Option<()> {
        let (number, entry) = self.names.iter().min_by_key(|(_, entry)| entry.used)?;
        if now.saturating_duration_since(entry.used) < MIN_UNUSED {
            return None;
        }
        let number = *number;
        let entry = self.names.remove(&number)?;
        self.numbers.remove(&entry.name);
        Some(())
    }
}

/// Returns the host number of an address in one of the pool's ranges. An IPv6 socket shows IPv4
/// addresses as mapped ones.
fn number(address: IpAddr) -> Option<u32> {
    match address.to_canonical() {
        IpAddr::V4(ipv4) => u32::from(ipv4).checked_sub(IPV4_BASE).filter(|number| *number <= LAST),
        IpAddr::V6(six) => {
            let number = u128::from(six).checked_sub(IPV6_BASE)?;
            u32::try_from(number).ok().filter(|number| *number <= LAST)
        }
    }
}
