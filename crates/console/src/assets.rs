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

/// All files of the console.
pub static ASSETS: [Asset; 4] = [
    Asset {
        path: "/static/console.css",
        media_type: "text/css; charset=utf-8",
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

    /// The limit of the design for code of our own.
    const MAX_SCRIPT: usize = 12 * 1024;

    #[test]
    fn own_scripts_have_at_most_12_kib() {
        let own = ASSETS.iter().filter(|asset| asset.is_own);
        let length: usize = own.map(|asset| asset.content().len()).sum();
        assert!(length > 0 && length <= MAX_SCRIPT, "{length} bytes");
    }
}
