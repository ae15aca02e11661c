//! The hosts that a lock file names.

use std::collections::BTreeSet;

use belljar_model::net::Hostname;

/// The index of crates.io in the source of a package, which the preset `crates` replaces.
const CRATES_INDEX: &str = "github.com/rust-lang/crates.io-index";

/// Returns the hosts of all `https` addresses in the text of a lock file, sorted.
pub(super) fn hosts(text: &str) -> BTreeSet<String> {
    let addresses = text.split("https://").skip(1);
    let addresses = addresses.filter(|address| !address.starts_with(CRATES_INDEX));
    addresses.filter_map(host).collect()
}

/// Returns the host at the start of an address without its scheme.
fn host(address: &str) -> Option<String> {
    let is_end = |c: char| c.is_whitespace() || "/\"'<>#?,;)]}".contains(c);
    let authority = address.split(is_end).next()?;
    let host = authority.rsplit('@').next()?.split(':').next()?.to_ascii_lowercase();
    // An address without a dot is a name of the local network, which a box cannot reach.
    host.parse::<Hostname>().ok().filter(|_| host.contains('.')).map(|_| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(hosts(text).into_iter().collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn hosts_of_each_format_of_lock_files_are_found() {
        check("source = \"registry+https://github.com/rust-lang/crates.io-index\"", &[]);
        check("source = \"git+https://github.com/acme/x?rev=1#abc\"", &["github.com"]);
        check(r#""resolved": "https://npm.pkg.github.com/@a/b.tgz","#, &["npm.pkg.github.com"]);
        check("  resolved \"https://Registry.Yarnpkg.com/a#1\"\n", &["registry.yarnpkg.com"]);
        check("{tarball: https://codeload.github.com/a/b}", &["codeload.github.com"]);
        check("{ registry = \"https://pypi.org/simple\" }", &["pypi.org"]);
        check(
            "--index-url https://user:word@pypi.acme.example:8443/simple",
            &["pypi.acme.example"],
        );
        check("GEM\n  remote: https://rubygems.org/\n", &["rubygems.org"]);
    }

    #[test]
    fn text_that_is_no_host_is_left_out() {
        check("https://", &[]);
        check("https:///x https://localhost/x https://a_b.c/ https://-a.b/", &[]);
        check("https://x\u{202e}.example/ https://a..b/", &[]);
        check("http://plain.example/x ftp://files.example", &[]);
    }
}
