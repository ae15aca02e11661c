//! Finds the imports and exports of a module that are values, and erases those that are types.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a few of the many node kinds are relevant"
)]

use oxc::ast::ast::{
    ExportNamedDeclaration, ExportSpecifier, ImportDeclaration, ImportDeclarationSpecifier,
    ModuleExportName, Program, Statement,
};
use oxc::span::{GetSpan as _, Span};
use oxc::syntax::symbol::SymbolId;

use super::edits::Edits;
use super::result;
use super::types::Symbols;

/// Returns whether a symbol table is needed to decide which imports and exports are types.
pub(super) fn needs_symbols(program: &Program<'_>) -> bool {
    program.body.iter().any(|statement| match statement {
        Statement::ImportDeclaration(import) => {
            !import.import_kind.is_type()
                && import.specifiers.as_ref().is_some_and(|specifiers| !specifiers.is_empty())
        }
        Statement::TSImportEqualsDeclaration(_) | Statement::ExportNamedDeclaration(_) => true,
        Statement::ExportDefaultDeclaration(export) => export.declaration.is_expression(),
        _ => false,
    })
}

/// Returns whether a statement exports a default value.
pub(super) fn has_default(statement: &Statement<'_>) -> bool {
    let named = |specifiers: &[ExportSpecifier<'_>]| {
        specifiers.iter().any(|specifier| {
            !specifier.export_kind.is_type() && specifier.exported.name() == "default"
        })
    };
    match statement {
        Statement::ExportDefaultDeclaration(export) => result::is_value(&export.declaration),
        Statement::ExportNamedDeclaration(export) => named(&export.specifiers),
        Statement::ExportFromDeclaration(export) => named(&export.specifiers),
        _ => false,
    }
}

/// Returns whether a statement is an export.
pub(super) fn is_export(statement: &Statement<'_>) -> bool {
    matches!(
        statement,
        Statement::ExportAllDeclaration(_)
            | Statement::ExportDefaultDeclaration(_)
            | Statement::ExportDeclaration(_)
            | Statement::ExportFromDeclaration(_)
            | Statement::ExportNamedDeclaration(_)
    )
}

impl Symbols<'_> {
    /// Returns whether an imported name is used as a value.
    fn used(&self, symbol: Option<SymbolId>) -> bool {
        let (Some(scoping), Some(symbol)) = (self.scoping, symbol) else { return true };
        scoping.get_resolved_references(symbol).any(|reference| {
            let flags = reference.flags();
            !flags.is_type_only() && !flags.is_value_as_type()
        })
    }

    pub(super) fn keeps_import(&self, specifier: &ImportDeclarationSpecifier<'_>) -> bool {
        let typed = match specifier {
            ImportDeclarationSpecifier::ImportSpecifier(named) => named.import_kind.is_type(),
            ImportDeclarationSpecifier::ImportDefaultSpecifier(_)
            | ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) => false,
        };
        !typed && self.used(specifier.local().symbol_id.get())
    }

    /// Returns whether an import contains any values besides types.
    pub(super) fn imports(&self, import: &ImportDeclaration<'_>) -> bool {
        !import.import_kind.is_type()
            && import.specifiers.as_ref().is_none_or(|specifiers| {
                specifiers.iter().any(|specifier| self.keeps_import(specifier))
            })
    }

    /// Returns whether an exported name can be a value and not only a type.
    pub(super) fn is_value(&self, name: &ModuleExportName<'_>) -> bool {
        let (Some(scoping), ModuleExportName::IdentifierReference(name)) = (self.scoping, name)
        else {
            return true;
        };
        let reference = name.reference_id.get().map(|id| scoping.get_reference(id));
        let Some(symbol) = reference.and_then(|reference| reference.symbol_id()) else {
            return true;
        };
        let flags = scoping.symbol_flags(symbol);
        // An imported name can be a value: only the other module shows it.
        flags.is_value() || flags.is_import()
    }

    pub(super) fn keeps_export(&self, specifier: &ExportSpecifier<'_>) -> bool {
        !specifier.export_kind.is_type() && self.is_value(&specifier.local)
    }

    pub(super) fn exports_values(&self, export: &ExportNamedDeclaration<'_>) -> bool {
        !export.export_kind.is_type()
            && (export.specifiers.is_empty()
                || export.specifiers.iter().any(|specifier| self.keeps_export(specifier)))
    }
}

/// Erases the type-only names of an import, with their commas.
pub(super) fn erase_import_types(
    import: &ImportDeclaration<'_>,
    symbols: &Symbols<'_>,
    source: &str,
    edits: &mut Edits<'_>,
) {
    let Some(specifiers) = &import.specifiers else { return };
    let is_named = |s: &&ImportDeclarationSpecifier<'_>| {
        matches!(s, ImportDeclarationSpecifier::ImportSpecifier(_))
    };
    let (named, whole): (Vec<_>, Vec<_>) = specifiers.iter().partition(is_named);
    let kept = |s: &&&ImportDeclarationSpecifier<'_>| symbols.keeps_import(s);
    let default =
        whole.iter().find(|s| matches!(s, ImportDeclarationSpecifier::ImportDefaultSpecifier(_)));
    let rest_kept = named.iter().any(|s| symbols.keeps_import(s))
        || whole
            .iter()
            .filter(kept)
            .any(|s| matches!(s, ImportDeclarationSpecifier::ImportNamespaceSpecifier(_)));
    if let Some(default) = default {
        let span = default.span();
        let rest = specifiers.len() > 1 || rest_kept;
        if !symbols.keeps_import(default) {
            let comma = find(source, span.end, ',').filter(|_| rest);
            edits.blank(span.start, comma.map_or(span.end, |at| at + 1));
        } else if rest && !rest_kept {
            if let (Some(comma), Some(from)) = (
                find(source, span.end, ','),
                source
                    .get(..super::edits::index(import.source.span.start))
                    .and_then(|text| text.rfind("from")),
            ) {
                edits.blank(comma, u32::try_from(from).unwrap_or(comma));
            }
            return;
        }
    }
    erase_members(named.iter().map(|s| (s.span(), symbols.keeps_import(s))), source, edits);
}

/// Erases the import or export names that are not kept, each with the comma after it.
pub(super) fn erase_members(
    members: impl Iterator<Item = (Span, bool)>,
    source: &str,
    edits: &mut Edits<'_>,
) {
    for (span, kept) in members {
        if !kept {
            let comma = next(source, span.end).filter(|&(_, letter)| letter == ',');
            edits.blank(span.start, comma.map_or(span.end, |(at, _)| at + 1));
        }
    }
}

fn find(source: &str, from: u32, letter: char) -> Option<u32> {
    next(source, from).filter(|&(_, found)| found == letter).map(|(at, _)| at)
}

/// Returns the next character of the source outside whitespace and comments, with its offset.
pub(super) fn next(source: &str, from: u32) -> Option<(u32, char)> {
    let mut at = super::edits::index(from);
    loop {
        let rest = source.get(at..)?;
        let found = rest.trim_start();
        at += rest.len() - found.len();
        if let Some(comment) = found.strip_prefix("//") {
            at += 2 + comment.find('\n')?;
        } else if let Some(comment) = found.strip_prefix("/*") {
            at += 4 + comment.find("*/")?;
        } else {
            let letter = found.chars().next()?;
            return Some((u32::try_from(at).ok()?, letter));
        }
    }
}
