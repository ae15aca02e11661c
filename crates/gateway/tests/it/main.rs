//! Tests of the gateway with real sockets and streams and a small service.

#![forbid(unsafe_code)]

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod boxes;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod client;
#[cfg(test)]
mod console;
#[cfg(test)]
mod devices;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod events;
#[cfg(test)]
mod execs;
#[cfg(test)]
mod files;
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
mod oidc;
#[cfg(test)]
mod pauses;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod provider;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod run;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod schemathesis;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod serve_attacks;
#[cfg(test)]
mod server;
#[cfg(test)]
mod socket;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod users;
#[cfg(test)]
mod verifier;
#[cfg(test)]
mod webhooks;
