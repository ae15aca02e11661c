//! Resolves and loads the modules that a program imports.

use std::collections::HashMap;
use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Exception, Function, Module, Object, Result};
use url::Url;

use belljar_wire::{self as wire, Dialect, ProgramError};

use super::host::Host;
use super::strip::{Stripped, strip};
use super::{BROKER, builtin, errors, http};

/// The modules that the host sent with the program, and redirects of loaded modules.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The modules that the host sent, by exact specifier.
    given: HashMap<String, wire::Module>,
    /// The final URLs of loaded modules after redirects, by requested URL.
    moved: HashMap<String, String>,
}

impl Sources {
    pub(super) fn new(modules: Vec<wire::Module>) -> Self {
        let given = modules.into_iter().map(|module| (module.specifier.clone(), module));
        Self { given: given.collect(), moved: HashMap::new() }
    }

    /// Returns the source texts of all modules from the host.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.given.values().map(|module| module.source.as_str())
    }

    fn find(&self, name: &str) -> Option<String> {
        if self.given.contains_key(name) {
            return Some(name.to_owned());
        }
        ["lib", "skill", "api"]
            .map(|kind| format!("{kind}:{name}"))
            .into_iter()
            .find(|full| self.given.contains_key(full))
    }

    /// Returns the module specifiers that start with this prefix, sorted.
    fn list(&self, kind: &str) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.given.keys().map(String::as_str).filter(|name| name.starts_with(kind)).collect();
        names.sort_unstable();
        names
    }
}

/// The module resolver and loader of the JavaScript engine.
#[derive(Clone, Debug)]
pub(super) struct Modules(pub(super) Rc<Host>);

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        self.find(base, name).map_err(|message| fail(ctx, &message))
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        if builtin::resolve(name).is_some_and(|full| full == name) {
            return self.built_in(ctx, name);
        }
        let kind = attributes.and_then(|all| all.get_type().ok().flatten());
        let text = self.text(name).map_err(|message| fail(ctx, &message))?;
        let as_data = text.kind == Language::Json || kind.as_deref() == Some("json");
        if as_data {
            let quoted = serde_json::to_string(&text.source).unwrap_or_default();
            return Module::declare(
                ctx.clone(),
                name,
                format!("export default JSON.parse({quoted})"),
            );
        }
        let dialect = if text.kind == Language::TypeScript { Dialect::Ts } else { Dialect::Js };
        let Stripped { code, source_map } =
            strip(&text.source, dialect, name).map_err(|error| syntax_error(ctx, name, &error))?;
        self.0.source_maps.borrow_mut().insert(name.to_owned(), source_map);
        let module = Module::declare(ctx.clone(), name, code)?;
        module.meta()?.set("url", name)?;
        Ok(module)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    JavaScript,
    TypeScript,
    Json,
}

struct Text {
    source: String,
    kind: Language,
}

impl Modules {
    fn find(&self, base: &str, name: &str) -> std::result::Result<String, String> {
        let sources = self.0.sources.borrow();
        if name.starts_with("./") || name.starts_with("../") || name.starts_with('/') {
            return relative(sources.moved.get(base).map_or(base, String::as_str), name);
        }
        if let Some(full) = builtin::resolve(name) {
            return Ok(full);
        }
        if let Some(full) = sources.find(name) {
            return Ok(full);
        }
        match name.split_once(':') {
            Some(("https" | "http" | "file", _)) => Url::parse(name)
                .map(String::from)
                .map_err(|error| format!("`{name}` is not a valid URL: {error}")),
            Some(("data", _)) => Ok(name.to_owned()),
            Some((kind @ ("skill" | "lib" | "api"), _)) => Err(missing(&sources, kind, name)),
            _ => Err(unknown(&sources, name)),
        }
    }

