//! The supervisor of a tool server: a program in a box, or a worker in a box that speaks to a server by HTTP.
//!
//! Lines of JSON-RPC go between the box and two pipes of the client. Standard error of the box goes to
//! standard error of this process, from which the client reads the end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::Context as _;
use belljar_box::Stream;
use belljar_model::Purpose;
use belljar_wire::{self as wire, FrameDecoder, FromWorker, HttpServerJob, Job};

use super::connection::{receive_small, send};
use super::protocol::{FromSupervisor, ToSupervisor};
use super::session::end_gently;
use super::spec::{Rules, SecretHeader, ToolServerBox, ToolServerTransport};
use super::worker_program;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::{self, LaunchSpec, Launched, Streams};
use crate::logging;
use crate::network;
use crate::notice::Notice;
use crate::scope::Scoped;

/// Starts a tool server, reports that to the client, and supervises the server until it ends.
pub(super) fn supervise(
    state: &Scoped,
    connection: &UnixStream,
    of: ToolServerBox,
    [input, output]: [OwnedFd; 2],
) -> Result<(), EngineError> {
    let ToolServerBox { name, rules, transport } = of;
    let Rules { template, sources, network, remarks } = rules;
    let id = state.new_id()?;
    let mark = state.store().mark_call(id.0).kind(ErrorKind::CannotStart)?;
    let argv: Vec<OsString> = match &transport {
        ToolServerTransport::Program(argv) => argv.iter().map(OsString::from).collect(),
        ToolServerTransport::Http { url, .. } => vec!["belljar-bridge".into(), url.into()],
    };
    let mut spec = LaunchSpec::new(id, Purpose::ToolServer, template, argv);
    if let ToolServerTransport::Http { .. } = &transport {
        spec.recorded_argv = Some(vec![format!("bridge {name}")]);
        spec.worker = Some(worker_program().kind(ErrorKind::CannotStart)?);
    } else {
        spec.output_dir = Some(state.store().layout().calls());
    }
    spec.network = network.map(|network| network.open(state)).transpose()?;
    (spec.sources, spec.remarks) = (sources, remarks);
    let launched = launch::launch(state, spec)?;
    let _entered = launched.span().entered();
    let (input, mut lines) =
        match input_of(transport, &launched, input).kind(ErrorKind::CannotStart) {
            Ok(made) => made,
            Err(failure) => {
                launched.abandon(&failure);
                return Err(failure);
            }
        };
    let ready = FromSupervisor::Ready { run: launched.id(), remarks: Vec::new() };
    send(connection, &ready).ok(); // a client that is gone ends the server, see below
    end_with(connection).kind(ErrorKind::CannotStart)?;
    let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| match stream {
        Stream::Output => lines.pass(chunk, kept),
        Stream::Error => kept.extend_from_slice(chunk),
    };
    let stderr = io::stderr();
    let streams = Streams {
        input: input.as_fd(),
        output: output.as_fd(),
        error: stderr.as_fd(),
        filter: &mut filter,
        stop: None,
    };
    let mut ended = launched.supervise(state, streams, || ())?;
    if let Some(error) = &ended.finished.exec_error {
        let sentence = ended.finished.reason.sentence();
        state.notice(&Notice::Failed(format!("{sentence}: {error}")));
    }
    let result = ended.result(None);
    ended.record(state, &result, None);
    drop((ended.teardown, mark));
    ended.network_summary.iter().for_each(|summary| network::report(state, summary));
    Ok(())
}

/// Ends the tool server when the client disconnects or asks for its end, on a thread of its own.
fn end_with(connection: &UnixStream) -> anyhow::Result<()> {
    let connection = connection.try_clone().context("cannot share the connection")?;
    logging::spawn(move || {
        match receive_small::<ToSupervisor>(&connection) {
            Ok(Some(message)) => {
                tracing::debug!(request = message.name(), "client ends the server");
            }
            Ok(None) | Err(_) => tracing::debug!("client disconnected"),
        }
        end_gently();
    });
    Ok(())
}

/// The input of the box, and the decoder of its output.
fn input_of(
    transport: ToolServerTransport,
    launched: &Launched,
    input: OwnedFd,
) -> anyhow::Result<(OwnedFd, Lines)> {
    match transport {
        ToolServerTransport::Program(_) => Ok((input, Lines::Plain)),
        ToolServerTransport::Http { url, headers } => {
            let headers = filled(headers, launched.environment());
            let job = Job::Bridge(HttpServerJob { url, headers });
            Ok((feed(job, input)?, Lines::AfterReady(FrameDecoder::default())))
        }
    }
}

/// Headers with the placeholders of their secrets.
fn filled(headers: Vec<SecretHeader>, env: &[(OsString, OsString)]) -> Vec<(String, String)> {
    let header = |SecretHeader { name, prefix, variable }: SecretHeader| {
        let (_, value) = env.iter().find(|(known, _)| *known == *variable)?;
        Some((name, format!("{prefix}{}", value.to_string_lossy())))
    };
    headers.into_iter().filter_map(header).collect()
}

/// A pipe with the job first and then all lines of the client.
fn feed(job: Job, lines: OwnedFd) -> anyhow::Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    logging::spawn(move || {
        let mut to = File::from(write);
        // An error means that the worker is gone, which the main thread sees.
        wire::write(&mut to, &job).and_then(|()| io::copy(&mut File::from(lines), &mut to)).ok();
    });
    Ok(read)
}

/// The lines that a box writes.
enum Lines {
    /// All output.
    Plain,
    /// Output after the worker's one frame.
    AfterReady(FrameDecoder),
}

impl Lines {
    fn pass(&mut self, chunk: &[u8], kept: &mut Vec<u8>) {
        match self {
            Self::Plain => kept.extend_from_slice(chunk),
            Self::AfterReady(decoder) => {
                decoder.push(chunk);
                if let Ok(Some(FromWorker::Ready)) = decoder.take() {
                    kept.extend(decoder.rest());
                    *self = Self::Plain;
                }
            }
        }
    }
}
