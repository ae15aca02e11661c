//! Tests of the gateway with real sockets and streams and a small service.

#![forbid(unsafe_code)]

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod client;
#[cfg(test)]
mod http;
#[cfg(test)]
mod server;
#[cfg(test)]
mod streams;