    /// Returns the source text of an imported module.
    fn text(&self, name: &str) -> std::result::Result<Text, String> {
        if let Some(given) = self.0.sources.borrow().given.get(name) {
            let kind = match given.language {
                Dialect::Ts => Language::TypeScript,
                Dialect::Js => Language::JavaScript,
            };
            return Ok(Text { source: given.source.clone(), kind });
        }
        if let Some(data) = name.strip_prefix("data:") {
            return data_text(data);
        }
        if name.starts_with("file:") {
            return file_text(name);
        }
        let loaded = http::load(BROKER, name)?;
        let kind = match loaded.kind {
            http::ModuleKind::JavaScript => Language::JavaScript,
            http::ModuleKind::TypeScript => Language::TypeScript,
            http::ModuleKind::Json => Language::Json,
        };
        self.0.sources.borrow_mut().moved.insert(name.to_owned(), loaded.url);
        Ok(Text { source: loaded.source, kind })
    }

    /// Creates a JavaScript module that exports the members of a built-in object.
    fn built_in<'js>(&self, ctx: &Ctx<'js>, name: &str) -> Result<Module<'js, Declared>> {
        let prelude = self.0.prelude.borrow().clone();
        let prelude: Object<'js> =
            prelude.ok_or_else(|| rquickjs::Error::new_loading(name))?.restore(ctx)?;
        let exports: Object<'js> = prelude.get::<_, Function<'js>>("load")?.call((name,))?;
        let keys: Vec<String> = prelude.get::<_, Function<'js>>("keys")?.call((name,))?;
        let mut code = "const all = import.meta.exports; export default all;\n".to_owned();
        // Exported through numbered variables, because some export names are reserved words.
        for (number, key) in keys.iter().enumerate() {
            code.push_str(&format!(
                "const _{number} = all.{key}; export {{ _{number} as {key} }};\n"
            ));
        }
        let module = Module::declare(ctx.clone(), name, code)?;
        module.meta()?.set("exports", exports)?;
        Ok(module)
    }
}

/// Resolves a relative import specifier against the importing module.
fn relative(base: &str, name: &str) -> std::result::Result<String, String> {
    let from =
        Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "file"));
    if let Some(from) = &from
        && from.scheme() != "file"
    {
        return from.join(name).map(String::from).map_err(|error| format!("`{name}`: {error}"));
    }
    if base.contains(':') && from.is_none() {
        return Err(format!(
            "cannot find `{name}`: `{base}` has no directory for relative imports"
        ));
    }
    let here = std::env::current_dir().map_err(|error| format!("`{name}`: {error}"))?;
    let from = from.or_else(|| Url::from_file_path(here.join("main.ts")).ok());
    let path = from
        .and_then(|from| from.join(name).ok())
        .and_then(|url| url.to_file_path().ok())
        .ok_or_else(|| format!("`{name}` is not a valid path"))?;
    let text = path.to_string_lossy().into_owned();
    let stem = text.strip_suffix(".js").unwrap_or(&text);
    let tries = ["", ".ts", ".js", ".mjs", ".json", "/index.ts", "/index.js"]
        .map(|end| format!("{text}{end}"));
    let found = tries
        .into_iter()
        .chain([format!("{stem}.ts")])
        .find(|at| std::path::Path::new(at).is_file());
    let found = found.ok_or_else(|| format!("the file {text} does not exist"))?;
    Url::from_file_path(found)
        .map(String::from)
        .map_err(|()| format!("`{name}` is not a valid path"))
}

fn file_text(name: &str) -> std::result::Result<Text, String> {
    let path = Url::parse(name).ok().and_then(|url| url.to_file_path().ok());
    let path = path.ok_or_else(|| format!("`{name}` is not a file URL"))?;
    let source = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let kind = match path.extension().and_then(|end| end.to_str()) {
        Some("json") => Language::Json,
        Some("ts" | "mts" | "cts") => Language::TypeScript,
        _ => Language::JavaScript,
    };
    Ok(Text { source, kind })
}

