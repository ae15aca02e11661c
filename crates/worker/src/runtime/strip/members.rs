//! Erases the types of classes and their members.

use oxc::ast::ast::*;
use oxc::ast_visit::Visit as _;
use oxc::semantic::ScopeFlags;
use oxc::span::{GetSpan as _, Span};

use super::edits::index;
use super::exports::next;
use super::types::Eraser;

/// The TypeScript modifiers of class members.
const MODIFIERS: [&str; 7] =
    ["public", "private", "protected", "readonly", "override", "abstract", "declare"];

impl Eraser<'_, '_> {
    pub(super) fn class(&mut self, it: &Class<'_>) {
        self.visit_decorators(&it.decorators);
        let name = it.id.as_ref().map_or(it.body.span.start, |id| id.span.start);
        if it.r#abstract {
            let start = it.decorators.last().map_or(it.span.start, |last| last.span.end);
            self.modifiers(start, name, false);
        }
        self.type_parameters(it.type_parameters.as_deref());
        if let Some(heritage) = &it.heritage {
            self.visit_expression(&heritage.expression);
            if let Some(arguments) = &heritage.type_arguments {
                self.blank_span(arguments.span);
            }
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = self.text(it.span.start, first.span.start);
            let start = before.rfind("implements").and_then(|at| u32::try_from(at).ok());
            self.edits.blank(it.span.start + start.unwrap_or_default(), last.span.end);
        }
        self.members(&it.body);
    }

    fn members(&mut self, body: &ClassBody<'_>) {
        let mut open = false;
        for element in &body.body {
            let span = element.span();
            if is_erased(element) {
                self.blank_span(span);
                if open {
                    self.edits.letter(span.start, b';');
                }
                open = false;
                continue;
            }
            match element {
                ClassElement::StaticBlock(block) => self.visit_static_block(block),
                ClassElement::MethodDefinition(method) => self.method(method, open),
                ClassElement::PropertyDefinition(field) => self.field(field, open),
                ClassElement::AccessorProperty(accessor) => {
                    self.fault(accessor.span, "`accessor` is not supported: write `get` and `set`");
                }
                ClassElement::TSIndexSignature(_) => {}
            }
            open = matches!(element, ClassElement::PropertyDefinition(field)
                if field.value.is_some() || !is_marked(field))
                && !self.ends_with_semicolon(span);
        }
    }

    fn method(&mut self, it: &MethodDefinition<'_>, open: bool) {
        self.visit_decorators(&it.decorators);
        self.modifiers(it.span.start, it.key.span().start, open);
        self.visit_property_key(&it.key);
        if it.optional
            && let Some((at, '?')) = next(self.source, self.key_end(&it.key, it.computed))
        {
            self.edits.blank(at, at + 1);
        }
        self.visit_function(&it.value, ScopeFlags::empty());
    }

    fn field(&mut self, it: &PropertyDefinition<'_>, open: bool) {
        self.visit_decorators(&it.decorators);
        self.modifiers(it.span.start, it.key.span().start, open);
        self.visit_property_key(&it.key);
        let key_end = self.key_end(&it.key, it.computed);
        let ended = self.ends_with_semicolon(it.span);
        let end = it.type_annotation.as_ref().map(|annotation| annotation.span.end);
        if let Some((at, '?' | '!' | ':')) = next(self.source, key_end)
            && is_marked(it)
        {
            self.edits.blank(at, end.unwrap_or(at + 1));
            // `get: string` before a method would become its getter.
            if it.value.is_none() && !ended {
                self.edits.letter(at, b';');
            }
        }
        if let Some(value) = &it.value {
            if !ended {
                self.open.insert(it.span.end);
            }
            self.visit_expression(value);
        }
    }

    fn key_end(&self, key: &PropertyKey<'_>, computed: bool) -> u32 {
        let end = key.span().end;
        let bracket = next(self.source, end).filter(|&(_, letter)| computed && letter == ']');
        bracket.map_or(end, |(at, _)| at + 1)
    }

    /// Erases the TypeScript modifiers before the name of a class member. `open` means that the
    /// field before has no semicolon.
    fn modifiers(&mut self, start: u32, end: u32, open: bool) {
        let mut first = true;
        for word in words(self.source, start, end) {
            if MODIFIERS.contains(&self.text(word.start, word.end)) {
                self.blank_span(word);
                if first && open {
                    self.edits.letter(word.start, b';');
                }
            }
            first = false;
        }
    }
}

/// Returns whether a class field has a type annotation, `?` or `!`.
fn is_marked(field: &PropertyDefinition<'_>) -> bool {
    field.type_annotation.is_some() || field.optional || field.definite
}

fn is_erased(element: &ClassElement<'_>) -> bool {
    match element {
        ClassElement::MethodDefinition(method) => {
            method.r#type == MethodDefinitionType::TSAbstractMethodDefinition
                || method.value.body.is_none()
        }
        ClassElement::PropertyDefinition(field) => {
            field.declare || field.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition
        }
        ClassElement::AccessorProperty(accessor) => {
            accessor.r#type == AccessorPropertyType::TSAbstractAccessorProperty
        }
        ClassElement::TSIndexSignature(_) => true,
        ClassElement::StaticBlock(_) => false,
    }
}

/// Returns the words of a source range, without those in comments.
fn words(source: &str, start: u32, end: u32) -> Vec<Span> {
    let mut found = Vec::new();
    let mut at = start;
    while let Some((begin, letter)) = next(source, at).filter(|&(begin, _)| begin < end) {
        let rest = source.get(index(begin)..).unwrap_or_default();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
        let length = length.unwrap_or(rest.len()).max(if letter.is_alphanumeric() { 1 } else { 0 });
        let width = if length == 0 { letter.len_utf8() } else { length };
        at = begin + u32::try_from(width).unwrap_or(1);
        found.push(Span::new(begin, at));
    }
    found
}
