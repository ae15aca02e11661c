//! Makes what the engine runs out of what a model wrote, with every position kept.
//!
//! Types that can be erased become spaces of the same width: nothing moves, so nothing has to be moved
//! back. What has no erasure (`enum`, `namespace`, parameter properties) is rewritten, and then a map
//! leads every position home. A program's result is caught by a few words that are put in; they are
//! in the same map.

mod edits;
mod exports;
mod fault;
mod lower;
mod members;
mod place;
mod result;
mod types;

use oxc::allocator::Allocator;
use oxc::ast::ast::Program;
use oxc::parser::{ParseOptions, Parser, ParserReturn};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;

use belljar_wire::{Dialect, ProgramError};

pub use self::place::Places;

use self::edits::Edits;
use self::types::{Eraser, Known};

/// What the engine runs, and the way back from it.
#[derive(Debug)]
pub struct Stripped {
    pub code: String,
    pub places: Places,
}

/// Which part a text plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The program itself, whose result is wanted.
    Main,
    /// Something that it imports.
    Module,
}

/// A module without its types.
pub fn strip(source: &str, dialect: Dialect, file: &str) -> Result<Stripped, ProgramError> {
    prepare(source, dialect, file, Part::Module)
}

/// A text as the engine runs it.
pub fn prepare(
    source: &str,
    dialect: Dialect,
    file: &str,
    part: Part,
) -> Result<Stripped, ProgramError> {
    // A mark of its encoding is no part of a program, and would be counted in the first line.
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let arena = Allocator::default();
    if dialect == Dialect::Js {
        let parsed = parse(&arena, source, SourceType::mjs());
        if !parsed.diagnostics.has_errors() {
            let mut edits = Edits::new(source);
            if part == Part::Main {
                result::catch(&parsed.program, &mut edits, None)
                    .map_err(|fault| fault.told(source, file))?;
            }
            return Ok(plain(source, edits));
        }
        // Who writes types into a program that is called JavaScript means them.
        let typed = Allocator::default();
        if parse(&typed, source, SourceType::ts().with_module(true)).diagnostics.has_errors() {
            return Err(fault::first(&parsed.diagnostics, source, file));
        }
    }
    let parsed = parse(&arena, source, SourceType::ts().with_module(true));
    if parsed.diagnostics.has_errors() {
        return Err(fault::of_types(&parsed.diagnostics, source, file));
    }
    typed(&parsed.program, source, file, part)
}

fn typed(
    program: &Program<'_>,
    source: &str,
    file: &str,
    part: Part,
) -> Result<Stripped, ProgramError> {
    let scoping = exports::need_names(program)
        .then(|| SemanticBuilder::new().build(program).semantic.into_scoping());
    let known = Known { scoping: scoping.as_ref() };
    let told = |fault: fault::Fault| fault.told(source, file);
    let mut edits = Edits::new(source);
    let caught = match part {
        Part::Main => result::catch(program, &mut edits, Some(&known)).map_err(told)?,
        Part::Module => None,
    };
    let erased = Eraser::new(source, &mut edits, known, caught).erase(program).map_err(told)?;
    if erased { Ok(plain(source, edits)) } else { lower::lower(source, file, part) }
}

fn plain(source: &str, edits: Edits<'_>) -> Stripped {
    let (code, put_in) = edits.apply();
    Stripped { code, places: Places::new(source, put_in) }
}

fn parse<'a>(arena: &'a Allocator, source: &'a str, kind: SourceType) -> ParserReturn<'a> {
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    Parser::new(arena, source, kind).with_options(options).parse()
}
