//! The names of files and directories that usually have credentials.

use std::path::{Component, Path};

/// Names of files and directories, in lower case.
const NAMES: [&str; 26] = [
    ".aws",
    ".azure",
    ".docker",
    ".env",
    ".envrc",
    ".git",
    ".git-credentials",
    ".gnupg",
    ".htpasswd",
    ".kube",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".vault-token",
    ".yarnrc.yml",
    "_netrc",
    "credentials",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "secret",
    "secrets",
];

/// Beginnings of names, in lower case.
const PREFIXES: [&str; 6] =
    [".env.", "credentials.", "secret.", "secrets.", "service-account", "terraform.tfstate"];

/// Ends of names, in lower case.
const SUFFIXES: [&str; 12] = [
    ".env",
    ".gpg",
    ".jks",
    ".kdbx",
    ".key",
    ".keystore",
    ".p12",
    ".pem",
    ".pfx",
    ".ppk",
    ".tfstate",
    ".tfvars",
];

/// Ends of names of examples, which have no credentials.
const EXAMPLES: [&str; 4] = [".example", ".sample", ".template", ".dist"];

/// Returns whether a part of a path has a name that files or directories with credentials usually have.
pub fn holds_credentials(path: &Path) -> bool {
    path.components().any(|component| match component {
        Component::Normal(name) => is_listed(&name.to_string_lossy().to_lowercase()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            false
        }
    })
}

fn is_listed(name: &str) -> bool {
    let starts = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let ends = SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    let is_example = EXAMPLES.iter().any(|end| name.ends_with(end));
    NAMES.contains(&name) || ((starts || ends) && !is_example)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: bool) {
        assert_eq!(holds_credentials(Path::new(path)), expected, "{path}");
    }

    #[test]
    fn names_of_files_with_credentials_are_found_in_every_part_of_a_path() {
        for path in [
            ".env",
            "app/.ENV",
            ".env.production",
            "prod.env",
            "deploy/id_ed25519",
            ".ssh/config",
            "certs/server.key",
            "a/.git/config",
            "./secrets/all.txt",
            "config/credentials.json",
        ] {
            check(path, true);
        }
    }

    #[test]
    fn names_of_other_files_and_of_examples_are_accepted() {
        for path in
            [".", "src/main.rs", ".env.example", "environment.md", "keys.md", ".github/a.yml"]
        {
            check(path, false);
        }
    }
}
