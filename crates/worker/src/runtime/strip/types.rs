//! Replaces TypeScript types with spaces.
//!
//! The spaces must not change how the rest is parsed. Where automatic semicolon insertion would change
//! the meaning, a semicolon or a parenthesis replaces one of the erased characters.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few of the many node kinds are relevant"
)]

use std::collections::HashSet;

use oxc::ast::ast::*;
use oxc::ast_visit::{Visit, walk};
use oxc::semantic::{ScopeFlags, Scoping};
use oxc::span::{GetSpan as _, Span};

use super::edits::{Edits, index};
use super::exports;
use super::fault::Fault;

/// The symbol table of a program, if it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbols<'s> {
    pub(super) scoping: Option<&'s Scoping>,
}

impl Symbols<'_> {
    /// Returns whether a statement consists only of types.
    pub(super) fn is_erased(&self, statement: &Statement<'_>) -> bool {
        match statement {
            Statement::ImportDeclaration(import) => !self.imports(import),
            Statement::ExportNamedDeclaration(export) => !self.exports_values(export),
            Statement::ExportFromDeclaration(export) => {
                export.export_kind.is_type()
                    || (!export.specifiers.is_empty()
                        && export.specifiers.iter().all(|s| s.export_kind.is_type()))
            }
            Statement::ExportAllDeclaration(export) => export.export_kind.is_type(),
            Statement::ExportDeclaration(export) => is_erased_declaration(&export.declaration),
            Statement::TSNamespaceExportDeclaration(_) => true,
            Statement::ExportDefaultDeclaration(export) => match &export.declaration {
                ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
                ExportDefaultDeclarationKind::FunctionDeclaration(function) => {
                    function.body.is_none()
                }
                ExportDefaultDeclarationKind::Identifier(name) => !self.is_value_name(name),
                _ => false,
            },
            other => other.as_declaration().is_some_and(is_erased_declaration),
        }
    }

    fn is_value_name(&self, name: &IdentifierReference<'_>) -> bool {
        let Some(scoping) = self.scoping else { return true };
        let reference = name.reference_id.get().map(|id| scoping.get_reference(id));
        let symbol = reference.and_then(|reference| reference.symbol_id());
        symbol.is_none_or(|symbol| {
            let flags = scoping.symbol_flags(symbol);
            flags.is_value() || flags.is_import()
        })
    }
}

fn is_erased_declaration(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::VariableDeclaration(variable) => variable.declare,
        Declaration::FunctionDeclaration(function) => function.declare || function.body.is_none(),
        Declaration::ClassDeclaration(class) => class.declare,
        Declaration::TSTypeAliasDeclaration(_)
        | Declaration::TSInterfaceDeclaration(_)
        | Declaration::TSExternalModuleDeclaration(_)
        | Declaration::TSGlobalDeclaration(_) => true,
        Declaration::TSEnumDeclaration(numbered) => numbered.declare,
        Declaration::TSNamespaceDeclaration(namespace) => {
            namespace.declare || !has_values(&namespace.body)
        }
        Declaration::TSImportEqualsDeclaration(import) => import.import_kind.is_type(),
    }
}

fn has_values(body: &TSNamespaceDeclarationBody<'_>) -> bool {
    match body {
        TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => {
            !inner.declare && has_values(&inner.body)
        }
        TSNamespaceDeclarationBody::TSModuleBlock(block) => {
            block.body.iter().any(|statement| !Symbols { scoping: None }.is_erased(statement))
        }
    }
}

/// A visitor that erases the TypeScript types of a program.
pub(super) struct Eraser<'e, 's> {
    pub(super) source: &'s str,
    pub(super) edits: &'e mut Edits<'s>,
    symbols: Symbols<'e>,
    /// The end offsets of statements without a semicolon.
    pub(super) open: HashSet<u32>,
    /// The end of the captured result, where no semicolon can be inserted.
    result_end: Option<u32>,
    /// Whether the program contains TypeScript syntax that cannot be erased.
    pub(super) lower: bool,
    pub(super) fault: Option<Fault>,
}

impl<'e, 's> Eraser<'e, 's> {
    pub(super) fn new(
        source: &'s str,
        edits: &'e mut Edits<'s>,
        symbols: Symbols<'e>,
        result_end: Option<u32>,
    ) -> Self {
        Self { source, edits, symbols, open: HashSet::new(), result_end, lower: false, fault: None }
    }

    /// Erases the types. Returns false if the program must be rewritten instead.
    pub(super) fn erase(mut self, program: &Program<'_>) -> Result<bool, Fault> {
        self.visit_program(program);
        self.fault.map_or(Ok(!self.lower), Err)
    }

