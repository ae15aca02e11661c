//! Passes lines of JSON-RPC on to a server that is reached by HTTP.
