//! Converts thrown values to error reports with positions in the program's own source.

use rquickjs::{Coerced, Ctx, Object, Value};

use belljar_wire::ProgramError;

use super::host::Host;

/// The maximum length of an error message or a stack trace, in bytes.
const LONGEST: usize = 64 << 10;

/// The maximum number of nested causes in an error report.
const DEEPEST: usize = 5;

/// Returns the error report of a thrown value of any type.
pub(super) fn from_thrown<'js>(ctx: &Ctx<'js>, value: &Value<'js>, memory: u64) -> ProgramError {
    let Some(error) = value.as_object().filter(|object| object.is_error()) else {
        return non_error(ctx, value, memory);
    };
    let name = text(error, "name").unwrap_or_else(|| "Error".to_owned());
    let message = text(error, "message").unwrap_or_default();
    if name == "InternalError" && message == "out of memory" {
        return out_of_memory(memory);
    }
    let mut frames = frames(error);
    let (line, column) = frames.first().and_then(|frame| position(frame)).unzip();
    let mut full_message = message;
    let mut cause = error.get::<_, Option<Value<'js>>>("cause").ok().flatten();
    for _ in 0..DEEPEST {
        let Some(inner) = cause.take().filter(|cause| !cause.is_undefined() && !cause.is_null())
        else {
            break;
        };
        let summary = match inner.as_object().filter(|object| object.is_error()) {
            Some(error) => headline(error),
            None => shown(ctx, &inner),
        };
        full_message.push_str(&format!(" (cause: {summary})"));
        if let Some(error) = inner.as_object() {
            frames.push(format!("  [cause]: {summary}"));
            frames.extend(self::frames(error));
            cause = error.get::<_, Option<Value<'js>>>("cause").ok().flatten();
        }
    }
    let stack = (!frames.is_empty()).then(|| truncate(frames.join("\n")));
    ProgramError { name: truncate(name), message: truncate(full_message), stack, line, column }
}

/// Truncates a text so that it fits into a message frame.
fn truncate(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

fn headline(error: &Object<'_>) -> String {
    let name = text(error, "name").unwrap_or_else(|| "Error".to_owned());
    match text(error, "message").filter(|message| !message.is_empty()) {
        Some(message) => format!("{name}: {message}"),
        None => name,
    }
}

/// Returns the error report of a thrown value that is not an `Error`.
fn non_error<'js>(ctx: &Ctx<'js>, value: &Value<'js>, memory: u64) -> ProgramError {
    // When memory is exhausted, QuickJS cannot create an error and throws `null`.
    if value.is_null() && peak().is_some_and(|peak| peak > memory / 4 * 3) {
        return out_of_memory(memory);
    }
    simple("Error", &format!("{} was thrown", shown(ctx, value)))
}

/// Returns the peak resident memory of the process in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn shown<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    let json =
        || ctx.json_stringify(value.clone()).ok().flatten().and_then(|json| json.to_string().ok());
    let shown = if value.is_object() && !value.is_function() { json() } else { None };
    let shown = shown.or_else(|| value.get::<Coerced<String>>().ok().map(|text| text.0));
    // Clears an exception of the conversion itself.
    drop(ctx.catch());
    shown.unwrap_or_else(|| "a value that cannot be shown".to_owned())
}

fn out_of_memory(memory: u64) -> ProgramError {
    simple(
        "RangeError",
        &format!("out of memory: the limit of the program is {} MiB", memory >> 20),
    )
}

fn text(object: &Object<'_>, key: &str) -> Option<String> {
    object.get::<_, Option<Coerced<String>>>(key).ok().flatten().map(|text| text.0)
}

/// Returns the lines of an error's stack trace.
fn frames(error: &Object<'_>) -> Vec<String> {
    let stack = text(error, "stack").unwrap_or_default();
    stack.lines().filter(|line| line.starts_with("    at ")).map(str::to_owned).collect()
}

/// Returns the line and column at the end of a stack trace line.
fn position(frame: &str) -> Option<(u32, u32)> {
    let (_, line, column) = split(frame.trim_end_matches(')'))?;
    Some((line, column))
}

/// Splits a position `FILE:LINE:COLUMN` into its parts.
fn split(text: &str) -> Option<(&str, u32, u32)> {
    let mut parts = text.rsplitn(3, ':');
    let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some((file, line.parse().ok()?, column.parse().ok()?))
}

/// Returns the lines of a stack trace that belong to the program, with positions in its original
/// source.
pub(super) fn own_frames(host: &Host, stack: &str) -> String {
    let source_maps = host.source_maps.borrow();
    let mut out = String::new();
    for line in stack.lines() {
        let Some(frame) = line.strip_prefix("    at ") else { continue };
        let (function, at) = match frame.strip_suffix(')').and_then(|frame| frame.rsplit_once(" ("))
        {
            Some((function, at)) => (function, at),
            None => ("<anonymous>", frame),
        };
        let Some((file, line, column)) = split(at) else { continue };
        let Some(source_map) = source_maps.get(file) else { continue };
        let Some((line, column)) = source_map.origin(line, column) else { continue };
        match function {
            "<anonymous>" | "<eval>" => out.push_str(&format!("    at {file}:{line}:{column}\n")),
            _ => out.push_str(&format!("    at {function} ({file}:{line}:{column})\n")),
        }
    }
    out
}

/// Returns the position of an error as `FILE:LINE:COLUMN`.
pub(super) fn location(file: &str, error: &ProgramError) -> String {
    match (error.line, error.column) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
        _ => file.to_owned(),
    }
}

/// Returns an error report without a source position.
pub(super) fn simple(name: &str, message: &str) -> ProgramError {
    ProgramError {
        name: name.to_owned(),
        message: truncate(message.to_owned()),
        stack: None,
        line: None,
        column: None,
    }
}
