//! Addresses that stand for names inside one box.
//!
//! They come from ranges that no real host has: 198.18.0.0/15 (RFC 2544, for benchmarks) and one unique local /64. Nothing
//! is ever routed to them; the broker learns from one which name a program had asked for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use belljar_model::net::Hostname;

/// Seconds for which a client may keep an answer.
pub const TTL: u32 = 60;

/// Names with an address at a time.
const MAX_NAMES: usize = 4096;
/// An address is given to another name only when nobody has asked for, or dialled, it for this long.
const KEPT: Duration = Duration::from_secs(2 * TTL as u64);

const FOUR: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Host numbers in 198.18.0.0/15, without the first and the last.
const LAST: u32 = (1 << 17) - 2;
/// `fdbe:11a4::/64`, which nobody's network has but by chance; it is never seen outside a box.
const SIX: u128 = 0xfdbe_11a4_0000_0000 << 64;

/// Which address stands for which name.
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
    /// `ipv6`: whether the box can dial such addresses.
    pub fn new(ipv6: bool) -> Self {
        Self { ipv6, numbers: HashMap::new(), names: HashMap::new(), last: 0 }
    }

    /// The addresses of a name, new ones if it has none. None if all are in use.
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
        let six = self.ipv6.then(|| Ipv6Addr::from(SIX | u128::from(number)));
        Some((Ipv4Addr::from(FOUR + number), six))
    }

    /// The name that an address stands for, if it is one of ours.
    pub fn name(&mut self, address: IpAddr, now: Instant) -> Option<&Hostname> {
        let entry = self.names.get_mut(&number(address)?)?;
        entry.used = now;
        Some(&entry.name)
    }

    fn add(&mut self, name: &Hostname, now: Instant) -> Option<u32> {
        if self.names.len() >= MAX_NAMES {
            self.drop_oldest(now)?;
        }
        // Round and round, so that an address comes back as late as possible.
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
        if now.saturating_duration_since(entry.used) < KEPT {
            return None;
        }
        let number = *number;
        let entry = self.names.remove(&number)?;
        self.numbers.remove(&entry.name);
        Some(())
    }
}

/// The host number of an address in one of our ranges. An IPv6 socket shows IPv4 addresses as mapped ones.
fn number(address: IpAddr) -> Option<u32> {
    match address.to_canonical() {
        IpAddr::V4(four) => u32::from(four).checked_sub(FOUR).filter(|number| *number <= LAST),
        IpAddr::V6(six) => {
            let number = u128::from(six).checked_sub(SIX)?;
            u32::try_from(number).ok().filter(|number| *number <= LAST)
        }
    }
}
