//! `belljar bridge`: lines of MCP on standard input and output to a server that is reached by HTTP.
//!
//! What speaks to that server is a worker in a box that reaches nothing else, through a broker that
//! holds its credentials. Other servers are started with this; people have no need for it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, anyhow};
use belljar_box::{Request, Stream, Supervision};
use belljar_model::code::{McpServer, ServerName, Transport};
use belljar_model::net::{Allow, SecretDecl, Slot};
use belljar_model::{Config, Net, Review, RunRecord, RunState, Template};
use belljar_wire::{self as wire, FrameDecoder, FromWorker, HttpServerJob, Job};

use crate::cell;
use crate::cli::Cli;
use crate::commands::run::{begin, environment, new_id, now, result};
use crate::config;
use crate::failure::{Code as _, FAILED, Failure, NO_BOX, Outcome, USAGE, usage};
use crate::outlet::{self, Outlet};
use crate::state::State;

pub(crate) fn run(cli: &Cli, name: &ServerName) -> Outcome {
    let state = State::open()?;
    let (config, sources) = config::load_with_sources(cli, None)?;
    let server = config.servers().get(name);
    let server = server.ok_or_else(|| usage(format!("there is no `[mcp.{name}]`")))?;
    let Transport::Url(url) = &server.transport else {
        return Err(usage(format!("`[mcp.{name}]` is not reached by HTTP")));
    };
    let template = template(&config, server)?;
    let outlet = Outlet::of(&template, &config, &state)?;
    let outside = outlet.context("a server without a network").code(FAILED)?.open().code(NO_BOX)?;
    let (id, random) = new_id()?;
    let mark = state.mark_call(id).code(NO_BOX)?;
    let mut env = environment(&template, id, false);
    let net = Some(outside.request(&mut env)?);
    let headers = headers(&config, server, &env);
    let request = Request {
        id,
        random,
        argv: vec!["belljar-bridge".into(), url.to_string().into()],
        program: Some(cell::worker().code(NO_BOX)?),
        env,
        workspace: None,
        home: None,
        files: Vec::new(),
        masks: Vec::new(),
        door: false,
        hidden: vec![state.home().to_owned()],
        net,
        terminal: None,
        now: now().as_secs(),
        template,
    };
    let record = RunRecord {
        id,
        name: None,
        created: id.millis(),
        workspace: None,
        mode: request.template.mode,
        argv: vec![format!("bridge {name}")],
        template: request.template.name.clone(),
        state: RunState::Running,
        review: Review::None,
        result: None,
    };
    let input = feed(Job::Bridge(HttpServerJob { url: url.to_string(), headers })).code(NO_BOX)?;
    let (running, journal) = begin(&state, &record, &sources, &request, Some(&outside))?;
    let (output, error) = (io::stdout(), io::stderr());
    let mut unframed = Unframed::default();
    let mut guard = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| match stream {
        Stream::Output => unframed.pass(chunk, kept),
        // Whoever started us shows it, sanitised.
        Stream::Error => kept.extend_from_slice(chunk),
    };
    let supervision = Supervision {
        input: input.as_fd(),
        output: output.as_fd(),
        error: error.as_fd(),
        guard: Some(&mut guard),
        disk: None,
        stop: None,
    };
    let (finished, _) =
        outlet::during(Some(&outside), journal.ledger(), id, || running.supervise(supervision));
    let (finished, remains) = finished.code(NO_BOX).inspect_err(|failure| {
        journal.failed(&failure.error).ok(); // the failure itself is what matters now
    })?;
    let result = result(&record, &request.template, finished, 0, None);
    journal.ended(&result, [None, None], None).context("record the end").code(FAILED)?;
    drop((remains, mark));
    Ok(result.exit_code())
}

/// A box that reaches the server and nothing else, for as long as it is wanted.
fn template(config: &Config, server: &McpServer) -> Result<Template, Failure> {
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
        let rule: Allow = rule.parse().map_err(|error| anyhow!("`url`: {error}")).code(USAGE)?;
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

/// A pipe with the job and then all of standard input.
fn feed(job: Job) -> anyhow::Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::spawn(move || {
        let _signals = belljar_sys::signal::SignalFd::new(&[1, 2, 3, 15, 28]); // the main thread's
        let mut to = File::from(write);
        // Whoever does not read any more is gone, which the main thread sees.
        wire::write(&mut to, &job).and_then(|()| io::copy(&mut io::stdin(), &mut to)).ok();
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
