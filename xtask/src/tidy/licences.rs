//! Checks that every package has a licence that `deny.toml` allows, is not banned there, and comes from
//! crates.io or from this repository.
//!
//! `cargo deny` checks more from the same file, but takes minutes to build. These checks run on every
//! machine.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The only permitted source of packages. Packages of this repository have no source.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the packages in `built`, the output of `cargo tree` with lines `name vVERSION …`. The lock
/// file also has packages of features that are not enabled.
pub(super) fn check(metadata: &Value, deny: &str, built: &str) -> Result<Vec<String>> {
    let built: HashSet<(&str, &str)> = built
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?.strip_prefix('v')?))
        })
        .collect();
    let deny: toml::Table = deny.parse().context("cannot parse deny.toml")?;
    let allowed = names(&deny, &["licenses", "allow"])?;
    let banned = names(&deny, &["bans", "deny"])?;
    let packages = metadata
        .get("packages")
        .and_then(Value::as_array)
        .context("cargo metadata has no packages")?;
    let mut complaints = Vec::new();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(Value::as_str);
        let name = text("name").context("cargo metadata has a package without a name")?;
        let version = text("version").unwrap_or("?");
        if !built.contains(&(name, version)) {
            continue;
        }
        if banned.iter().any(|ban| ban == name) {
            complaints.push(format!("{name} {version}: deny.toml bans this package"));
        }
        if let Some(source) = text("source").filter(|source| *source != REGISTRY) {
            complaints.push(format!(
                "{name} {version}: comes from {source}; only crates.io is permitted"
            ));
        }
        match text("license") {
            Some(expression) if is_satisfied(expression, &allowed) => {}
            Some(expression) => {
                complaints.push(format!(
                    "{name} {version}: deny.toml does not allow the licence `{expression}`"
                ));
            }
            None => complaints.push(format!("{name} {version}: the package has no licence")),
        }
    }
    Ok(complaints)
}

/// Returns a list of deny.toml, whose entries are strings or tables with `name` or `crate`.
fn names(deny: &toml::Table, keys: &[&str; 2]) -> Result<Vec<String>> {
    let [section, key] = keys;
    let list =
        deny.get(*section).and_then(|section| section.get(*key)).and_then(toml::Value::as_array);
    let list = list.with_context(|| format!("deny.toml has no `{key}` in [{section}]"))?;
    let name = |entry: &toml::Value| {
        let inner = entry.get("crate").or_else(|| entry.get("name")).unwrap_or(entry);
        inner.as_str().map(str::to_owned)
    };
    list.iter()
        .map(|entry| name(entry).with_context(|| format!("deny.toml: entry {entry} has no name")))
        .collect()
}

/// Whether the allowed licences satisfy a licence expression (SPDX, or the older `MIT/Apache-2.0`). An
/// expression that cannot be parsed is not satisfied.
fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let result = parse_or(&mut words, allowed);
    result == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Parses and evaluates `A OR B …`.
fn parse_or(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut result = parse_and(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        // Not `||`, because the right side must be parsed in any case.
        result |= parse_and(words, allowed)?;
    }
    Some(result)
}

/// Parses and evaluates `A AND B …`.
fn parse_and(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut result = parse_licence(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        result &= parse_licence(words, allowed)?;
    }
    Some(result)
}

/// Parses and evaluates a licence, a licence with an exception, or an expression in brackets.
fn parse_licence(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let result = parse_or(words, allowed)?;
        return words.next_if_eq(&")").map(|_| result);
    }
    if words.next_if_eq(&"WITH").is_none() {
        return Some(allowed.iter().any(|licence| licence == word));
    }
    let licence = format!("{word} WITH {}", words.next()?);
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn licence_expressions_are_evaluated_with_or_and_with_and_brackets() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned);
        for good in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-2.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_satisfied(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT OR",
            "GPL-2.0 OR (MIT AND GPL-3.0)",
            "(MIT",
            "MIT WITH Classpath-exception-2.0",
            "MIT Apache-2.0",
        ] {
            assert!(!is_satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn banned_packages_other_licences_and_other_sources_are_refused() {
        let deny = r#"
            [licenses]
            allow = ["MIT"]
            [bans]
            deny = [{ crate = "openssl", reason = "one TLS stack" }, "ring"]
        "#;
        let package = |name: &str, licence: Option<&str>| json!({ "name": name, "version": "1.0.0", "license": licence });
        let metadata = json!({ "packages": [
            package("fine", Some("MIT OR Apache-2.0")),
            package("openssl", Some("MIT")),
            package("viral", Some("AGPL-3.0")),
            package("bare", None),
            package("ring", Some("ISC")),
            json!({ "name": "ours", "version": "1.0.0", "license": "MIT", "source": null }),
            json!({ "name": "listed", "version": "1.0.0", "license": "MIT", "source": REGISTRY }),
            json!({ "name": "git", "version": "1.0.0", "license": "MIT", "source": "git+https://x" }),
        ] });
        let built = "fine v1.0.0\nopenssl v1.0.0 (*)\nviral v1.0.0\n\nbare v1.0.0 (/somewhere)\n\
                     ours v1.0.0\nlisted v1.0.0\ngit v1.0.0\n";
        assert_eq!(
            check(&metadata, deny, built).unwrap(),
            [
                "openssl 1.0.0: deny.toml bans this package",
                "viral 1.0.0: deny.toml does not allow the licence `AGPL-3.0`",
                "bare 1.0.0: the package has no licence",
                "git 1.0.0: comes from git+https://x; only crates.io is permitted"
            ]
        );
        assert!(check(&metadata, "[licenses]\nallow = []", built).is_err());
    }
}
