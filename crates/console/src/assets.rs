//! The files of the console that never change while a server runs.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// A file of the console.
#[derive(Debug)]
pub struct Asset {
    pub path: &'static str,
    pub media_type: &'static str,
    source: &'static str,
    /// Whether the file is ours, so that its comments need not be sent.
    is_own: bool,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All files of the console.
pub static ASSETS: [Asset; 8] = [
    Asset {
        path: "/static/console.css",
        media_type: STYLE,
        source: include_str!("../assets/console.css"),
        is_own: false,
    },
    Asset {
        path: "/static/console.js",
        media_type: SCRIPT,
        source: include_str!("../assets/console.js"),
        is_own: true,
    },
    Asset {
        path: "/static/ledger.js",
        media_type: SCRIPT,
        source: include_str!("../assets/ledger.js"),
        is_own: true,
    },
    Asset {
        path: "/static/icon.svg",
        media_type: "image/svg+xml",
        source: include_str!("../assets/icon.svg"),
        is_own: false,
    },
    Asset {
        path: "/static/term.js",
        media_type: SCRIPT,
        source: include_str!("../assets/term.js"),
        is_own: true,
    },
    Asset {
        path: "/static/xterm-6.0.0.js",
        media_type: SCRIPT,
        source: include_str!("../assets/vendor/xterm.js"),
        is_own: false,
    },
    Asset {
        path: "/static/xterm-6.0.0.css",
        media_type: STYLE,
        source: include_str!("../assets/vendor/xterm.css"),
        is_own: false,
    },
    Asset {
        path: "/static/addon-fit-0.11.0.js",
        media_type: SCRIPT,
        source: include_str!("../assets/vendor/addon-fit.js"),
        is_own: false,
    },
];

impl Asset {
    /// Returns the file as it is sent.
    pub fn content(&self) -> String {
        if self.is_own { without_comments(self.source) } else { self.source.to_owned() }
    }
}

/// Removes the indentation and the lines of comments of a script.
fn without_comments(source: &str) -> String {
    let lines = source.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// A text that differs for different files, so that a browser keeps no file of another version.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Sha256::new();
        ASSETS.iter().for_each(|asset| hash.update(asset.source));
        hex::encode(hash.finalize()).chars().take(12).collect()
    });
    &VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit for our own scripts of one page: that of all pages, and that of the ledger or of a terminal.
    const MAX_SCRIPT: usize = 12 * 1024;

    #[test]
    fn own_scripts_of_a_page_have_at_most_12_kib() {
        let length = |path: &str| {
            ASSETS.iter().find(|asset| asset.path == path && asset.is_own).unwrap().content().len()
        };
        let common = length("/static/console.js");
        for path in ["/static/ledger.js", "/static/term.js"] {
            let sum = common + length(path);
            assert!(sum <= MAX_SCRIPT, "{path}: {sum} bytes");
        }
        let own = ASSETS.iter().filter(|asset| asset.is_own).count();
        assert_eq!(own, 3, "a new script belongs to this test");
    }

    /// The files of others are exactly those of the registry: `@xterm/xterm` 6.0.0 and `@xterm/addon-fit` 0.11.0.
    #[test]
    fn files_of_others_are_unchanged() {
        let expect = [
            (
                "/static/xterm-6.0.0.js",
                "b336ec65a086c056d4804b3d4c2347da5663d3f23c3f25be866467bd8857ad59",
            ),
            (
                "/static/xterm-6.0.0.css",
                "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6",
            ),
            (
                "/static/addon-fit-0.11.0.js",
                "2d87e1bddc73be9111de8beee5370c3bb7aac9c94e18e6f245f02ca741ef1769",
            ),
        ];
        for (path, hash) in expect {
            let asset = ASSETS.iter().find(|asset| asset.path == path).unwrap();
            assert_eq!(hex::encode(Sha256::digest(asset.content())), hash, "{path}");
        }
    }
}
