//! Captures the result of a program: a `return` at its top level, or its last expression.
//!
//! The result is assigned to `import.meta.result`, which no variable of the program can shadow.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few of the many node kinds are relevant"
)]

use oxc::ast::ast::{
    ArrowFunctionExpression, Class, Declaration, ExportDefaultDeclarationKind, Function, Program,
    ReturnStatement, Statement,
};
use oxc::ast_visit::Visit;
use oxc::semantic::ScopeFlags;
use oxc::span::{GetSpan as _, Span};

use super::edits::{Edits, index};
use super::exports;
use super::fault::Fault;
use super::types::Symbols;

const CAPTURE: &str = "import.meta.result=";

/// Inserts the code that captures the result of the program.
///
/// Returns the end of the captured expression, where no semicolon can be inserted.
pub(super) fn capture(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    types: Option<&Symbols<'_>>,
) -> Result<Option<u32>, Fault> {
    let is_kept =
        |statement: &&Statement<'_>| types.is_none_or(|symbols| !symbols.is_erased(statement));
    if program.body.iter().filter(is_kept).any(exports::has_default) {
        return Ok(None);
    }
    let last = last_expression(program, types);
    let Some(returned) = top_level_return(program) else {
        let Some(last) = last else { return Ok(None) };
        edits.insert(last.start, format!("{CAPTURE}("));
        edits.insert(last.end, ")");
        return Ok(Some(last.end));
    };
    if program.body.iter().filter(is_kept).any(exports::is_export) {
        let message =
            "a program with exports cannot `return` at its top level: use `export default`";
        return Err(Fault::new(returned, message));
    }
    // Insertions at one offset keep this order.
    if let Some(last) = last {
        edits.insert(last.end, ")");
    }
    wrap(program, edits, types);
    if let Some(last) = last {
        edits.insert(last.start, "return(");
    }
    Ok(last.map(|last| last.end))
}

/// Wraps the program in an async function. Its imports stay outside, before the function.
fn wrap(program: &Program<'_>, edits: &mut Edits<'_>, types: Option<&Symbols<'_>>) {
    let is_import =
        |statement: &Statement<'_>| matches!(statement, Statement::ImportDeclaration(_));
    let mut body = program.body.iter().skip_while(|statement| is_import(statement));
    let Some(first) = body.next() else { return };
    for import in body.filter(|statement| is_import(statement)) {
        let span = import.span();
        edits.blank(span.start, span.end);
        if !types.is_some_and(|symbols| symbols.is_erased(import)) {
            edits.insert(first.span().start, on_one_line(program, span));
        }
    }
    edits.insert(first.span().start, format!("{CAPTURE}await(async()=>{{"));
    edits.insert(program.span.end, "\n})()");
}

/// Returns the source of a statement on one line, without comments.
fn on_one_line(program: &Program<'_>, span: Span) -> String {
    let mut text = program
        .source_text
        .as_bytes()
        .get(index(span.start)..index(span.end))
        .map_or_else(Vec::new, <[u8]>::to_vec);
    let inside = program.comments.iter().filter(|comment| span.contains_inclusive(comment.span));
    for comment in inside {
        let (start, end) = (comment.span.start - span.start, comment.span.end - span.start);
        text.get_mut(index(start)..index(end)).unwrap_or_default().fill(b' ');
    }
    let text = String::from_utf8_lossy(&text).replace(['\n', '\r'], " ");
    format!("{text};")
}

/// Returns the last expression of the program if only declarations follow it.
fn last_expression(program: &Program<'_>, types: Option<&Symbols<'_>>) -> Option<Span> {
    for statement in program.body.iter().rev() {
        match statement {
            Statement::ExpressionStatement(last) => return Some(last.expression.span()),
            Statement::EmptyStatement(_)
            | Statement::FunctionDeclaration(_)
            | Statement::ClassDeclaration(_)
            | Statement::ImportDeclaration(_)
            | Statement::ExportNamedDeclaration(_) => {}
            Statement::ExportDeclaration(export)
                if matches!(
                    export.declaration,
                    Declaration::FunctionDeclaration(_) | Declaration::ClassDeclaration(_)
                ) => {}
            other if types.is_some_and(|symbols| symbols.is_erased(other)) => {}
            _ => return None,
        }
    }
    // The parser takes a lone string literal for a directive, but it is the result of the program.
    program.directives.last().map(|directive| directive.expression.span)
}

/// Returns the first `return` of the program outside any function.
fn top_level_return(program: &Program<'_>) -> Option<Span> {
    if !program.source_text.contains("return") {
        return None;
    }
    let mut finder = ReturnFinder { found: None };
    finder.visit_program(program);
    finder.found
}

struct ReturnFinder {
    found: Option<Span>,
}

impl<'a> Visit<'a> for ReturnFinder {
    fn visit_return_statement(&mut self, it: &ReturnStatement<'a>) {
        self.found.get_or_insert(it.span);
    }

    fn visit_function(&mut self, _: &Function<'a>, _: ScopeFlags) {}

    fn visit_arrow_function_expression(&mut self, _: &ArrowFunctionExpression<'a>) {}

    fn visit_class(&mut self, _: &Class<'a>) {}
}

/// Returns whether a default export is a value and not a type.
pub(super) fn is_value(kind: &ExportDefaultDeclarationKind<'_>) -> bool {
    !matches!(kind, ExportDefaultDeclarationKind::TSInterfaceDeclaration(_))
}
