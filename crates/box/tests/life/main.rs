//! Boxes that live on: programs that join them, homes that outlast them, and what stays out of reach.
//!
//! As root and as a plain user the same tests run, since a box is built in different ways for the two.

#![forbid(unsafe_code)]

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod fixed;
#[cfg(test)]
mod guests;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod room;
