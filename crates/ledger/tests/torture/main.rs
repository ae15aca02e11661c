//! Tests of the ledger under kills, faults, full disks, torn appends and manipulated files.
//!
//! Nothing is mocked: processes are killed, `strace` makes system calls fail, disks are really
//! full. A child process reports each acknowledged event on a pipe after its acknowledgement.
//! Afterwards a reader written only from `docs/ledger-format.md` looks for the event in the log.
//!
//! `BELLJAR_TORTURE=N` runs every random test N times as often.

#![expect(
    clippy::disallowed_methods,
    reason = "tests start themselves as child processes and pass the action in a variable"
)]

#[cfg(test)]
mod access;
#[cfg(test)]
mod child;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod live;
#[cfg(test)]
mod meddled;
#[cfg(test)]
mod mended;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod payloads;
#[cfg(test)]
mod tails;
