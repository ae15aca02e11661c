//! What a request is about, spelled in one way only.
//!
//! Whatever two programs could read differently is refused before any rule is asked: a path that
//! changes when it is normalised (A24), a host that is told twice (A13, A25), framing that is told
//! twice (A23), a method that is overridden (A26).

mod authority;
mod headers;
mod path;

pub use authority::{Misdirected, authority};
pub use headers::{BadHeader, headers, is_method_override, strip_hop_by_hop, strip_overrides};
pub use path::{Ambiguous, CanonicalPath, QueryOverride, query_override};