    pub(super) fn fault(&mut self, span: Span, message: &str) {
        self.fault.get_or_insert_with(|| Fault::new(span, message));
    }

    pub(super) fn text(&self, start: u32, end: u32) -> &'s str {
        self.source.get(index(start)..index(end)).unwrap_or_default()
    }

    pub(super) fn ends_with_semicolon(&self, span: Span) -> bool {
        self.text(span.start, span.end).ends_with(';')
    }

    pub(super) fn blank_span(&mut self, span: Span) {
        self.edits.blank(span.start, span.end);
    }

    /// Erases `?`, `!` or a type annotation after a name.
    fn blank_type(&mut self, from: u32, marked: bool, annotation: Option<&TSTypeAnnotation<'_>>) {
        if let Some(annotation) = annotation {
            self.edits.blank(from, annotation.span.end);
        } else if marked && let Some((at, '?' | '!')) = exports::next(self.source, from) {
            self.edits.blank(at, at + 1);
        }
    }

    pub(super) fn type_parameters(&mut self, it: Option<&TSTypeParameterDeclaration<'_>>) {
        if let Some(it) = it {
            self.blank_span(it.span);
        }
    }

    fn type_arguments(&mut self, it: Option<&TSTypeParameterInstantiation<'_>>) {
        if let Some(it) = it {
            self.blank_span(it.span);
        }
    }

    /// Erases the type after an expression, as in `x as T`. Without a semicolon, the next line must
    /// not continue the statement.
    fn blank_after(&mut self, inner: Span, whole: Span) {
        self.edits.blank(inner.end, whole.end);
        if self.open.contains(&whole.end)
            && self.result_end != Some(whole.end)
            && let Some((at, _)) = exports::next(self.source, inner.end)
        {
            self.edits.letter(at, b';');
        }
    }

    /// Returns whether the next line could continue a statement without a semicolon.
    fn stays_open(&self, statement: &Statement<'_>) -> bool {
        match statement {
            Statement::IfStatement(it) => {
                self.stays_open(it.alternate.as_ref().unwrap_or(&it.consequent))
            }
            Statement::ForStatement(it) => self.stays_open(&it.body),
            Statement::ForInStatement(it) => self.stays_open(&it.body),
            Statement::ForOfStatement(it) => self.stays_open(&it.body),
            Statement::WhileStatement(it) => self.stays_open(&it.body),
            Statement::LabeledStatement(it) => self.stays_open(&it.body),
            Statement::ExpressionStatement(_)
            | Statement::VariableDeclaration(_)
            | Statement::ThrowStatement(_)
            | Statement::ImportDeclaration(_)
            | Statement::ExportAllDeclaration(_)
            | Statement::ExportFromDeclaration(_) => !self.ends_with_semicolon(statement.span()),
            Statement::ReturnStatement(it) => {
                it.argument.is_some() && !self.ends_with_semicolon(it.span)
            }
            Statement::ExportDefaultDeclaration(it) => {
                it.declaration.is_expression() && !self.ends_with_semicolon(it.span)
            }
            Statement::ExportDeclaration(it) => {
                matches!(it.declaration, Declaration::VariableDeclaration(_))
                    && !self.ends_with_semicolon(it.span)
            }
            _ => false,
        }
    }

    fn function_head(&mut self, this: Option<&TSThisParameter<'_>>, params: &FormalParameters<'_>) {
        if let Some(this) = this {
            let comma = exports::next(self.source, this.span.end).filter(|&(_, c)| c == ',');
            self.edits.blank(this.span.start, comma.map_or(this.span.end, |(at, _)| at + 1));
        }
        self.visit_formal_parameters(params);
    }
}

impl<'a> Visit<'a> for Eraser<'_, '_> {
    fn visit_statements(&mut self, it: &oxc::allocator::Vec<'a, Statement<'a>>) {
        let mut open = false;
        for statement in it {
            if self.symbols.is_erased(statement) {
                let span = statement.span();
                self.blank_span(span);
                if open {
                    self.edits.letter(span.start, b';');
                    open = false;
                }
            } else {
                self.visit_statement(statement);
                open = self.stays_open(statement);
            }
        }
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        if self.stays_open(it) {
            self.open.insert(it.span().end);
        }
        walk::walk_statement(self, it);
    }

