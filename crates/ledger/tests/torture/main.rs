//! The ledger under kills, faults, full disks, torn tails and meddling hands.
//!
//! Nothing is mocked: processes are killed, `strace` makes system calls fail, disks are really full.
//! What was acknowledged is written down by the process that was told so, on a pipe, after it was told;
//! afterwards a reader made from `docs/ledger-format.md` alone looks for it in the log.
//!
//! `BELLJAR_TORTURE=N` does everything that is random N times as often.

#![expect(
    clippy::disallowed_methods,
    reason = "tests start further processes of themselves and tell them what to do"
)]

#[cfg(test)]
mod child;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod live;
#[cfg(test)]
mod meddled;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod payloads;
#[cfg(test)]
mod tails;
