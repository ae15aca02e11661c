//! From the text of a file to templates that make sense.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::keys::{KEYS, Value};
use super::nearest::nearest;
use super::{Config, ConfigError, Entry, Fault, Places, Scope};
use crate::id::{NameError, RunName};
use crate::mount::anchor;
use crate::template::{Overrides, Template, TemplateError};

/// The sections of a file.
const SECTIONS: [&str; 1] = ["template"];

/// Longer quotes would hide what is said about them.
const MAX_QUOTE: usize = 60; // characters

/// A file being read.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

pub(super) fn config(text: &str, file: &Path, scope: Scope) -> Result<Config, ConfigError> {
    let source = Source { text, file };
    let root = DeTable::parse(text).map_err(|error| {
        let what = error.message().replace('\n', ", ");
        source.error(error.span().unwrap_or_default().start, Fault::Syntax { what })
    })?;
    let mut templates = BTreeMap::new();
    for (key, value) in root.get_ref() {
        if key.get_ref() != "template" {
            return Err(source.unknown(key, SECTIONS.to_vec()));
        }
        for (name, value) in source.table(key.get_ref(), value)? {
            let entry = source.template(name, value)?;
            templates.insert(name.get_ref().to_string(), entry);
        }
    }
    Ok(Config { file: file.to_owned(), scope, templates })
}

impl Source<'_> {
    fn template(
        &self,
        name: &Spanned<DeString<'_>>,
        value: &Value<'_>,
    ) -> Result<Entry, ConfigError> {
        let heading = name.span().start;
        let name = name.get_ref().as_ref();
        check_name(name).map_err(|error| {
            let fault = Fault::TemplateName { name: name.to_owned(), what: error.to_string() };
            self.error(heading, fault)
        })?;
        let mut said = Overrides::default();
        let mut places = Places { heading: self.line(heading), keys: BTreeMap::new() };
        for (key, value) in self.table(&format!("template.{name}"), value)? {
            let Some((known, take)) = KEYS.iter().find(|(known, _)| known == key.get_ref()) else {
                return Err(self.unknown(key, KEYS.map(|(known, _)| known).to_vec()));
            };
            take(&mut said, value).map_err(|wrong| match wrong.element {
                Some(span) => self.error(
                    span.start,
                    Fault::Element {
                        key: (*known).to_owned(),
                        quoted: self.quote(span),
                        what: wrong.what,
                    },
                ),
                None => self.wrong_value(known, value, wrong.what),
            })?;
            places.keys.insert(known, self.line(key.span().start));
        }
        let said = self.anchored(said);
        let base = Template { name: name.to_owned(), ..Template::default() };
        // What a project's template will be, only the operator's tells; but nonsense shows already.
        let template = base
            .with(said.clone())
            .map_err(|error| impossible(self.file, name, &places, &error))?;
        Ok(Entry { template, said, places })
    }

    /// Relative paths start from the directory of the file that names them.
    fn anchored(&self, said: Overrides) -> Overrides {
        let base = self.file.parent().unwrap_or(Path::new(""));
        Overrides {
            mounts: said.mounts.into_iter().map(|mount| mount.anchored(base, None)).collect(),
            rootfs: said.rootfs.map(|rootfs| anchor(&rootfs, base, None)),
            ..said
        }
    }

    fn table<'v, 't>(
        &self,
        key: &str,
        value: &'v Value<'t>,
    ) -> Result<&'v DeTable<'t>, ConfigError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => Err(self.wrong_value(
                key,
                value,
                "must be a table; write `[template.NAME]`".to_owned(),
            )),
        }
    }

    fn unknown(&self, key: &Spanned<DeString<'_>>, known: Vec<&'static str>) -> ConfigError {
        let name = key.get_ref();
        let fault =
            Fault::UnknownKey { key: name.to_string(), nearest: nearest(name, &known), known };
        self.error(key.span().start, fault)
    }

    fn wrong_value(&self, key: &str, value: &Value<'_>, what: String) -> ConfigError {
        let fault = Fault::Value { key: key.to_owned(), quoted: self.quote(value.span()), what };
        self.error(value.span().start, fault)
    }

    fn error(&self, at: usize, fault: Fault) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: self.line(at), fault }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    fn quote(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let mut quote: String = line.chars().take(MAX_QUOTE).collect();
        if quote.len() < text.len() {
            quote.push('…');
        }
        quote
    }
}

/// A template's name appears on command lines and in records, so it is as plain as that of a run.
fn check_name(name: &str) -> Result<(), NameError> {
    name.parse::<RunName>().map(|_| ())
}

pub(super) fn impossible(
    file: &Path,
    name: &str,
    places: &Places,
    error: &TemplateError,
) -> ConfigError {
    let key = error.key();
    let fault = Fault::Impossible { template: name.to_owned(), key, what: error.to_string() };
    ConfigError { file: file.to_owned(), line: places.line(key), fault }
}
