//! The supervisor of a tool server, which is a program in a box, or a worker in a box that forwards
//! messages to a server over HTTP.
//!
//! Lines of JSON-RPC pass between the box and two pipes of the client. The box writes its standard error to
//! the standard error of the supervisor, which the client reads.

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

/// Starts a tool server in a box, reports the start to the client, and supervises the server until it ends.
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
    let connected = connect_streams(transport, &launched, input).kind(ErrorKind::CannotStart);
    let (input, mut output_filter) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            launched.abandon(&error);
            return Err(error);
        }
    };
    let ready = FromSupervisor::Ready { run: launched.id(), remarks: Vec::new() };
    send(connection, &ready).ok(); // if the client has exited, the next line ends the server
    end_on_disconnect(connection).kind(ErrorKind::CannotStart)?;
    let mut filter = |stream: Stream, chunk: &[u8], passed: &mut Vec<u8>| match stream {
        Stream::Output => output_filter.pass(chunk, passed),
        Stream::Error => passed.extend_from_slice(chunk),
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
    ended.record_or_notice(state, &result, None);
    drop((ended.teardown, mark));
    ended.network_summary.iter().for_each(|summary| network::report(state, summary));
    Ok(())
}

/// Starts a thread that ends the tool server when the client disconnects or sends any message.
fn end_on_disconnect(connection: &UnixStream) -> anyhow::Result<()> {
    let connection = connection.try_clone().context("cannot duplicate the connection")?;
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

/// Returns the input of the box, and the filter for its output. An HTTP bridge gets its job before the
/// lines of the client.
fn connect_streams(
    transport: ToolServerTransport,
    launched: &Launched,
    input: OwnedFd,
) -> anyhow::Result<(OwnedFd, OutputFilter)> {
    match transport {
        ToolServerTransport::Program(_) => Ok((input, OutputFilter::PassAll)),
        ToolServerTransport::Http { url, headers } => {
            let headers = fill_placeholders(headers, launched.environment());
            let job = Job::Bridge(HttpServerJob { url, headers });
            Ok((prepend_job(job, input)?, OutputFilter::AfterReady(FrameDecoder::default())))
        }
    }
}

/// Returns the names and values of headers, with the placeholders of their secrets from the box's
/// environment.
fn fill_placeholders(
    headers: Vec<SecretHeader>,
    env: &[(OsString, OsString)],
) -> Vec<(String, String)> {
    let header = |SecretHeader { name, prefix, variable }: SecretHeader| {
        let (_, value) = env.iter().find(|(key, _)| *key == *variable)?;
        Some((name, format!("{prefix}{}", value.to_string_lossy())))
    };
    headers.into_iter().filter_map(header).collect()
}

/// Returns the reading end of a pipe that delivers the job first, and then all lines of the client.
fn prepend_job(job: Job, lines: OwnedFd) -> anyhow::Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    logging::spawn(move || {
        let mut writer = File::from(write);
        let mut lines = File::from(lines);
        // An error means that the worker has exited, which the main thread notices.
        wire::write(&mut writer, &job).and_then(|()| io::copy(&mut lines, &mut writer)).ok();
    });
    Ok(read)
}

/// Selects the output of the box that is passed to the client.
enum OutputFilter {
    /// Passes all output.
    PassAll,
    /// Passes the output that follows the worker's frame [`FromWorker::Ready`].
    AfterReady(FrameDecoder),
}

impl OutputFilter {
    /// Appends the output in `chunk` that the client gets to `passed`.
    fn pass(&mut self, chunk: &[u8], passed: &mut Vec<u8>) {
        match self {
            Self::PassAll => passed.extend_from_slice(chunk),
            Self::AfterReady(decoder) => {
                decoder.push(chunk);
                if let Ok(Some(FromWorker::Ready)) = decoder.take() {
                    passed.extend(decoder.rest());
                    *self = Self::PassAll;
                }
            }
        }
    }
}
