//! Tests of the gateway with real sockets and streams and a small service.

#![forbid(unsafe_code)]

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod client;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod http;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod serve_attacks;
#[cfg(test)]
mod server;
#[cfg(test)]
mod streams;
