//! The network broker: the only network path out of a box. The rules decide about every request,
//! the vault adds credentials, and the proxy forwards the traffic.

#![forbid(unsafe_code)]

mod active;
pub mod address;
mod ask;
mod broker;
pub mod client;
mod connection;
pub mod dns;
mod events;
mod http;
mod lease;
#[cfg(test)]
mod live;
mod marks;
pub mod meter;
pub mod record;
pub mod rules;
pub mod scrub;
pub mod serve;
pub mod setup;
mod stream;
pub mod target;
mod tcp;
pub mod tls;
mod upstream;
pub mod vault;

pub use broker::{Materials, PrepareError, Prepared, prepare};
