//! The engine inside a box: one context, one job, and out.
//!
//! It is convenience, not a wall. What a program may do is decided by the box around this process; so
//! nothing here hides files, hosts or time from the program, and nothing the host relies on is here.

pub mod alive;
pub mod bridge;
pub mod http;
pub mod strip;
pub mod web;

mod builtin;
mod calls;
mod context;
mod files;
mod glob;
mod host;
mod modules;
mod natives;
mod program;
mod run;
mod streams;
mod timers;
mod trouble;

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec};

use belljar_wire::{self as wire, FromWorker, HttpServerJob, Job, ProgramResult};

use self::context::Engine;
use self::host::Host;

/// Every address leads to the broker of the box. This one belongs to nobody.
const DOOR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// What a worker does from its start to its end.
pub fn work(env: Vec<(String, String)>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let host = Rc::new(Host::new(env));
        let engine = Engine::new(Rc::clone(&host)).await.map_err(io::Error::other)?;
        host.say(&FromWorker::Ready)?;
        if nobody_waits() {
            // What fails here fails again where it is used, and is told there.
            drop(engine.context.with(|ctx| web::warm(&ctx)).await);
        }
        // Not within the match, which would keep the input to itself.
        let job = wire::read::<Job>(&mut io::stdin().lock()).map_err(io::Error::other)?;
        match job {
            None => quit(0),
            Some(Job::Script(script)) => {
                let done = run::script(&engine, script).await;
                leave(&host, done)
            }
            Some(Job::Program(program)) => {
                let (code, message) = program::become_it(&program);
                writeln!(io::stderr(), "{message}")?;
                quit(code)
            }
            Some(Job::Bridge(server)) => quit(if pass(&server).await.is_ok() { 0 } else { 70 }),
        }
    })
}

/// Whether there is no job yet.
fn nobody_waits() -> bool {
    let input = io::stdin();
    let mut waited = [PollFd::new(&input, PollFlags::IN)];
    rustix::event::poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
}

async fn pass(server: &HttpServerJob) -> io::Result<()> {
    let input = tokio::io::BufReader::new(streams::Input::start()?);
    bridge::run(DOOR, server, input, streams::Output).await
}

/// Says how it ended and is gone.
fn leave(host: &Host, done: ProgramResult) -> ! {
    let told = host.say(&FromWorker::Done(done)).and_then(|()| io::stdout().flush());
    quit(if told.is_ok() { 0 } else { 70 })
}

/// Is gone, without a walk through a heap that nobody needs any more.
#[expect(clippy::exit, reason = "the process has one job, and its memory goes with it")]
fn quit(code: i32) -> ! {
    std::process::exit(code)
}
