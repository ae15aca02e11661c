//! Built-in rules and secrets for common services.
//!
//! Registries are read-only, so nothing can be published there (A20). Model APIs and GitHub are limited
//! to the paths that programs need, so that a box cannot upload data to a stranger's account.

use std::fmt;
use std::str::FromStr;

use super::by_text;
use super::rule::Rule;
use super::secret::SecretDecl;

/// The name of a built-in preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PresetName(&'static str);

/// The reason why a text is not the name of a preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset; the presets are {}", PresetName::all().map(|name| name.0).join(", "))]
pub struct PresetError;

/// A named set of rules and secret declarations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    pub name: PresetName,
    /// A one-line description of the preset.
    pub about: &'static str,
    pub rules: Vec<Rule>,
    pub secrets: Vec<SecretDecl>,
}

struct Data {
    name: &'static str,
    about: &'static str,
    /// The rules of the preset as on a command line, each with the paths for its host.
    rules: &'static [(&'static str, &'static [&'static str])],
    secrets: &'static [Secret],
}

struct Secret {
    name: &'static str,
    hosts: &'static [&'static str],
    slots: &'static [&'static str],
    shape: &'static str,
    env: &'static str,
}

const PRESETS: [Data; 9] = [
    Data {
        name: "anthropic",
        about: "messages and the list of models of the Anthropic API; no files, no administration",
        rules: &[
            (
                "POST api.anthropic.com",
                &["/v1/messages", "/v1/messages/count_tokens", "/v1/complete"],
            ),
            ("GET api.anthropic.com", &["/v1/models/**"]),
        ],
        secrets: &[Secret {
            name: "anthropic",
            hosts: &["api.anthropic.com"],
            slots: &["header:x-api-key", "header:authorization"],
            // Claude Code stores the last twenty characters of a key that the user approved. They are
            // the same in every box, so that `claude.toml` can approve them.
            shape: "sk-ant-api03-{75}-belljar-placeholder",
            env: "ANTHROPIC_API_KEY",
        }],
    },
    Data {
        name: "openai",
        about: "responses, completions, embeddings, images, speech and the list of models of the OpenAI API; no files",
        rules: &[
            (
                "POST api.openai.com",
                &[
                    "/v1/responses/**",
                    "/v1/chat/completions",
                    "/v1/completions",
                    "/v1/embeddings",
                    "/v1/moderations",
                    "/v1/images/**",
                    "/v1/audio/**",
                ],
            ),
            ("GET api.openai.com", &["/v1/models/**", "/v1/responses/**"]),
        ],
        secrets: &[Secret {
            name: "openai",
            hosts: &["api.openai.com"],
            slots: &["header:authorization"],
            shape: "sk-proj-{74}T3BlbkFJ{74}",
            env: "OPENAI_API_KEY",
        }],
    },
    Data {
        name: "gemini",
        about: "the models of the Gemini API, and its OpenAI-compatible side; no files",
        rules: &[(
            "GET,POST generativelanguage.googleapis.com",
            &["/v1/models/**", "/v1beta/models/**", "/v1alpha/models/**", "/v1beta/openai/**"],
        )],
        secrets: &[Secret {
            name: "gemini",
            hosts: &["generativelanguage.googleapis.com"],
            slots: &["header:x-goog-api-key", "query:key", "header:authorization"],
            shape: "AIza{35}",
            env: "GEMINI_API_KEY",
        }],
    },
    Data {
        name: "github",
        about: "GitHub's API but for gists, git over https with push, and downloads of releases and sources",
        rules: &[
            (
                "api.github.com",
                &[
                    "/",
                    "/repos/**",
                    "/repositories/**",
                    "/orgs/**",
                    "/user",
                    "/user/repos",
                    "/user/orgs",
                    "/user/issues",
                    "/users/**",
                    "/search/**",
                    "/graphql",
                    "/rate_limit",
                    "/meta",
                    "/issues",
                    "/notifications/**",
                    "/app/**",
                    "/installation/**",
                ],
            ),
            (
                "GET,HEAD github.com",
                &["/*/*/info/refs", "/*/*/releases/**", "/*/*/archive/**", "/*/*/raw/**"],
            ),
            (
                "POST github.com",
                &["/*/*/git-upload-pack", "/*/*/git-receive-pack", "/*/*/info/lfs/objects/batch"],
            ),
            ("POST uploads.github.com", &["/repos/**"]),
            ("GET,HEAD codeload.github.com", &[]),
            ("GET,HEAD raw.githubusercontent.com", &[]),
            ("GET,HEAD objects.githubusercontent.com", &[]),
            ("GET,HEAD release-assets.githubusercontent.com", &[]),
        ],
        secrets: &[Secret {
            name: "github",
            hosts: &["api.github.com", "github.com", "uploads.github.com"],
            slots: &["header:authorization", "basic"],
            shape: "ghp_{36}",
            env: "GITHUB_TOKEN",
        }],
    },
    Data {
        name: "pypi",
        about: "reading packages from PyPI; nothing can be uploaded",
        rules: &[
            ("GET,HEAD pypi.org", &["/simple/**", "/pypi/**"]),
            ("GET,HEAD files.pythonhosted.org", &[]),
        ],
        secrets: &[],
    },
    Data {
        name: "npm",
        about: "reading packages from the npm registry; nothing can be published, and no audit is sent",
        rules: &[("GET,HEAD registry.npmjs.org", &[]), ("GET,HEAD registry.yarnpkg.com", &[])],
        secrets: &[],
    },
    Data {
        name: "crates",
        about: "reading crates from crates.io; nothing can be published",
        rules: &[
            ("GET,HEAD index.crates.io", &[]),
            ("GET,HEAD static.crates.io", &[]),
            ("GET,HEAD crates.io", &["/api/v1/crates/**"]),
        ],
        secrets: &[],
    },
    Data {
        name: "debian",
        about: "reading packages from Debian, over https and, since apt checks signatures, plain http",
        rules: &[
            ("GET,HEAD deb.debian.org", &[]),
            ("GET,HEAD security.debian.org", &[]),
            ("GET,HEAD http://deb.debian.org", &[]),
            ("GET,HEAD http://security.debian.org", &[]),
        ],
        secrets: &[],
    },
    Data {
        name: "git-https",
        about: "git clone and fetch over https from GitHub, GitLab, Codeberg and Bitbucket; no push",
        rules: &[
            ("GET github.com", &["/*/*/info/refs"]),
            ("POST github.com", &["/*/*/git-upload-pack"]),
            ("GET gitlab.com", &["/**/info/refs"]),
            ("POST gitlab.com", &["/**/git-upload-pack"]),
            ("GET codeberg.org", &["/*/*/info/refs"]),
            ("POST codeberg.org", &["/*/*/git-upload-pack"]),
            ("GET bitbucket.org", &["/*/*/info/refs"]),
            ("POST bitbucket.org", &["/*/*/git-upload-pack"]),
        ],
        secrets: &[],
    },
];

