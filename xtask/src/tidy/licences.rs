//! Every package that is built has a licence that `deny.toml` allows, none is on its ban list, and all
//! come from the Rust registry or from this tree.
//!
//! `cargo deny` checks the same and more from the same file, but takes minutes to build; this is
//! the part that must hold on every machine.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Where packages may come from; what is of this tree has no source.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// `built` is what `cargo tree` lists, as `name vVERSION …`: the lock file also names packages that only
/// a feature which nobody asked for would bring.
pub(super) fn check(metadata: &Value, deny: &str, built: &str) -> Result<Vec<String>> {
    let built: HashSet<(&str, &str)> = built
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let deny: toml::Table = deny.parse().context("read deny.toml")?;
    let allowed = names(&deny, &["licenses", "allow"])?;
    let banned = names(&deny, &["bans", "deny"])?;
    let packages = metadata
        .get("packages")
        .and_then(Value::as_array)
        .context("cargo metadata has no packages")?;
    let mut complaints = Vec::new();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(Value::as_str);
        let name = text("name").context("a package without a name")?;
        let version = text("version").unwrap_or("?");
        if !built.contains(&(name, version)) {
            continue;
        }
        if banned.iter().any(|ban| ban == name) {
            complaints.push(format!("{name} {version}: banned in deny.toml"));
        }
        if let Some(source) = text("source").filter(|source| *source != REGISTRY) {
            complaints.push(format!("{name} {version}: comes from {source}"));
        }
        match text("license") {
            Some(expression) if satisfied(expression, &allowed) => {}
            Some(expression) => {
                complaints
                    .push(format!("{name} {version}: deny.toml does not allow `{expression}`"));
            }
            None => complaints.push(format!("{name} {version}: names no licence")),
        }
    }
    Ok(complaints)
}

/// A list of deny.toml, whose entries are strings or tables with `name` or `crate`.
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
        .map(|entry| name(entry).with_context(|| format!("deny.toml: odd entry {entry}")))
        .collect()
}

/// Whether a licence expression (SPDX, or the older `MIT/Apache-2.0`) can be met with `allowed`.
/// What cannot be read is not met.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let verdict = any(&mut words, allowed);
    verdict == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut verdict = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        // Not `||`: the right side has to be read in any case.
        verdict |= all(words, allowed)?;
    }
    Some(verdict)
}

fn all(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut verdict = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        verdict &= one(words, allowed)?;
    }
    Some(verdict)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let verdict = any(words, allowed)?;
        return words.next_if_eq(&")").map(|_| verdict);
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
    fn expressions_are_met_or_not() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned);
        for good in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-2.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(satisfied(good, &allowed), "{good}");
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
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn bans_foreign_licences_and_foreign_sources_are_found() {
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
                "openssl 1.0.0: banned in deny.toml",
                "viral 1.0.0: deny.toml does not allow `AGPL-3.0`",
                "bare 1.0.0: names no licence",
                "git 1.0.0: comes from git+https://x"
            ]
        );
        assert!(check(&metadata, "[licenses]\nallow = []", built).is_err());
    }
}
