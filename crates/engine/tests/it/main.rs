//! The engine as a library: real boxes, real processes, a real state directory, no command line.
//!
//! `BELLJAR_TEST_ROOT` names where the directories of tests are made. The same tests run as root and
//! as a plain user, since a box is built in different ways for the two.

#![forbid(unsafe_code)]

#[cfg(test)]
mod bench;
#[cfg(test)]
mod clones;
#[cfg(test)]
mod config;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod network;
#[cfg(test)]
mod run;
#[cfg(test)]
mod runs;
