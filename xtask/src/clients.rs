//! Installs client programs that tests run and that no Debian package provides. Their versions are
//! fixed, and they are installed into `clients` of the target directory. The tests that use them are
//! `crates/belljar/tests/e2e/clients.rs`, `mcp.rs` and `agents.rs`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::packages::{self, Package};
use crate::shell::{cargo, program, read, root, run, target_dir, which};

const NPM_PACKAGE: Package = Package {
    name: "npm",
    program: "npm",
    reason: "a client of a box's network; installs other clients",
};

/// Packages that npm installs into `npm/`.
const NPM: [&str; 3] = ["bun@1.4.4", "deno@2.9.6", "pnpm@12.18.0"];

/// Coding agents that npm installs into `agents/`. Tests control them with a scripted model.
const AGENTS: [&str; 3] =
    ["@anthropic-ai/claude-code@2.1.325", "@google/gemini-cli@0.61.0", "@openai/codex@0.166.0"];

/// An MCP server of another project, which npm installs into `servers/`.
const SERVERS: [&str; 1] = ["@modelcontextprotocol/server-everything@2026.8.31"];

/// Reference implementations that npm installs into `typescript/`: TypeScript for types, Node and Deno
/// for the results of programs.
const TYPESCRIPT: [&str; 3] = ["deno@2.9.6", "node@24.21.0", "typescript@6.0.3"];

/// Packages that pip installs into `python/`, for the Python of the system, which boxes use.
const PYPI: [&str; 4] =
    ["aiohttp==3.14.5", "httpx[http2]==0.28.1", "requests==2.34.2", "uv==0.13.7"];
const PYTHON: &str = "/usr/bin/python3";

/// Conformance tests and clients of MCP that npm installs into `mcp/npm/`, with a Node that supports them.
const MCP_NPM: [&str; 3] = [
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "node@22.23.3",
];

/// Packages that pip installs into `mcp/python/`.
const MCP_PYPI: [&str; 1] = ["mcp==2.3.0"];

/// Linters of GitHub workflows that pip installs into `linters/`.
const LINTERS: [&str; 2] = ["check-jsonschema==0.39.0", "zizmor==1.32.0"];

/// The driver of Chromium and a checker of accessibility, which npm installs into `browser/`.
const BROWSER: [&str; 2] = ["playwright-core@1.65.0", "axe-core@4.14.0"];

/// The identity provider that the tests of the login use, which npm installs into `oidc/`. It runs in the Node
/// of `typescript/`.
const OIDC: [&str; 1] = ["oidc-provider@9.13.3"];

/// The test tool of the API, which pip installs into `schemathesis/`.
const SCHEMATHESIS: [&str; 1] = ["schemathesis==4.32.0"];

/// Installs the clients that are not installed yet.
pub(crate) fn install() -> Result<()> {
    let dir = target_dir()?.join("clients");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // Some packages of Node include npm and conflict with the package `npm`.
    if which(NPM_PACKAGE.program).is_none() {
        packages::install(&[NPM_PACKAGE])?;
    }
    let by_npm = [
        ("npm", &NPM[..]),
        ("agents", &AGENTS),
        ("servers", &SERVERS),
        ("typescript", &TYPESCRIPT),
        ("browser", &BROWSER),
        ("oidc", &OIDC),
    ];
    for (name, packages) in by_npm {
        install_once(&dir, name, &packages.join(" "), |to| npm(to, packages))?;
    }
    install_once(&dir, "python", &PYPI.join(" "), |to| pip(to, &PYPI))?;
    install_once(&dir, "mcp", &[MCP_NPM.join(" "), MCP_PYPI.join(" ")].join(" "), |to| {
        npm(&to.join("npm"), &MCP_NPM)?;
        pip(&to.join("python"), &MCP_PYPI)
    })?;
    install_once(&dir, "linters", &LINTERS.join(" "), |to| pip(to, &LINTERS))?;
    install_once(&dir, "schemathesis", &SCHEMATHESIS.join(" "), |to| pip(to, &SCHEMATHESIS))?;
    let version = read(cargo().arg("--version"))?;
    install_once(&dir, "rust", version.trim(), rust)
}

/// Checks the workflows of GitHub against their schema, and for insecure settings.
pub(crate) fn lint_workflows() -> Result<()> {
    let dir = target_dir()?.join("clients/linters");
    let linter = |name: &str| {
        let mut command = program(dir.join("bin").join(name));
        command.env("PYTHONPATH", &dir).current_dir(root());
        command
    };
    let workflows = [".github/workflows/ci.yml", ".github/workflows/release.yml"];
    let schema = ["--builtin-schema", "vendor.github-workflows"];
    run(linter("check-jsonschema").args(schema).args(workflows))?;
    run(linter("zizmor").args(["--offline", "--persona=pedantic", ".github/workflows"]))
}

/// Runs the programs of `crates/belljar/tests/programs` in Node and Deno, and fails if a result differs
/// from the expected result. `shop` is the test server that the programs call.
pub(crate) fn oracle(shop: &Path) -> Result<()> {
    let dir = target_dir()?.join("clients/typescript");
    let script = root().join("crates/belljar/tests/programs/oracle.mjs");
    run(program(dir.join("node_modules/.bin/node")).arg(script).args([&dir, shop]))
}

/// Creates a directory with `install` unless its stamp file shows that it already has `content`. The
/// stamp file is written last.
fn install_once(
    dir: &Path,
    name: &str,
    content: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let (to, stamp) = (dir.join(name), dir.join(format!("{name}.stamp")));
    if std::fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == content) {
        return Ok(());
    }
    println!("installing {content}");
    if to.exists() {
        std::fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    std::fs::create_dir(&to).with_context(|| format!("cannot create {}", to.display()))?;
    install(&to)?;
    std::fs::write(&stamp, content).with_context(|| format!("cannot write {}", stamp.display()))
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

/// Copies cargo, rustc and their libraries from the toolchain of this repository. The plain user of the
/// tests often cannot read the toolchain itself, because it is in the home directory of root.
fn rust(to: &Path) -> Result<()> {
    let rustc = read(program("rustc").args(["--print", "sysroot"]))?;
    let from = Path::new(rustc.trim());
    let mut files = vec![from.join("bin/cargo"), from.join("bin/rustc")];
    for entry in
        std::fs::read_dir(from.join("lib")).context("cannot list the libraries of rustc")?
    {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    for file in files {
        let relative = file.strip_prefix(from).context("a file is outside of the toolchain")?;
        let copy = to.join(relative);
        std::fs::create_dir_all(copy.parent().context("a file has no parent directory")?)?;
        let linked = std::fs::hard_link(&file, &copy);
        // A hard link fails across file systems, or if the kernel forbids links to files of other users.
        linked
            .or_else(|_| std::fs::copy(&file, &copy).map(drop))
            .with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(())
}
