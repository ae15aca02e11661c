//! The diagnostic log, which is off unless the environment variable `BELLJAR_LOG` is set.
//!
//! The value of `BELLJAR_LOG` is a level such as `debug`, optionally followed by `,json`. Log lines are
//! written to standard error. If `BELLJAR_LOG_DIR` is set, each process writes to its own file in that
//! directory, and the size of the file is limited. Only messages of Belljar's own crates are logged.

mod file;

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::host::HostEnv;
use belljar_engine::logging;
use belljar_engine::roles::Role;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

use file::{LogFile, MAX_FILE_SIZE, WhenFull};

/// The name of the environment variable that sets the log level and the format of the lines.
const LOG_VARIABLE: &str = "BELLJAR_LOG";
/// The name of the environment variable that sets the directory of the log files.
const DIRECTORY_VARIABLE: &str = "BELLJAR_LOG_DIR";

/// The prefix of the tracing targets that are logged: the names of Belljar's own crates.
///
/// Libraries such as hyper and rmcp trace whole messages, with headers, bodies and arguments. Their
/// messages are dropped at every level.
const TARGET_PREFIX: &str = "belljar";

/// The last line of a text log that has reached its size limit.
const END_LINE_TEXT: &str = "WARN the log ends here: it has reached its size limit\n";
/// The last line of a JSON log that has reached its size limit.
const END_LINE_JSON: &str =
    "{\"level\":\"WARN\",\"message\":\"the log ends here: it has reached its size limit\"}\n";

/// The level and the line format that `BELLJAR_LOG` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    level: LevelFilter,
    is_json: bool,
}

/// Starts the log of this process if `BELLJAR_LOG` is set.
///
/// A helper process, which has a role, cannot report errors at this point. If its log cannot be
/// started, the helper process continues without a log.
pub(crate) fn start(host: &HostEnv, role: Option<Role>) -> Result<(), EngineError> {
    let result = install(host, role);
    if role.is_some() { Ok(()) } else { result }
}

/// Installs the global log subscriber that the environment variables describe.
fn install(host: &HostEnv, role: Option<Role>) -> Result<(), EngineError> {
    let Some(value) = host.variable(LOG_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let format = parse(value)?;
    let dir = host.variable(DIRECTORY_VARIABLE).filter(|dir| !dir.is_empty()).map(Path::new);
    let mut variables = vec![(LOG_VARIABLE, value.to_owned())];
    match dir {
        Some(dir) => {
            let file = open(dir, role, format)?;
            variables.push((DIRECTORY_VARIABLE, dir.into()));
            subscribe(format, file);
        }
        None => subscribe(format, std::io::stderr),
    }
    logging::set_variables(variables);
    Ok(())
}

/// Parses the value of `BELLJAR_LOG`.
fn parse(value: &OsStr) -> Result<Format, EngineError> {
    let invalid_value = || {
        invalid(format!(
            "{LOG_VARIABLE} has the invalid value {value:?}; use error, warn, info, debug or trace, optionally followed by `,json`"
        ))
    };
    let text = value.to_str().ok_or_else(invalid_value)?;
    let (level, is_json) = match text.split_once(',') {
        None => (text, false),
        Some((level, "json")) => (level, true),
        Some(_) => return Err(invalid_value()),
    };
    let level = match level {
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return Err(invalid_value()),
    };
    Ok(Format { level, is_json })
}

/// Opens the log file of this process, before the process is locked down and cannot open files.
fn open(dir: &Path, role: Option<Role>, format: Format) -> Result<LogFile, EngineError> {
    if !dir.is_absolute() {
        return Err(invalid(format!(
            "{DIRECTORY_VARIABLE} must be an absolute path, not {}",
            dir.display()
        )));
    }
    let process = role.map_or("command", Role::name);
    let path = dir.join(format!("{process}-{}.log", std::process::id()));
    let is_locked = matches!(role, Some(Role::Broker | Role::Screen));
    let when_full = match (is_locked, format.is_json) {
        (false, _) => WhenFull::Rotate,
        (true, false) => WhenFull::End(END_LINE_TEXT),
        (true, true) => WhenFull::End(END_LINE_JSON),
    };
    let opened = LogFile::open(path.clone(), MAX_FILE_SIZE, when_full);
    opened
        .with_context(|| {
            format!("cannot open the log file {} (from {DIRECTORY_VARIABLE})", path.display())
        })
        .kind(ErrorKind::Invalid)
}

/// Makes `writer` the destination of all log lines of this process.
fn subscribe<W>(format: Format, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let targets = Targets::new().with_target(TARGET_PREFIX, format.level);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let lines = match format.is_json {
        true => lines.json().flatten_event(true).with_current_span(false).boxed(),
        false => lines.boxed(),
    };
    // Fails only if a subscriber is already set; this call is the first one.
    tracing::subscriber::set_global_default(Registry::default().with(lines.with_filter(targets)))
        .ok();
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn log_variable_with_a_level_and_json_is_parsed() {
        let parsed = |text: &str| parse(OsStr::new(text)).ok();
        let format = |level, is_json| Some(Format { level, is_json });
        assert_eq!(parsed("error"), format(LevelFilter::ERROR, false));
        assert_eq!(parsed("trace,json"), format(LevelFilter::TRACE, true));
        for invalid_value in
            ["Trace", "off", "trace,", "trace,JSON", "json", "trace,json,json", " info"]
        {
            assert_eq!(parsed(invalid_value), None, "{invalid_value}");
        }
    }

    #[test]
    fn log_variable_with_an_invalid_value_gives_an_error_that_lists_the_values() {
        let error = parse(OsStr::new("loud")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        for part in ["BELLJAR_LOG", "error, warn, info, debug or trace", ",json", "loud"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// A log writer whose output the test can read.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_at_level_trace_omits_messages_of_libraries() {
        let buffer = SharedBuffer::default();
        let writer = buffer.clone();
        let targets = Targets::new().with_target(TARGET_PREFIX, LevelFilter::TRACE);
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let subscriber = Registry::default().with(lines.with_filter(targets));
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "rmcp::service", "a message of a library");
            tracing::error!(target: "hyper", "a message of a library");
            tracing::trace!(target: "belljar_engine::launch", "control");
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("control"), "{text}");
        assert!(!text.contains("library"), "{text}");
    }
}
