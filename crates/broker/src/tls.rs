//! TLS on both sides of the broker: what a box says first, the certificates it is shown, and what an upstream must prove.
//!
//! No socket is opened here. Toward the box we are a server whose certificates are signed by an [`Authority`] that exists
//! in memory and for one box only. Toward the world we are a client that always verifies ([`Upstream`]).
//!
//! **Invariant:** nothing that a box says has any say in how an upstream is verified.

mod authority;
mod hello;
mod jks;
mod roots;
mod upstream;

pub use authority::{Authority, AuthorityError, Scope};
pub use hello::{Hello, Peek};
pub use jks::trust_store;
pub use roots::{Roots, RootsError};
pub use upstream::{Upstream, UpstreamError};
