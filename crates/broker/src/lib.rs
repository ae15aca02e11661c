//! The only way out of a box: rules decide, the vault puts credentials in, the proxy carries.

#![forbid(unsafe_code)]

pub mod address;
pub mod dns;
pub mod record;
pub mod rules;
pub mod scrub;
pub mod target;
pub mod tls;
pub mod vault;
