//! MCP over standard streams and HTTP: wire shapes and authentication.
//!
//! The only code that parses strangers' HTTP. What tools do is not its business: it asks a `Service`.

#![forbid(unsafe_code)]
