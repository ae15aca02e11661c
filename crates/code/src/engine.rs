//! The engine inside a box: one context, one job, and out.
//!
//! It is convenience, not a wall. What a program may do is decided by the box around this process; so
//! nothing here hides files, hosts or time from the program, and nothing the host relies on is here.

pub mod alive;
pub mod bridge;
pub mod http;
pub mod web;

mod context;
mod host;
mod run;
mod timers;
mod trouble;

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use crate::wire::{self, Done, Job, Said};

use self::context::Engine;
use self::host::Host;

/// Every address leads to the broker of the box. This one belongs to nobody.
const DOOR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// What a worker does from its start to its end.
pub fn work() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let host = Rc::new(Host::default());
        let engine = Engine::new(Rc::clone(&host)).await.map_err(io::Error::other)?;
        host.say(&Said::Ready)?;
        match wire::read::<Job>(&mut io::stdin().lock()).map_err(io::Error::other)? {
            None => Ok(()),
            Some(Job::Script(script)) => {
                let done = run::script(&engine, script).await;
                leave(&host, done)
            }
            Some(Job::Program(_) | Job::Bridge(_)) => Err(io::ErrorKind::Unsupported.into()),
        }
    })
}

/// Says how it ended and is gone, without a walk through a heap that nobody needs any more.
#[expect(clippy::exit, reason = "the process has one job, and its memory goes with it")]
fn leave(host: &Host, done: Done) -> ! {
    let told = host.say(&Said::Done(done)).and_then(|()| io::stdout().flush());
    std::process::exit(if told.is_ok() { 0 } else { 70 })
}
