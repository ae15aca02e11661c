//! Syntax errors with their position in the source.

use oxc::allocator::Allocator;
use oxc::diagnostics::{Diagnostics, OxcDiagnostic};
use oxc::span::{SourceType, Span};

use belljar_wire::ProgramError;

use super::source_map;

/// A syntax error or an unsupported construct of a program, with its position.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: u32,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(span: Span, message: &str) -> Self {
        Self { at: span.start, message: message.to_owned() }
    }

    /// Converts the fault to an error that shows the source line.
    pub(super) fn into_error(self, source: &str, file: &str) -> ProgramError {
        let (line, column) = source_map::position(source, self.at);
        let text = source_map::line_text(source, line).unwrap_or_default();
        // A bundled program can have all its code on one line.
        let shown: String = text.chars().take(200).collect();
        let mark = " ".repeat(usize::try_from(column).unwrap_or(1).saturating_sub(1).min(200));
        ProgramError {
            name: "SyntaxError".to_owned(),
            message: self.message,
            stack: Some(format!("    at {file}:{line}:{column}\n\n{shown}\n{mark}^")),
            line: Some(line),
            column: Some(column),
        }
    }
}

/// Returns the first error that the parser reported.
pub(super) fn first(found: &Diagnostics, source: &str, file: &str) -> ProgramError {
    found.errors().next().map_or_else(
        || {
            Fault { at: 0, message: "the program cannot be parsed".to_owned() }
                .into_error(source, file)
        },
        |error| Fault { at: offset_of(error), message: message_of(error) }.into_error(source, file),
    )
}

/// Returns the first error that the parser reported for TypeScript code. Code that is valid with
/// JSX gets a hint about JSX.
pub(super) fn first_of_typescript(found: &Diagnostics, source: &str, file: &str) -> ProgramError {
    let arena = Allocator::default();
    let kind = SourceType::tsx().with_module(true);
    if source.contains("</") || source.contains("/>") {
        let with_jsx = super::parse(&arena, source, kind);
        if !with_jsx.diagnostics.has_errors() {
            let at = found.errors().next().map_or(0, offset_of);
            let message = "JSX is not supported: write the markup as a string, or call functions";
            return Fault { at, message: message.to_owned() }.into_error(source, file);
        }
    }
    first(found, source, file)
}

fn offset_of(error: &OxcDiagnostic) -> u32 {
    let label = error.labels.first();
    label.map_or(0, |label| label.offset())
}

fn message_of(error: &OxcDiagnostic) -> String {
    error
        .help
        .as_ref()
        .map_or_else(|| error.message.to_string(), |help| format!("{} ({help})", error.message))
}
