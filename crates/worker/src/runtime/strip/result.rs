//! Catches what a program gives: a `return` at its top level, or its last expression.
//!
//! Both go to `import.meta.result`, which no name of the program can hide.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a tree has many kinds of nodes, and most are not meant"
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
use super::types::Known;

const CATCH: &str = "import.meta.result=";

/// Puts in what catches the result. Gives the end of the expression that is caught, after which no
/// semicolon may be put.
pub(super) fn catch(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    types: Option<&Known<'_>>,
) -> Result<Option<u32>, Fault> {
    let lasting = |statement: &&Statement<'_>| types.is_none_or(|known| !known.erased(statement));
    if program.body.iter().filter(lasting).any(exports::gives_default) {
        return Ok(None);
    }
    let last = last_expression(program, types);
    let Some(returned) = top_level_return(program) else {
        let Some(last) = last else { return Ok(None) };
        edits.insert(last.start, format!("{CATCH}("));
        edits.insert(last.end, ")");
        return Ok(Some(last.end));
    };
    if program.body.iter().filter(lasting).any(exports::exports) {
        let message =
            "a program that exports has no `return` at its top level: use `export default`";
        return Err(Fault::new(returned, message));
    }
    // At one place they come in the order in which they are put there.
    if let Some(last) = last {
        edits.insert(last.end, ")");
    }
    wrap(program, edits, types);
    if let Some(last) = last {
        edits.insert(last.start, "return(");
    }
    Ok(last.map(|last| last.end))
}

/// Makes a function of the program. Its imports stay outside; those in its midst go to the front.
fn wrap(program: &Program<'_>, edits: &mut Edits<'_>, types: Option<&Known<'_>>) {
    let is_import =
        |statement: &Statement<'_>| matches!(statement, Statement::ImportDeclaration(_));
    let mut body = program.body.iter().skip_while(|statement| is_import(statement));
    let Some(first) = body.next() else { return };
    for import in body.filter(|statement| is_import(statement)) {
        let span = import.span();
        edits.blank(span.start, span.end);
        if !types.is_some_and(|known| known.erased(import)) {
            edits.insert(first.span().start, on_one_line(program, span));
        }
    }
    edits.insert(first.span().start, format!("{CATCH}await(async()=>{{"));
    edits.insert(program.span.end, "\n})()");
}

/// The text of a statement without comments and without lines.
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

/// The last expression of the program, when nothing but declarations comes behind it.
fn last_expression(program: &Program<'_>, types: Option<&Known<'_>>) -> Option<Span> {
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
            other if types.is_some_and(|known| known.erased(other)) => {}
            _ => return None,
        }
    }
    // A text alone is a directive to the parser, and a result to whoever wrote it.
    program.directives.last().map(|directive| directive.expression.span)
}

/// The first `return` that is in no function.
fn top_level_return(program: &Program<'_>) -> Option<Span> {
    if !program.source_text.contains("return") {
        return None;
    }
    let mut finder = Finder { found: None };
    finder.visit_program(program);
    finder.found
}

struct Finder {
    found: Option<Span>,
}

impl<'a> Visit<'a> for Finder {
    fn visit_return_statement(&mut self, it: &ReturnStatement<'a>) {
        self.found.get_or_insert(it.span);
    }

    fn visit_function(&mut self, _: &Function<'a>, _: ScopeFlags) {}

    fn visit_arrow_function_expression(&mut self, _: &ArrowFunctionExpression<'a>) {}

    fn visit_class(&mut self, _: &Class<'a>) {}
}

/// Whether a default export is a value.
pub(super) fn is_value(kind: &ExportDefaultDeclarationKind<'_>) -> bool {
    !matches!(kind, ExportDefaultDeclarationKind::TSInterfaceDeclaration(_))
}