/// Returns the preset of this name, if it exists.
pub fn preset(name: &str) -> Option<Preset> {
    PRESETS.iter().find(|data| data.name == name).and_then(Data::preset)
}

impl PresetName {
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the names of all presets, in the order in which they are shown.
    pub fn all() -> [Self; 9] {
        PRESETS.each_ref().map(|data| Self(data.name))
    }

    pub fn preset(self) -> Option<Preset> {
        preset(self.0)
    }
}

impl Data {
    /// Parses the preset, or returns `None` if the table is malformed, which a test excludes.
    fn preset(&self) -> Option<Preset> {
        let rules = self.rules.iter().map(|(text, paths)| self.rule(text, paths));
        let secrets = self.secrets.iter().map(Secret::declaration);
        Some(Preset {
            name: PresetName(self.name),
            about: self.about,
            rules: rules.collect::<Option<_>>()?,
            secrets: secrets.collect::<Option<_>>()?,
        })
    }

    fn rule(&self, text: &str, paths: &[&str]) -> Option<Rule> {
        use super::rule::{HttpRule, RuleTarget};
        let rule = Rule::allow(text).ok()?;
        let paths = paths.iter().map(|path| path.parse().ok()).collect::<Option<Vec<_>>>()?;
        let paths = (!paths.is_empty()).then_some(paths);
        let http = HttpRule { paths, ..rule.http()?.clone() };
        // A name with all paths would be too long to read.
        let id = format!("preset {}: {text}", self.name);
        Rule::allowing(Some(id), RuleTarget::Http(http)).ok()
    }
}

impl Secret {
    fn declaration(&self) -> Option<SecretDecl> {
        let hosts = self.hosts.iter().map(|host| host.parse().ok()).collect::<Option<_>>()?;
        let slots = self.slots.iter().map(|slot| slot.parse().ok()).collect::<Option<_>>()?;
        Some(SecretDecl {
            slots,
            shape: self.shape.parse().ok()?,
            env: Some(self.env.to_owned()),
            ..SecretDecl::token(self.name.parse().ok()?, hosts)
        })
    }
}

impl FromStr for PresetName {
    type Err = PresetError;

    fn from_str(text: &str) -> Result<Self, PresetError> {
        Self::all().into_iter().find(|name| name.0 == text).ok_or(PresetError)
    }
}

impl fmt::Display for PresetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

by_text!(PresetName);
