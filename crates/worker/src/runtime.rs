//! The JavaScript runtime inside a box: it creates one context, runs one job and exits.
//!
//! The runtime is not a security boundary. The box around this process decides which files and hosts
//! a program can reach, so the runtime hides nothing from the program, and the host trusts no
//! behavior of the runtime.

pub mod alive;
pub mod bridge;
pub(crate) mod events;
pub mod http;
pub mod strip;
pub mod web;

mod builtin;
mod calls;
mod context;
mod errors;
mod files;
pub(crate) mod glob;
mod host;
mod modules;
mod natives;
mod program;
mod run;
mod streams;
mod timers;

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec};

use belljar_wire::{self as wire, FromWorker, HttpServerJob, Job, ModelJob, ProgramResult, Stream};

use self::context::Engine;
use self::host::Host;
use crate::model;

/// The IP address of the broker, to which all HTTP requests are sent. The box redirects every
/// address to its broker.
///
/// 192.0.2.1 is reserved for documentation (RFC 5737), so no real host has it.
const BROKER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The workspace in the box.
const WORKSPACE: &str = "/workspace";
/// The program of this process, which the box need not have as a file.
const WORKER: &str = "/proc/self/exe";

/// Runs a worker: reports that it is ready, reads one job, runs the job and exits the process.
pub fn work(env: Vec<(String, String)>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let host = Rc::new(Host::new(env));
        let engine = Engine::new(Rc::clone(&host)).await.map_err(io::Error::other)?;
        host.send(&FromWorker::Ready)?;
        if no_job_is_waiting() {
            // An error is ignored here: it occurs again where the program uses the feature.
            drop(engine.context.with(|ctx| web::warm(&ctx)).await);
        }
        // A separate statement, because a `match` on it would keep stdin locked.
        let job = wire::read::<Job>(&mut io::stdin().lock()).map_err(io::Error::other)?;
        match job {
            None => quit(0),
            Some(Job::Script(script)) => {
                let done = run::script(&engine, script).await;
                finish(&host, done)
            }
            Some(Job::Program(program)) => {
                let (code, message) = program::exec(&program);
                writeln!(io::stderr(), "{message}")?;
                quit(code)
            }
            Some(Job::Bridge(server)) => {
                quit(if run_bridge(&server).await.is_ok() { 0 } else { 70 })
            }
            Some(Job::Model(job)) => {
                let done = ask_model(&host, &job).await;
                finish(&host, done)
            }
        }
    })
}

/// Returns whether the host has not sent a job yet, without blocking.
fn no_job_is_waiting() -> bool {
    let input = io::stdin();
    let mut waited = [PollFd::new(&input, PollFlags::IN)];
    rustix::event::poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
}

async fn run_bridge(server: &HttpServerJob) -> io::Result<()> {
    let input = tokio::io::BufReader::new(streams::Input::start()?);
    bridge::run(BROKER, server, input, streams::Output).await
}

/// Asks a language model. Each failed try and each call of a tool is a line of standard error.
async fn ask_model(host: &Host, job: &ModelJob) -> ProgramResult {
    let report = |line: &str| {
        // Without the host, sending the result fails too.
        host.output(Stream::Stderr, &format!("{line}\n")).ok();
    };
    let tools = model::ToolPlaces { workspace: WORKSPACE.into(), worker: WORKER.into() };
    let around = model::Surroundings { broker: BROKER, env: &host.env, tools: &tools };
    model::result(model::ask(&around, job, &model::Limits::default(), &report).await)
}

/// Sends the result of the program to the host and exits the process.
fn finish(host: &Host, done: ProgramResult) -> ! {
    let sent = host.send(&FromWorker::Done(done)).and_then(|()| io::stdout().flush());
    quit(if sent.is_ok() { 0 } else { 70 })
}

/// Exits the process without freeing the JavaScript heap.
#[expect(clippy::exit, reason = "the process has one job, and the kernel frees its memory")]
fn quit(code: i32) -> ! {
    std::process::exit(code)
}