fn data_text(data: &str) -> std::result::Result<Text, String> {
    let (head, body) = data.split_once(',').ok_or("the data: URL has no comma")?;
    let raw = percent_decode(body);
    let bytes = if head.ends_with(";base64") {
        decode_base64(&raw).ok_or("the data: URL is not valid base64")?
    } else {
        raw
    };
    let source = String::from_utf8(bytes).map_err(|_| "the data: URL is not valid UTF-8")?;
    let kind = match head.split(';').next().unwrap_or_default() {
        "application/json" => Language::Json,
        "application/typescript" | "text/typescript" | "video/mp2t" => Language::TypeScript,
        _ => Language::JavaScript,
    };
    Ok(Text { source, kind })
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let mut ahead = bytes.clone();
        match (byte, hex(ahead.next()), hex(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                bytes = ahead;
            }
            _ => out.push(byte),
        }
    }
    out
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for &byte in text.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).unwrap_or_default());
        }
    }
    Some(out)
}

fn missing(sources: &Sources, kind: &str, name: &str) -> String {
    let list = sources.list(&format!("{kind}:"));
    if list.is_empty() {
        format!("there is no `{name}`: this program has no modules of the kind `{kind}:`")
    } else {
        format!("there is no `{name}`; available: {}", list.join(", "))
    }
}

fn unknown(sources: &Sources, name: &str) -> String {
    let mut message = format!("there is no module `{name}`");
    if let Some(instead) = builtin::instead(name) {
        message.push_str(": ");
        message.push_str(instead);
    }
    let given: Vec<&str> =
        ["lib:", "skill:", "api:"].iter().flat_map(|kind| sources.list(kind)).collect();
    message.push_str(&format!(". Built-in modules: {}", builtin::names().join(", ")));
    if !given.is_empty() {
        message.push_str(&format!(". Other modules: {}", given.join(", ")));
    }
    let bare = name.strip_prefix("npm:").or_else(|| name.strip_prefix("jsr:")).unwrap_or(name);
    let registry = if name.starts_with("jsr:") { "https://esm.sh/jsr/" } else { "https://esm.sh/" };
    if !name.starts_with("node:") {
        message.push_str(&format!(
            ". If the rules of this box allow it, import packages of a registry by URL: \
             import x from \"{registry}{bare}\""
        ));
    }
    message
}

fn fail(ctx: &Ctx<'_>, message: &str) -> rquickjs::Error {
    let error = match Exception::from_message(ctx.clone(), message) {
        Ok(error) => error,
        Err(error) => return error,
    };
    // Node programs check this code.
    drop(error.as_object().set("code", "ERR_MODULE_NOT_FOUND"));
    error.throw()
}

fn syntax_error(ctx: &Ctx<'_>, name: &str, error: &ProgramError) -> rquickjs::Error {
    let at = errors::location(name, error);
    let message = format!("{} ({at})", error.message);
    Exception::throw_syntax(ctx, &message)
}

/// Returns the full name of a built-in module for `require`, or throws an error.
pub(super) fn resolve_built_in(ctx: &Ctx<'_>, host: &Host, name: &str) -> Result<String> {
    builtin::resolve(name).ok_or_else(|| {
        let sources = host.sources.borrow();
        let message = match sources.find(name) {
            Some(full) => format!("`{full}` is an ES module; use `import x from \"{full}\"`"),
            None => unknown(&sources, name),
        };
        fail(ctx, &message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_of_modules_are_decoded_in_every_encoding() {
        let text = |address: &str| data_text(address).unwrap().source;
        assert_eq!(text("text/javascript,export%20default%201"), "export default 1");
        assert_eq!(text("text/javascript;base64,ZXhwb3J0IGRlZmF1bHQgMQ=="), "export default 1");
        assert_eq!(text(",100%"), "100%");
        assert_eq!(data_text("application/json,{}").map(|text| text.kind), Ok(Language::Json));
        assert!(data_text("nothing").is_err());
    }
}
