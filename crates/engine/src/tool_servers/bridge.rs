//! A tool server that is reached by HTTP: a worker in a box speaks to it, and lines of MCP go in and out.
//!
//! The box reaches that server and nothing else, through a broker that holds the credentials.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context as _, anyhow};
use belljar_box::Stream;
use belljar_model::code::{McpServer, ServerName, Transport};
use belljar_model::net::{Allow, SecretDecl, Slot};
use belljar_model::{Config, Net, Purpose, RunResult, Template};
use belljar_sys::signal::{SUPERVISED, SignalFd};
use belljar_wire::{self as wire, FrameDecoder, FromWorker, HttpServerJob, Job};

use crate::cell;
use crate::config;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::launch::{self, LaunchSpec, Streams};
use crate::network::{self, Outlet};
use crate::scope::Scoped;

/// The streams that lines of MCP come from and go to.
#[derive(Debug)]
pub struct Lines<'a> {
    pub input: OwnedFd,
    pub output: BorrowedFd<'a>,
    pub error: BorrowedFd<'a>,
}

/// Connects the streams with a declared server until one side ends.
pub fn run(state: &Scoped, name: &ServerName, lines: Lines<'_>) -> Result<RunResult, EngineError> {
    let (config, sources) = state.load_config(None)?;
    let server = config.servers().get(name);
    let server = server.ok_or_else(|| invalid(format!("there is no `[mcp.{name}]`")))?;
    let Transport::Url(url) = &server.transport else {
        return Err(invalid(format!("`[mcp.{name}]` is not reached by HTTP")));
    };
    let template = template(&config, server)?;
    let outlet = Outlet::of(&template, &config, state)?;
    let outlet = outlet.context("a server without a network").kind(ErrorKind::Broken)?;
    let id = state.new_id()?;
    let mark = state.store().mark_call(id.0).kind(ErrorKind::CannotStart)?;
    let argv = vec!["belljar-bridge".into(), url.to_string().into()];
    let mut spec = LaunchSpec::new(id, Purpose::ToolServer, template, argv);
    spec.shown = Some(vec![format!("bridge {name}")]);
    spec.worker = Some(cell::worker().kind(ErrorKind::CannotStart)?);
    (spec.sources, spec.network) = (sources, Some(outlet));
    let launched = launch::launch(state, spec)?;
    let headers = headers(&config, server, launched.environment());
    let job = Job::Bridge(HttpServerJob { url: url.to_string(), headers });
    let input = match feed(job, lines.input).kind(ErrorKind::CannotStart) {
        Ok(input) => input,
        Err(failure) => {
            launched.abandon(&failure);
            return Err(failure);
        }
    };
    let mut unframed = Unframed::default();
    let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| match stream {
        Stream::Output => unframed.pass(chunk, kept),
        // Whoever started us shows it, sanitised.
        Stream::Error => kept.extend_from_slice(chunk),
    };
    let streams = Streams {
        input: input.as_fd(),
        output: lines.output,
        error: lines.error,
        filter: &mut filter,
        stop: None,
    };
    let mut ended = launched.supervise(state, streams, || ())?;
    let result = ended.result(None);
    ended.record(state, &result, None);
    drop((ended.remains, mark));
    ended.account.iter().for_each(|account| network::report(state, account));
    Ok(result)
}

/// A box that reaches the server and nothing else, for as long as it is wanted.
fn template(config: &Config, server: &McpServer) -> Result<Template, EngineError> {
    let mut template = match &server.template {
        Some(name) => config::template(config, name)?,
        None => Template::default(),
    };
    template.net = Net::Restricted;
    template.limits.timeout = None;
    template.allow.extend(server.allow.iter().cloned());
    template.secrets.extend(server.secrets.iter().cloned());
    if let (Transport::Url(url), true) = (&server.transport, server.allow.is_empty()) {
        let rule = format!("GET,POST,DELETE {url}");
        let rule: Allow =
            rule.parse().map_err(|error| anyhow!("`url`: {error}")).kind(ErrorKind::Invalid)?;
        template.allow.push(rule);
    }
    Ok(template)
}

/// The placeholders of its secrets, each in the header that is its slot.
fn headers(
    config: &Config,
    server: &McpServer,
    env: &[(OsString, OsString)],
) -> Vec<(String, String)> {
    let value = |secret: &SecretDecl| {
        let name = secret.env.as_deref()?;
        let (_, value) = env.iter().find(|(known, _)| known == name)?;
        Some(value.to_string_lossy().into_owned())
    };
    let header = |secret: &SecretDecl| {
        secret.slots.iter().find_map(|slot| match slot {
            Slot::Header(name) if name == "authorization" => {
                Some((name.clone(), format!("Bearer {}", value(secret)?)))
            }
            Slot::Header(name) => Some((name.clone(), value(secret)?)),
            Slot::Basic | Slot::Query(_) | Slot::Json(_) => None,
        })
    };
    server.secrets.iter().filter_map(|name| config.secret(name)).filter_map(header).collect()
}

/// A pipe with the job and then all lines.
fn feed(job: Job, lines: OwnedFd) -> anyhow::Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::spawn(move || {
        let _signals = SignalFd::new(&SUPERVISED); // the main thread's
        let mut to = File::from(write);
        // Whoever does not read any more is gone, which the main thread sees.
        wire::write(&mut to, &job).and_then(|()| io::copy(&mut File::from(lines), &mut to)).ok();
    });
    Ok(read)
}

/// What comes behind the worker's one frame.
#[derive(Default)]
struct Unframed {
    cutter: FrameDecoder,
    is_open: bool,
}

impl Unframed {
    fn pass(&mut self, chunk: &[u8], kept: &mut Vec<u8>) {
        if self.is_open {
            return kept.extend_from_slice(chunk);
        }
        self.cutter.push(chunk);
        if let Ok(Some(FromWorker::Ready)) = self.cutter.take() {
            self.is_open = true;
            kept.extend(self.cutter.rest());
        }
    }
}
