//! The gateway from outside: real sockets, real streams, and a small service behind them.

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
