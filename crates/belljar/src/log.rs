//! The log: off unless `BELLJAR_LOG` is set, and only of our own crates.
//!
//! `BELLJAR_LOG` is a level, or a level and `,json`. Lines go to standard error, or with
//! `BELLJAR_LOG_DIR` to one file per process in that directory, of a bounded size.

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

use file::{LIMIT, LogFile, WhenFull};

/// The level, and how a line is written.
const LOG: &str = "BELLJAR_LOG";
/// The directory of the files.
const DIR: &str = "BELLJAR_LOG_DIR";

/// Targets that may write. Libraries such as hyper and rmcp trace whole messages, with headers,
/// bodies and arguments, so everything that is not ours is left out at every level. All of our crates
/// have names that begin like this.
const TARGETS: &str = "belljar";

/// The end of a log that is full, as text and as JSON.
const LAST_LINE: &str = "WARN the log ends here: it has reached its size limit\n";
const LAST_OBJECT: &str =
    "{\"level\":\"WARN\",\"message\":\"the log ends here: it has reached its size limit\"}\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    level: LevelFilter,
    is_json: bool,
}

/// Starts the log of this process, if the environment asks for one. Of the errors of a role nobody
/// would be told, so a role goes on without a log.
pub(crate) fn start(host: &HostEnv, role: Option<Role>) -> Result<(), EngineError> {
    let started = install(host, role);
    if role.is_some() { Ok(()) } else { started }
}

fn install(host: &HostEnv, role: Option<Role>) -> Result<(), EngineError> {
    let Some(value) = host.variable(LOG).filter(|value| !value.is_empty()) else { return Ok(()) };
    let format = parse(value)?;
    let dir = host.variable(DIR).filter(|dir| !dir.is_empty()).map(Path::new);
    let mut variables = vec![(LOG, value.to_owned())];
    match dir {
        Some(dir) => {
            let file = open(dir, role, format)?;
            variables.push((DIR, dir.into()));
            subscribe(format, file);
        }
        None => subscribe(format, std::io::stderr),
    }
    logging::set_variables(variables);
    Ok(())
}

fn parse(value: &OsStr) -> Result<Format, EngineError> {
    let wrong = || {
        invalid(format!(
            "{LOG}: one of error, warn, info, debug, trace, or one of them followed by `,json`; not {value:?}"
        ))
    };
    let text = value.to_str().ok_or_else(wrong)?;
    let (level, is_json) = match text.split_once(',') {
        None => (text, false),
        Some((level, "json")) => (level, true),
        Some(_) => return Err(wrong()),
    };
    let level = match level {
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return Err(wrong()),
    };
    Ok(Format { level, is_json })
}

/// Opens the file of this process before the process gives up the right to open files.
fn open(dir: &Path, role: Option<Role>, format: Format) -> Result<LogFile, EngineError> {
    if !dir.is_absolute() {
        return Err(invalid(format!("{DIR} must be an absolute path")));
    }
    let process = role.map_or("command", Role::name);
    let path = dir.join(format!("{process}-{}.log", std::process::id()));
    let is_locked = matches!(role, Some(Role::Broker | Role::Screen));
    let when_full = match (is_locked, format.is_json) {
        (false, _) => WhenFull::Rotate,
        (true, false) => WhenFull::End(LAST_LINE),
        (true, true) => WhenFull::End(LAST_OBJECT),
    };
    let opened = LogFile::open(path.clone(), LIMIT, when_full);
    opened.with_context(|| format!("{DIR}: open {}", path.display())).kind(ErrorKind::Invalid)
}

fn subscribe<W>(format: Format, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let targets = Targets::new().with_target(TARGETS, format.level);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let lines = match format.is_json {
        true => lines.json().flatten_event(true).with_current_span(false).boxed(),
        false => lines.boxed(),
    };
    // Refused only where there is a subscriber already, and this is the first.
    tracing::subscriber::set_global_default(Registry::default().with(lines.with_filter(targets)))
        .ok();
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn log_value_with_a_level_and_json_is_parsed() {
        let parsed = |text: &str| parse(OsStr::new(text)).ok();
        let format = |level, is_json| Some(Format { level, is_json });
        assert_eq!(parsed("error"), format(LevelFilter::ERROR, false));
        assert_eq!(parsed("trace,json"), format(LevelFilter::TRACE, true));
        for wrong in ["Trace", "off", "trace,", "trace,JSON", "json", "trace,json,json", " info"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn log_value_that_is_wrong_names_the_variable_and_the_values() {
        let error = parse(OsStr::new("loud")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        for part in ["BELLJAR_LOG", "error, warn, info, debug, trace", ",json", "loud"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_at_trace_leaves_out_the_targets_of_libraries() {
        let kept = Kept::default();
        let writer = kept.clone();
        let targets = Targets::new().with_target(TARGETS, LevelFilter::TRACE);
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let subscriber = Registry::default().with(lines.with_filter(targets));
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "rmcp::service", "a message of a library");
            tracing::error!(target: "hyper", "a message of a library");
            tracing::trace!(target: "belljar_engine::launch", "control");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("control"), "{text}");
        assert!(!text.contains("library"), "{text}");
    }
}
