//! Rewrites TypeScript that cannot be erased, such as `enum`, and creates a source map.

use std::path::Path;

use oxc::allocator::Allocator;
use oxc::codegen::{Codegen, CodegenOptions};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;
use oxc::transformer::{TransformOptions, Transformer};

use belljar_wire::ProgramError;

use super::edits::Edits;
use super::source_map::{Lowered, SourceMap};
use super::{FileKind, Stripped, fault, parse, result};

/// Compiles TypeScript with constructs that cannot be erased, such as enums, to JavaScript.
pub(super) fn lower(source: &str, file: &str, kind: FileKind) -> Result<Stripped, ProgramError> {
    let arena = Allocator::default();
    let mut parsed = parse(&arena, source, SourceType::ts().with_module(true));
    if parsed.diagnostics.has_errors() {
        return Err(fault::first_of_typescript(&parsed.diagnostics, source, file));
    }
    let program = &mut parsed.program;
    let scoping =
        SemanticBuilder::new().with_enum_eval(true).build(program).semantic.into_scoping();
    let options = TransformOptions::default();
    let made =
        Transformer::new(&arena, Path::new(file), &options).build_with_scoping(scoping, program);
    if made.diagnostics.has_errors() {
        return Err(fault::first(&made.diagnostics, source, file));
    }
    let options =
        CodegenOptions { source_map_path: Some(file.into()), ..CodegenOptions::default() };
    let made = Codegen::new().with_options(options).build(program);
    let tokens = made.map.iter().flat_map(|map| map.get_tokens()).map(|token| {
        let to = (token.get_dst_line(), token.get_dst_col());
        (to, (token.get_src_line(), token.get_src_col()))
    });
    let lowered = Lowered { tokens: tokens.collect(), code: made.code.clone() };
    let mut edits = Edits::new(&made.code);
    if kind == FileKind::Main {
        let arena = Allocator::default();
        let parsed = parse(&arena, &made.code, SourceType::mjs());
        if parsed.diagnostics.has_errors() {
            return Err(fault::first(&parsed.diagnostics, &made.code, file));
        }
        result::capture(&parsed.program, &mut edits, None)
            .map_err(|fault| fault.into_error(&made.code, file))?;
    }
    let (code, insertions) = edits.apply();
    Ok(Stripped { code, source_map: SourceMap::lowered(source, insertions, lowered) })
}
