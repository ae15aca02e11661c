//! TLS on both sides of the broker: the client's hello, the certificates for the box, and the
//! verification of upstreams.
//!
//! No socket is opened here. For the box, the broker is a server whose certificates are signed by
//! an [`Authority`] that exists in memory and for one box only. For upstreams, the broker is a
//! client that always verifies ([`Upstream`]).
//!
//! **Invariant:** nothing that a box sends influences how an upstream is verified.

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
