//! What is told of an error: in the words of the program, at its own lines.

use rquickjs::{Coerced, Ctx, Object, Value};

use belljar_wire::ProgramError;

use super::host::Host;

/// Of a message, and of a stack.
const LONGEST: usize = 64 << 10;

/// Causes of causes that are told.
const DEEPEST: usize = 5;

/// A thrown value, whatever it is.
pub(super) fn of<'js>(ctx: &Ctx<'js>, value: &Value<'js>, memory: u64) -> ProgramError {
    let Some(error) = value.as_object().filter(|object| object.is_error()) else {
        return thrown(ctx, value, memory);
    };
    let name = text(error, "name").unwrap_or_else(|| "Error".to_owned());
    let message = text(error, "message").unwrap_or_default();
    if name == "InternalError" && message == "out of memory" {
        return out_of_memory(memory);
    }
    let mut frames = frames(error);
    let (line, column) = frames.first().and_then(|frame| place(frame)).unzip();
    let mut whole = message;
    let mut cause = error.get::<_, Option<Value<'js>>>("cause").ok().flatten();
    for _ in 0..DEEPEST {
        let Some(inner) = cause.take().filter(|cause| !cause.is_undefined() && !cause.is_null())
        else {
            break;
        };
        let said = match inner.as_object().filter(|object| object.is_error()) {
            Some(error) => headline(error),
            None => shown(ctx, &inner),
        };
        whole.push_str(&format!(" (cause: {said})"));
        if let Some(error) = inner.as_object() {
            frames.push(format!("  [cause]: {said}"));
            frames.extend(self::frames(error));
            cause = error.get::<_, Option<Value<'js>>>("cause").ok().flatten();
        }
    }
    let stack = (!frames.is_empty()).then(|| cut(frames.join("\n")));
    ProgramError { name: cut(name), message: cut(whole), stack, line, column }
}

/// Not so long that it fits no frame.
fn cut(mut text: String) -> String {
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

/// Something that is no error.
fn thrown<'js>(ctx: &Ctx<'js>, value: &Value<'js>, memory: u64) -> ProgramError {
    // Without memory there is no error to throw, and the engine throws nothing.
    if value.is_null() && peak().is_some_and(|peak| peak > memory / 4 * 3) {
        return out_of_memory(memory);
    }
    plain("Error", &format!("{} was thrown", shown(ctx, value)))
}

/// The most that the process ever had in memory, in bytes.
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
    // What could not be shown left another error behind.
    drop(ctx.catch());
    shown.unwrap_or_else(|| "something".to_owned())
}

fn out_of_memory(memory: u64) -> ProgramError {
    plain("RangeError", &format!("out of memory: the program may use {} MiB", memory >> 20))
}

fn text(object: &Object<'_>, key: &str) -> Option<String> {
    object.get::<_, Option<Coerced<String>>>(key).ok().flatten().map(|text| text.0)
}

/// The lines of a stack that are frames, which are the program's own.
fn frames(error: &Object<'_>) -> Vec<String> {
    let stack = text(error, "stack").unwrap_or_default();
    stack.lines().filter(|line| line.starts_with("    at ")).map(str::to_owned).collect()
}

/// The position at the end of a frame.
fn place(frame: &str) -> Option<(u32, u32)> {
    let (_, line, column) = split(frame.trim_end_matches(')'))?;
    Some((line, column))
}

/// `FILE:LINE:COLUMN`.
fn split(text: &str) -> Option<(&str, u32, u32)> {
    let mut parts = text.rsplitn(3, ':');
    let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some((file, line.parse().ok()?, column.parse().ok()?))
}

/// The frames of the engine as the user knows them: only of texts that were written by somebody, each
/// at the place where it was written.
pub(super) fn own_frames(host: &Host, stack: &str) -> String {
    let places = host.places.borrow();
    let mut out = String::new();
    for line in stack.lines() {
        let Some(frame) = line.strip_prefix("    at ") else { continue };
        let (function, at) = match frame.strip_suffix(')').and_then(|frame| frame.rsplit_once(" ("))
        {
            Some((function, at)) => (function, at),
            None => ("<anonymous>", frame),
        };
        let Some((file, line, column)) = split(at) else { continue };
        let Some(places) = places.get(file) else { continue };
        let Some((line, column)) = places.origin(line, column) else { continue };
        match function {
            "<anonymous>" | "<eval>" => out.push_str(&format!("    at {file}:{line}:{column}\n")),
            _ => out.push_str(&format!("    at {function} ({file}:{line}:{column})\n")),
        }
    }
    out
}

/// Where something is wrong with a text.
pub(super) fn place_of(file: &str, trouble: &ProgramError) -> String {
    match (trouble.line, trouble.column) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
        _ => file.to_owned(),
    }
}

pub(super) fn plain(name: &str, message: &str) -> ProgramError {
    ProgramError {
        name: name.to_owned(),
        message: cut(message.to_owned()),
        stack: None,
        line: None,
        column: None,
    }
}
