//! The only way out of a box: rules decide, the vault puts credentials in, the proxy carries.

#![forbid(unsafe_code)]

pub mod address;
mod ask;
mod broker;
mod connection;
pub mod dns;
mod events;
mod http;
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
mod underway;
mod upstream;
pub mod vault;

pub use broker::{Materials, PrepareError, Prepared, prepare};
