//! Tests of the gateway with real sockets and streams and a small service.

#![forbid(unsafe_code)]

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod boxes;
#[cfg(test)]
mod client;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod events;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod http;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod pauses;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod schemathesis;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod serve_attacks;
#[cfg(test)]
mod server;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod verifier;
