//! Converts TypeScript to JavaScript and keeps the source positions.
//!
//! Types are replaced by spaces of the same width, so all positions stay the same. Syntax that cannot
//! be erased (`enum`, `namespace`, parameter properties) is rewritten, with a source map. Small
//! insertions capture the result of a program. They are part of the source map, too.

mod edits;
mod exports;
mod fault;
mod lower;
mod members;
mod result;
mod source_map;
mod types;

use oxc::allocator::Allocator;
use oxc::ast::ast::Program;
use oxc::parser::{ParseOptions, Parser, ParserReturn};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;

use belljar_wire::{Dialect, ProgramError};

pub use self::source_map::SourceMap;

use self::edits::Edits;
use self::types::{Eraser, Symbols};

/// The converted JavaScript code and the source map to its original.
#[derive(Debug)]
pub struct Stripped {
    pub code: String,
    pub source_map: SourceMap,
}

/// Whether a file is the main program or an imported module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The file is the main program, whose result is captured.
    Main,
    /// An imported module.
    Module,
}

/// Removes the TypeScript types of a module.
pub fn strip(source: &str, dialect: Dialect, file: &str) -> Result<Stripped, ProgramError> {
    prepare(source, dialect, file, FileKind::Module)
}

/// Converts a TypeScript program or module to JavaScript and prepares it to run.
pub fn prepare(
    source: &str,
    dialect: Dialect,
    file: &str,
    kind: FileKind,
) -> Result<Stripped, ProgramError> {
    // A byte order mark would shift the columns of the first line.
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let arena = Allocator::default();
    if dialect == Dialect::Js {
        let parsed = parse(&arena, source, SourceType::mjs());
        if !parsed.diagnostics.has_errors() {
            let mut edits = Edits::new(source);
            if kind == FileKind::Main {
                result::capture(&parsed.program, &mut edits, None)
                    .map_err(|fault| fault.into_error(source, file))?;
            }
            return Ok(plain(source, edits));
        }
        // A JavaScript program that contains types is treated as TypeScript.
        let strip_types = Allocator::default();
        if parse(&strip_types, source, SourceType::ts().with_module(true)).diagnostics.has_errors()
        {
            return Err(fault::first(&parsed.diagnostics, source, file));
        }
    }
    let parsed = parse(&arena, source, SourceType::ts().with_module(true));
    if parsed.diagnostics.has_errors() {
        return Err(fault::first_of_typescript(&parsed.diagnostics, source, file));
    }
    strip_types(&parsed.program, source, file, kind)
}

fn strip_types(
    program: &Program<'_>,
    source: &str,
    file: &str,
    kind: FileKind,
) -> Result<Stripped, ProgramError> {
    let scoping = exports::needs_symbols(program)
        .then(|| SemanticBuilder::new().build(program).semantic.into_scoping());
    let symbols = Symbols { scoping: scoping.as_ref() };
    let into_error = |fault: fault::Fault| fault.into_error(source, file);
    let mut edits = Edits::new(source);
    let captured = match kind {
        FileKind::Main => {
            result::capture(program, &mut edits, Some(&symbols)).map_err(into_error)?
        }
        FileKind::Module => None,
    };
    let erased =
        Eraser::new(source, &mut edits, symbols, captured).erase(program).map_err(into_error)?;
    if erased { Ok(plain(source, edits)) } else { lower::lower(source, file, kind) }
}

fn plain(source: &str, edits: Edits<'_>) -> Stripped {
    let (code, insertions) = edits.apply();
    Stripped { code, source_map: SourceMap::new(source, insertions) }
}

fn parse<'a>(arena: &'a Allocator, source: &'a str, kind: SourceType) -> ParserReturn<'a> {
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    Parser::new(arena, source, kind).with_options(options).parse()
}
