//! The remotes of a repository, from the text of its `.git/config`. Git does not run.

use serde::Serialize;

/// Hosts of repositories whose paths name the owner, so that a rule cannot reach repositories of others.
const FORGES: [&str; 4] = ["github.com", "gitlab.com", "codeberg.org", "bitbucket.org"];

/// A remote repository on a well-known forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remote {
    /// The name of the remote, for example `origin`.
    pub name: String,
    pub host: String,
    /// The path without a leading slash and without `.git`, for example `acme/shop`.
    pub path: String,
}

impl Remote {
    /// Returns the rule that allows programs to fetch from the remote.
    pub(super) fn fetch_rule(&self) -> String {
        self.rule("fetch", &["info/refs", "git-upload-pack"])
    }

    /// Returns the rule that allows programs to push to the remote.
    pub(super) fn push_rule(&self) -> String {
        self.rule("push", &["git-receive-pack"])
    }

    fn rule(&self, what: &str, ends: &[&str]) -> String {
        let Self { name, host, path } = self;
        let paths = ends
            .iter()
            .flat_map(|end| [format!("\"/{path}/{end}\""), format!("\"/{path}.git/{end}\"")]);
        let paths: Vec<String> = paths.collect();
        format!(
            "{{ name = \"{what} {name}\", host = \"{host}\", methods = [\"GET\", \"POST\"], paths = [{}] }}",
            paths.join(", ")
        )
    }
}

/// Returns the remotes on well-known forges.
pub(super) fn parse(config: &str) -> Vec<Remote> {
    let mut remotes: Vec<Remote> = Vec::new();
    let mut section = None;
    for line in config.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let name = header.strip_prefix("remote \"").and_then(|rest| rest.strip_suffix("\"]"));
            section = name.filter(|name| is_plain(name));
        } else if let (Some(name), Some((key, url))) = (section, line.split_once('='))
            && key.trim().eq_ignore_ascii_case("url")
            && let Some((host, path)) = repository(url.trim())
            && remotes.iter().all(|other| (&other.host, &other.path) != (&host, &path))
        {
            remotes.push(Remote { name: name.to_owned(), host, path });
        }
    }
    remotes
}

/// Returns the host and the path of a repository on a forge: `https://HOST/PATH`, `ssh://git@HOST/PATH` or
/// `git@HOST:PATH`.
fn repository(url: &str) -> Option<(String, String)> {
    let (authority, path) = match url.split_once("://") {
        Some(("https" | "ssh", rest)) => rest.split_once('/')?,
        Some(_) => return None,
        None => url.split_once(':')?,
    };
    let host = authority.rsplit('@').next()?.to_ascii_lowercase();
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let is_repository = path.split('/').count() >= 2 && path.split('/').all(is_plain);
    (FORGES.contains(&host.as_str()) && is_repository).then(|| (host, path.to_owned()))
}

/// Returns whether a text is a name that needs no quoting in a rule.
fn is_plain(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text != "." && text != ".." && text.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<&str>) {
        let found = repository(url).map(|(host, path)| format!("{host} {path}"));
        assert_eq!(found.as_deref(), expected, "{url}");
    }

    #[test]
    fn repository_is_found_in_each_form_of_an_address() {
        check("https://github.com/acme/shop.git", Some("github.com acme/shop"));
        check("https://token@github.com/acme/shop/", Some("github.com acme/shop"));
        check("git@GitHub.com:acme/shop.git", Some("github.com acme/shop"));
        check("ssh://git@gitlab.com/group/sub/shop", Some("gitlab.com group/sub/shop"));
    }

    #[test]
    fn addresses_that_a_rule_cannot_name_are_left_out() {
        check("https://git.stranger.example/acme/shop", None);
        check("https://github.com/acme", None);
        check("https://github.com/acme/../shop", None);
        check("https://github.com/acme/**", None);
        check("https://github.com/a\"b/c", None);
        check("http://github.com/acme/shop", None);
        check("https://github.com:8443/acme/shop", None);
        check("/home/me/shop", None);
        check("../shop", None);
    }

    #[test]
    fn parse_reads_the_remotes_of_a_configuration() {
        let config = "[core]\n\turl = https://github.com/a/b\n[remote \"origin\"]\n\turl = git@github.com:acme/shop.git\n\tfetch = x\n[remote \"copy\"]\n\tURL=https://github.com/acme/shop\n[remote \"x\\\"y\"]\n\turl = https://github.com/c/d\n[remote \"up\"]\n\turl = https://codeberg.org/acme/shop\n";
        let names: Vec<String> = parse(config)
            .into_iter()
            .map(|remote| format!("{} {}", remote.name, remote.host))
            .collect();
        assert_eq!(names, ["origin github.com", "up codeberg.org"]);
    }
}
