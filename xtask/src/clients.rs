//! Clients that tests run, in a box or before a server of ours, and that no Debian package brings: installed
//! by name, in fixed versions, into `clients` of the target directory. The tests that use them are
//! `crates/belljar/tests/e2e/clients.rs`, `mcp.rs` and `agents.rs`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::packages::{self, Package};
use crate::shell::{cargo, program, read, root, run, target_dir, which};

const NPM_ITSELF: Package =
    Package { name: "npm", program: "npm", why: "a client of a box's network; installs others" };

/// Into `npm/`.
const NPM: [&str; 3] = ["bun@1.4.4", "deno@2.9.6", "pnpm@12.18.0"];

/// Into `agents/`: agents as people use them, which a scripted model drives.
const AGENTS: [&str; 3] =
    ["@anthropic-ai/claude-code@2.1.325", "@google/gemini-cli@0.61.0", "@openai/codex@0.166.0"];

/// Into `servers/`: an MCP server that is not ours.
const SERVERS: [&str; 1] = ["@modelcontextprotocol/server-everything@2026.8.31"];

/// Into `typescript/`: TypeScript decides what types mean, Node and Deno what programs give.
const TYPESCRIPT: [&str; 3] = ["deno@2.9.6", "node@24.21.0", "typescript@6.0.3"];

/// Into `python/`, for the Python of the system, which is the one that a box sees.
const PYPI: [&str; 4] =
    ["aiohttp==3.14.5", "httpx[http2]==0.28.1", "requests==2.34.2", "uv==0.13.7"];
const PYTHON: &str = "/usr/bin/python3";

/// Judges of MCP, into `mcp/npm/` with a Node that is new enough for them.
const MCP_NPM: [&str; 3] = [
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "node@22.23.3",
];

/// Into `mcp/python/`.
const MCP_PYPI: [&str; 1] = ["mcp==2.3.0"];

/// Installs what is missing.
pub(crate) fn install() -> Result<()> {
    let dir = target_dir()?.join("clients");
    std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    // Some packages of Node bring npm along and conflict with the one of this name.
    if which(NPM_ITSELF.program).is_none() {
        packages::install(&[NPM_ITSELF])?;
    }
    let by_npm = [
        ("npm", &NPM[..]),
        ("agents", &AGENTS),
        ("servers", &SERVERS),
        ("typescript", &TYPESCRIPT),
    ];
    for (name, packages) in by_npm {
        once(&dir, name, &packages.join(" "), |to| npm(to, packages))?;
    }
    once(&dir, "python", &PYPI.join(" "), |to| pip(to, &PYPI))?;
    once(&dir, "mcp", &[MCP_NPM.join(" "), MCP_PYPI.join(" ")].join(" "), |to| {
        npm(&to.join("npm"), &MCP_NPM)?;
        pip(&to.join("python"), &MCP_PYPI)
    })?;
    let version = read(cargo().arg("--version"))?;
    once(&dir, "rust", version.trim(), rust)
}

/// Runs the programs of `crates/belljar/tests/programs` in Node and Deno, and fails where they give
/// something else than a program says. `shop` is the web service that programs talk to.
pub(crate) fn oracle(shop: &Path) -> Result<()> {
    let dir = target_dir()?.join("clients/typescript");
    let script = root().join("crates/belljar/tests/programs/oracle.mjs");
    run(program(dir.join("node_modules/.bin/node")).arg(script).args([&dir, shop]))
}

/// Makes one directory afresh unless it holds `what` already. Its stamp is written last.
fn once(dir: &Path, name: &str, what: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (to, stamp) = (dir.join(name), dir.join(format!("{name}.stamp")));
    if std::fs::read_to_string(&stamp).is_ok_and(|said| said == what) {
        return Ok(());
    }
    println!("installing {what}");
    if to.exists() {
        std::fs::remove_dir_all(&to).with_context(|| format!("empty {}", to.display()))?;
    }
    std::fs::create_dir(&to).with_context(|| format!("make {}", to.display()))?;
    make(&to)?;
    std::fs::write(&stamp, what).with_context(|| format!("write {}", stamp.display()))
}

fn npm(to: &Path, packages: &[&str]) -> Result<()> {
    let quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
    run(program("npm").arg("install").args(quiet).arg("--prefix").arg(to).args(packages))
}

fn pip(to: &Path, packages: &[&str]) -> Result<()> {
    let quiet = ["--quiet", "--no-compile", "--root-user-action=ignore"];
    let install = ["-m", "pip", "install"];
    run(program(PYTHON).args(install).args(quiet).arg("--target").arg(to).args(packages))
}

/// The cargo of this tree's toolchain with what it asks of a rustc. The toolchain itself often lies in
/// a home that the plain user of the tests cannot read.
fn rust(to: &Path) -> Result<()> {
    let rustc = read(program("rustc").args(["--print", "sysroot"]))?;
    let from = Path::new(rustc.trim());
    let mut files = vec![from.join("bin/cargo"), from.join("bin/rustc")];
    for entry in std::fs::read_dir(from.join("lib")).context("the libraries of rustc")? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    for file in files {
        let inner = file.strip_prefix(from).context("a file of the toolchain")?;
        let copy = to.join(inner);
        std::fs::create_dir_all(copy.parent().context("a file is in a directory")?)?;
        let linked = std::fs::hard_link(&file, &copy);
        // Another file system, or a kernel that lets nobody link to files of others.
        linked
            .or_else(|_| std::fs::copy(&file, &copy).map(drop))
            .with_context(|| format!("copy {}", file.display()))?;
    }
    Ok(())
}
