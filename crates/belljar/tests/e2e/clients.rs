//! Clients as people have them, not told of anything, inside a box and against servers with real TLS.
//!
//! Each one reaches a host that a rule names, gets in with a placeholder where only the real value
//! opens, never sees that value although the server repeats it in every spelling, and gets nothing
//! from a host that no rule names. The programs come from Debian packages (`xtask/src/packages.rs`) or
//! lie in `clients` of the target directory (`xtask/src/clients.rs`); a missing one is a failure.

mod fetch;
mod file_server;
mod git;
mod registries;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_testkit::{Authority, Canary, Ended, Lab, Received, Reply, Upstream};

use crate::lab;

/// Where the clients are inside a box.
const CLIENTS: &str = "/opt/clients";
/// The host that no rule names.
const NOBODY: &str = "nobody.example.net";

/// What a client does, and what comes of it.
struct Visit<'a> {
    /// The secret and its declaration; empty for one that a preset declares.
    secret: &'a str,
    declared: &'a str,
    /// Presets that say what may be done.
    presets: &'a [&'a str],
    /// Hosts that a preset allows, and hosts that a rule of the operator's allows.
    preset_hosts: &'a [&'a str],
    own_hosts: &'a [&'a str],
    /// For bash. Has to write `got it`, and the answer in which the server repeats the secret.
    script: &'a str,
    /// The same toward [`NOBODY`]. Has to fail.
    elsewhere: &'a str,
}

/// The secret of hosts that come with no declaration of their own.
fn declare(hosts: &[&str]) -> String {
    format!(
        "[secret.api]\nhosts = {hosts:?}\nslots = [\"header:authorization\", \"basic\"]\nenv = \"API_TOKEN\"\n"
    )
}

/// A server that lets nobody in without the secret to the hosts that are `guarded`.
fn upstream(
    authority: &Authority,
    hosts: &[&str],
    guarded: &[&str],
    canary: &Canary,
    serve: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> Upstream {
    let (canary, guarded) =
        (canary.clone(), guarded.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>());
    Upstream::tls(authority, hosts, move |received| {
        let is_guarded = received.sni.as_ref().is_some_and(|host| guarded.contains(host));
        let given = received.header("authorization").unwrap_or_default();
        if is_guarded && !canary.is_in(given) {
            return Reply::new(401, "who are you?")
                .header("www-authenticate", "Basic realm=\"it\"");
        }
        serve(received)
    })
}

impl Visit<'_> {
    #[track_caller]
    fn check(&self, lab: &Lab, authority: &Authority, canary: &Canary, upstream: &Upstream) {
        self.configure(lab, authority, upstream);
        lab.belljar(["secret", "set", self.secret]).input(canary.value()).succeed();

        let ended = self.run(lab, self.script);
        let out = ended.expect(0);
        assert!(out.contains("got it"), "stdout: {out}\nstderr: {}", ended.err());
        let repeated = format!("[belljar:{}]", self.secret);
        assert!(out.contains(&repeated), "the server repeats it: {out}\n{}", ended.err());
        let authorized =
            |it: &Received| canary.is_in(it.header("authorization").unwrap_or_default());
        let received = upstream.received();
        assert!(received.iter().any(authorized), "nobody got the real value: {received:?}");
        self.unseen(lab, canary, &ended);
        self.by_rules(lab);

        let ended = self.run(lab, self.elsewhere);
        assert_ne!(ended.code(), 0, "stdout: {}", ended.out());
        let err = ended.err();
        assert!(err.contains("denied: ") && err.contains(NOBODY), "not refused, but: {err}");
        assert_eq!(upstream.received().len(), received.len(), "{:?}", upstream.received());
    }

    fn configure(&self, lab: &Lab, authority: &Authority, upstream: &Upstream) {
        let connect = format!("connect = \"{}\"\n", upstream.address());
        let mut rules = String::from(self.declared);
        for host in self.own_hosts {
            rules += &format!("[[template.default.allow]]\nhost = {host:?}\n{connect}");
        }
        // Says where the host is and allows nothing that any client asks for.
        for host in self.preset_hosts {
            let nothing = "methods = [\"PUT\"]\npaths = [\"/nothing\"]\n";
            rules += &format!("[[template.default.allow]]\nhost = {host:?}\n{connect}{nothing}");
        }
        for preset in self.presets {
            rules += &format!("[[template.default.allow]]\npreset = {preset:?}\n");
        }
        lab.configure_for(authority, &rules);
    }

    #[track_caller]
    fn run(&self, lab: &Lab, script: &str) -> Ended {
        let mount = format!("{}:{CLIENTS}", clients().display());
        // All that a client keeps is to be found later.
        let script = format!("mkdir -p home; export HOME=$PWD/home; touch home/left\n{script}");
        let options =
            ["run", "--secret", self.secret, "--mount", &mount, "--", "bash", "-euc", &script];
        lab.belljar(options).run()
    }

    /// Searches what the box wrote and what it left.
    #[track_caller]
    fn unseen(&self, lab: &Lab, canary: &Canary, ended: &Ended) {
        for (name, bytes) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
            assert_eq!(canary.found_in(bytes), None, "{name}: {}", String::from_utf8_lossy(bytes));
        }
        let mut files = Vec::new();
        walk(&lab.state(), &mut files);
        assert!(files.iter().any(|file| file.ends_with("home/left")), "{files:?}");
        for file in files {
            let found = canary.found_in(&fs::read(&file).unwrap_or_default());
            assert_eq!(found, None, "in {}", file.display());
        }
    }

    /// What presets allow was allowed by them.
    #[track_caller]
    fn by_rules(&self, lab: &Lab) {
        let log = lab.belljar(["net", "log", "--json"]).succeed();
        for host in self.preset_hosts {
            let here = format!("\"{host}\"");
            let by_preset = |line: &str| line.contains(&here) && line.contains("\"preset ");
            assert!(log.lines().any(by_preset), "{host} was not reached by a preset: {log}");
        }
    }
}

/// Every file below, but for what only an overlay of the kernel's may look into.
fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// Where `cargo xtask test` put the clients that are no packages.
#[track_caller]
fn clients() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target directory")
        .join("clients");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

/// What most tests need.
fn site() -> (Lab, Authority, Arc<Canary>) {
    (lab(), Authority::new(), Arc::new(Canary::new()))
}
