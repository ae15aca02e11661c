//! Invalid arguments of all commands: the error names the argument, and the exit code is 2.

mod boxes;
mod code;
mod general;
mod ledger;
mod network;
mod review;
mod run;
mod settings;
