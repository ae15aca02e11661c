//! Parses the parts of a request into one canonical spelling.
//!
//! A request that two programs could read differently is refused before any rule is evaluated: a
//! path that changes when it is normalised (A24), a host that is given twice (A13, A25), ambiguous
//! framing (A23), or an overridden method (A26).

mod authority;
mod headers;
mod path;

pub use authority::{Misdirected, authority};
pub use headers::{BadHeader, headers, is_method_override, strip_hop_by_hop, strip_overrides};
pub use path::{Ambiguous, CanonicalPath, QueryOverride, query_override};
