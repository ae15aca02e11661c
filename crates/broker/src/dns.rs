//! The only DNS server that a box can reach, and the broker's own resolver.
//!
//! No query leaves the machine: an allowed name gets an address of the broker's own ranges
//! ([`Pool`]), and every other name does not exist. So a box cannot leak data in queries, and a
//! dialled address only identifies the name that was resolved. The broker alone resolves the real
//! address, once per connection and after the rules allowed the connection ([`Resolver`]).
//!
//! **Invariant:** an answer depends on the rules only, never on another DNS server.

mod limiter;
mod pool;
mod query;
mod resolver;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use belljar_model::net::Hostname;

pub use limiter::{Limiter, Note};
pub use pool::{Pool, TTL};
pub use query::Kind;
pub use resolver::{ResolveError, Resolver, ResolverConf};

use crate::rules::{Denial, Rules};
use query::{Code, Question};

/// The reply to a DNS query, with the decision of the rules.
#[derive(Debug)]
pub struct Answer {
    /// The whole DNS reply, at most 512 bytes, so that it fits into every datagram. `None` if the
    /// message was not a query.
    pub reply: Option<Vec<u8>>,
    pub decided: Decided,
}

#[derive(Debug)]
pub enum Decided {
    /// A rule allows the box to resolve the name. Queries for other record types than addresses get
    /// an empty answer.
    Allowed { name: Hostname, kind: Kind, rule: String },
    /// No rule allows the name, so it does not exist for this box.
    Denied { name: Hostname, kind: Kind, denial: Denial },
    /// The queried text is not a valid host name, so no rule can allow it. `asked` is safe to
    /// display.
    NoHostName { asked: String, kind: Kind },
    /// The query was answered without the rules: `localhost`, or a reverse lookup, which never
    /// finds a name.
    Local,
    /// A malformed query.
    Malformed,
}

/// Answers one DNS query of a box according to the rules.
pub fn answer(message: &[u8], rules: &Rules, pool: &mut Pool, now: Instant) -> Answer {
    let question = match query::parse(message) {
        Ok(question) => question,
        Err(reply) => return Answer { reply, decided: Decided::Malformed },
    };
    let (answer, decided) = decide(&question, rules, pool, now);
    let reply = match answer {
        Reply::Address(address) => question.reply(Code::NoError, Some((address, TTL))),
        Reply::Empty => question.reply(Code::NoError, None),
        Reply::Error(code) => question.reply(code, None),
    };
    Answer { reply: Some(reply), decided }
}

enum Reply {
    Address(IpAddr),
    Empty,
    Error(Code),
}

fn decide(
    question: &Question<'_>,
    rules: &Rules,
    pool: &mut Pool,
    now: Instant,
) -> (Reply, Decided) {
    let kind = question.kind();
    let Some(name) = question.name() else {
        // The root exists. A denial of the root would deny every name (RFC 8020).
        if question.is_root() {
            return (Reply::Error(Code::Refused), Decided::Local);
        }
        let decided = Decided::NoHostName { asked: question.display(), kind };
        return (Reply::Error(Code::NoName), decided);
    };
    if name.is_within("localhost") {
        return (address(kind, Ipv4Addr::LOCALHOST, Some(Ipv6Addr::LOCALHOST)), Decided::Local);
    }
    if name.is_within("arpa") {
        return (Reply::Error(Code::NoName), Decided::Local);
    }
    match rules.name(&name) {
        Ok(permit) => {
            let answer = match pool.assign(&name, now) {
                Some((ipv4, ipv6)) => address(kind, ipv4, ipv6),
                None => Reply::Error(Code::ServerFailure),
            };
            let rule = permit.rule().to_owned();
            (answer, Decided::Allowed { name, kind, rule })
        }
        Err(denial) => (Reply::Error(Code::NoName), Decided::Denied { name, kind, denial }),
    }
}

fn address(kind: Kind, ipv4: Ipv4Addr, ipv6: Option<Ipv6Addr>) -> Reply {
    match (kind, ipv6) {
        (Kind::A, _) => Reply::Address(ipv4.into()),
        (Kind::Aaaa, Some(ipv6)) => Reply::Address(ipv6.into()),
        _ => Reply::Empty,
    }
}

/// Returns a DNS reply with its length prefix, for TCP.
pub fn frame(reply: &[u8]) -> Vec<u8> {
    // No reply of the broker is longer than a datagram.
    let length = u16::try_from(reply.len()).unwrap_or(u16::MAX);
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend(reply.iter().take(length.into()));
    framed
}

#[cfg(test)]
mod tests;
