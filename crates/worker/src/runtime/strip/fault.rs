//! What is wrong with a text, told with its line.

use oxc::allocator::Allocator;
use oxc::diagnostics::{Diagnostics, OxcDiagnostic};
use oxc::span::{SourceType, Span};

use belljar_wire::ProgramError;

use super::place;

/// Something in a text that cannot run.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: u32,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(span: Span, message: &str) -> Self {
        Self { at: span.start, message: message.to_owned() }
    }

    pub(super) fn told(&self, source: &str, file: &str) -> ProgramError {
        let (line, column) = place::place(source, self.at);
        let text = place::text(source, line).unwrap_or_default();
        // A line of a bundle can be all of it.
        let shown: String = text.chars().take(200).collect();
        let mark = " ".repeat(usize::try_from(column).unwrap_or(1).saturating_sub(1).min(200));
        ProgramError {
            name: "SyntaxError".to_owned(),
            message: self.message.clone(),
            stack: Some(format!("    at {file}:{line}:{column}\n\n{shown}\n{mark}^")),
            line: Some(line),
            column: Some(column),
        }
    }
}

/// The first of what a parser found.
pub(super) fn first(found: &Diagnostics, source: &str, file: &str) -> ProgramError {
    found.errors().next().map_or_else(
        || Fault { at: 0, message: "this is no program".to_owned() }.told(source, file),
        |error| Fault { at: place_of(error), message: message_of(error) }.told(source, file),
    )
}

/// The same for TypeScript, where the most common surprise is markup.
pub(super) fn of_types(found: &Diagnostics, source: &str, file: &str) -> ProgramError {
    let arena = Allocator::default();
    let kind = SourceType::tsx().with_module(true);
    if source.contains("</") || source.contains("/>") {
        let marked_up = super::parse(&arena, source, kind);
        if !marked_up.diagnostics.has_errors() {
            let at = found.errors().next().map_or(0, place_of);
            let message = "JSX is not supported: write the markup as a string, or call functions";
            return Fault { at, message: message.to_owned() }.told(source, file);
        }
    }
    first(found, source, file)
}

fn place_of(error: &OxcDiagnostic) -> u32 {
    let label = error.labels.first();
    label.map_or(0, |label| label.offset())
}

fn message_of(error: &OxcDiagnostic) -> String {
    error
        .help
        .as_ref()
        .map_or_else(|| error.message.to_string(), |help| format!("{} ({help})", error.message))
}
