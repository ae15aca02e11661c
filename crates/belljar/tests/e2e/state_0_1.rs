//! State that version 0.1 left: nothing of it is lost, whatever changed in the program since.
//!
//! `tests/fixtures/state-0.1` holds one archive made as root and one made as a plain user (`make.sh`
//! there makes them again), and what the commands of version 0.1 printed about each. The state holds
//! absolute paths, so it is unpacked to a fixed directory, and a lock gives it to one test at a time.

mod boxes;
mod fixture;
mod kept;
mod printed;
mod reviews;