    fn visit_expression_statement(&mut self, it: &ExpressionStatement<'a>) {
        // Without its type, such a statement could start with `{`, `function`, `class` or `let`.
        if self.text(it.span.start, it.span.end).starts_with('<') {
            self.lower = true;
        }
        walk::walk_expression_statement(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        self.visit_binding_pattern(&it.id);
        self.blank_type(it.id.span().end, it.definite, it.type_annotation.as_deref());
        if let Some(init) = &it.init {
            self.visit_expression(init);
        }
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        self.visit_decorators(&it.decorators);
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.lower = true;
        }
        self.visit_binding_pattern(&it.pattern);
        self.blank_type(it.pattern.span().end, it.optional, it.type_annotation.as_deref());
        if let Some(init) = &it.initializer {
            self.visit_expression(init);
        }
    }

    fn visit_formal_parameter_rest(&mut self, it: &FormalParameterRest<'a>) {
        self.visit_decorators(&it.decorators);
        self.visit_binding_pattern(&it.rest.argument);
        self.blank_type(it.rest.span.end, false, it.type_annotation.as_deref());
    }

    fn visit_catch_parameter(&mut self, it: &CatchParameter<'a>) {
        self.visit_binding_pattern(&it.pattern);
        self.blank_type(it.pattern.span().end, false, it.type_annotation.as_deref());
    }

    fn visit_function(&mut self, it: &Function<'a>, _: ScopeFlags) {
        self.type_parameters(it.type_parameters.as_deref());
        self.function_head(it.this_param.as_deref(), &it.params);
        if let Some(annotation) = &it.return_type {
            self.edits.blank(it.params.span.end, annotation.span.end);
        }
        if let Some(body) = &it.body {
            self.visit_function_body(body);
        }
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        // No line break is allowed between the parameters and the arrow, so the closing parenthesis
        // moves to the end of the erased type.
        let broken = |text: &str| text.contains('\n');
        if let Some(parameters) = &it.type_parameters {
            self.blank_span(parameters.span);
            if broken(self.text(parameters.span.start, it.params.span.start)) {
                self.edits.letter(parameters.span.start, b'(');
                self.edits.letter(it.params.span.start, b' ');
            }
        }
        self.visit_formal_parameters(&it.params);
        if let Some(annotation) = &it.return_type {
            let (start, end) = (it.params.span.end, annotation.span.end);
            self.edits.blank(start, end);
            if broken(self.text(start, end)) {
                self.edits.letter(start - 1, b' ');
                self.edits.letter(end - 1, b')');
            }
        }
        self.visit_arrow_function_body(&it.body);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        self.visit_expression(&it.callee);
        self.type_arguments(it.type_arguments.as_deref());
        self.visit_arguments(&it.arguments);
    }

    fn visit_new_expression(&mut self, it: &NewExpression<'a>) {
        self.visit_expression(&it.callee);
        self.type_arguments(it.type_arguments.as_deref());
        self.visit_arguments(&it.arguments);
    }

    fn visit_tagged_template_expression(&mut self, it: &TaggedTemplateExpression<'a>) {
        self.visit_expression(&it.tag);
        self.type_arguments(it.type_arguments.as_deref());
        self.visit_template_literal(&it.quasi);
    }

    fn visit_ts_instantiation_expression(&mut self, it: &TSInstantiationExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_after(it.expression.span(), it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_after(it.expression.span(), it.span);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_after(it.expression.span(), it.span);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        let (start, end) = (it.span.start, it.expression.span().start);
        // `return <T>` before a line break and `=> <T>{` are rare, so they are rewritten.
        let opens = self.text(end, it.span.end).starts_with(['{', '<']);
        if opens || self.text(start, end).contains('\n') {
            self.lower = true;
        }
        self.edits.blank(start, end);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_enum_declaration(&mut self, _: &TSEnumDeclaration<'a>) {
        self.lower = true;
    }

    fn visit_ts_namespace_declaration(&mut self, _: &TSNamespaceDeclaration<'a>) {
        self.lower = true;
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        if matches!(it.module_reference, TSModuleReference::ExternalModuleReference(_)) {
            let message = "`import x = require(…)` is not supported: use `import x from …`";
            self.fault(it.span, message);
        }
        self.lower = true;
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        self.fault(it.span, "`export =` is not supported: use `export default`");
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.fault(it.span, "decorators are not supported: call the function yourself");
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        exports::erase_import_types(it, &self.symbols, self.source, self.edits);
    }

    fn visit_export_named_declaration(&mut self, it: &ExportNamedDeclaration<'a>) {
        let symbols = self.symbols;
        let members = it.specifiers.iter().map(|s| (s.span, symbols.keeps_export(s)));
        exports::erase_members(members, self.source, self.edits);
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        let members = it.specifiers.iter().map(|s| (s.span, !s.export_kind.is_type()));
        exports::erase_members(members, self.source, self.edits);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        self.class(it);
    }
}
