//! The only name server that a box can reach, and the broker's own way to ask the world's.
//!
//! A query never leaves the machine: a name that some rule allows gets an address of ours ([`Pool`]), every other does
//! not exist. So nothing can be said to the world by asking for names, and what a program dials says which name it
//! asked for, no more. Which real address stands behind a name is asked by the broker alone, once for a connection, after the rules
//! allowed it ([`Resolver`]).
//!
//! **Invariant:** whether and what is answered depends on the rules only, never on what another name server says.

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

/// What to send back, and what was decided.
#[derive(Debug)]
pub struct Answer {
    /// The whole message, at most 512 bytes, so that it fits into every datagram. None for what is no query at all.
    pub reply: Option<Vec<u8>>,
    pub decided: Decided,
}

#[derive(Debug)]
pub enum Decided {
    /// A rule allows the name. Other kinds than addresses get an empty answer.
    Allowed { name: Hostname, kind: Kind, rule: String },
    /// The name does not exist for this box.
    Denied { name: Hostname, kind: Kind, denial: Denial },
    /// Nothing that a host can be called, so no rule could allow it. `asked` is safe to show.
    NoHostName { asked: String, kind: Kind },
    /// Answered without asking the rules: `localhost`, or the name of an address, which none has.
    Local,
    /// Nothing that a resolver sends.
    Malformed,
}

/// Answers one query.
pub fn answer(message: &[u8], rules: &Rules, pool: &mut Pool, now: Instant) -> Answer {
    let question = match query::parse(message) {
        Ok(question) => question,
        Err(reply) => return Answer { reply, decided: Decided::Malformed },
    };
    let (said, decided) = decide(&question, rules, pool, now);
    let reply = match said {
        Said::Address(address) => question.reply(Code::NoError, Some((address, TTL))),
        Said::Nothing => question.reply(Code::NoError, None),
        Said::Not(code) => question.reply(code, None),
    };
    Answer { reply: Some(reply), decided }
}

enum Said {
    Address(IpAddr),
    Nothing,
    Not(Code),
}

fn decide(
    question: &Question<'_>,
    rules: &Rules,
    pool: &mut Pool,
    now: Instant,
) -> (Said, Decided) {
    let kind = question.kind();
    let Some(name) = question.name() else {
        // The root exists; to deny it would be to deny everything (RFC 8020).
        if question.is_root() {
            return (Said::Not(Code::Refused), Decided::Local);
        }
        let decided = Decided::NoHostName { asked: question.shown(), kind };
        return (Said::Not(Code::NoName), decided);
    };
    if name.is_within("localhost") {
        return (address(kind, Ipv4Addr::LOCALHOST, Some(Ipv6Addr::LOCALHOST)), Decided::Local);
    }
    if name.is_within("arpa") {
        return (Said::Not(Code::NoName), Decided::Local);
    }
    match rules.name(&name) {
        Ok(permit) => {
            let said = match pool.assign(&name, now) {
                Some((four, six)) => address(kind, four, six),
                None => Said::Not(Code::ServerFailure),
            };
            let rule = permit.rule().to_owned();
            (said, Decided::Allowed { name, kind, rule })
        }
        Err(denial) => (Said::Not(Code::NoName), Decided::Denied { name, kind, denial }),
    }
}

fn address(kind: Kind, four: Ipv4Addr, six: Option<Ipv6Addr>) -> Said {
    match (kind, six) {
        (Kind::A, _) => Said::Address(four.into()),
        (Kind::Aaaa, Some(six)) => Said::Address(six.into()),
        _ => Said::Nothing,
    }
}

/// A reply as it goes over TCP: its length, then itself.
pub fn frame(reply: &[u8]) -> Vec<u8> {
    // No reply of ours is longer than a datagram.
    let length = u16::try_from(reply.len()).unwrap_or(u16::MAX);
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend(reply.iter().take(length.into()));
    framed
}

#[cfg(test)]
mod tests;
