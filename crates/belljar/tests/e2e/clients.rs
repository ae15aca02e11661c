//! Unmodified network clients inside a box, against servers with real TLS.
//!
//! Each client reaches a host that a rule allows. It authenticates with a placeholder where the server
//! requires the real secret. It never sees the secret, although the server echoes it in all encodings.
//! A request to a host without a rule is denied. The programs come from Debian packages
//! (`xtask/src/packages.rs`) or are installed in `clients` of the target directory
//! (`xtask/src/clients.rs`); a missing program fails the test.

mod fetch;
mod file_server;
mod git;
mod registries;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_testkit::{Authority, Canary, Ended, Lab, Received, Reply, Upstream};

use crate::lab;

/// The mount point of the installed clients inside a box.
const CLIENTS: &str = "/opt/clients";
/// The host name that no network rule allows.
const DENIED_HOST: &str = "nobody.example.net";

/// A client with its secret, its rules, and scripts that must succeed or be denied.
struct ClientCase<'a> {
    /// The secret and its declaration, which is empty if a preset declares the secret.
    secret: &'a str,
    declared: &'a str,
    /// Presets that allow the requests of the client.
    presets: &'a [&'a str],
    /// Hosts that a preset allows, and hosts that a rule of the operator allows.
    preset_hosts: &'a [&'a str],
    own_hosts: &'a [&'a str],
    /// A bash script that must print `got it` and the response in which the server echoes the secret.
    script: &'a str,
    /// A bash script that makes the same request to [`DENIED_HOST`] and must fail.
    denied_script: &'a str,
}

/// Returns the declaration of the secret `api` for hosts without a preset that declares one.
fn declare_secret(hosts: &[&str]) -> String {
    format!(
        "[secret.api]\nhosts = {hosts:?}\nslots = [\"header:authorization\", \"basic\"]\nenv = \"API_TOKEN\"\n"
    )
}

/// Starts a server that responds with status 401 to requests without the secret for `guarded` hosts.
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

impl ClientCase<'_> {
    /// Runs both scripts and checks that the secret was used, never seen, and that the rules applied.
    #[track_caller]
    fn check(&self, lab: &Lab, authority: &Authority, canary: &Canary, upstream: &Upstream) {
        self.configure(lab, authority, upstream);
        lab.belljar(["secret", "set", self.secret]).input(canary.value()).succeed();

        let ended = self.run(lab, self.script);
        let out = ended.expect(0);
        assert!(out.contains("got it"), "stdout: {out}\nstderr: {}", ended.err());
        let repeated = format!("[belljar:{}]", self.secret);
        assert!(
            out.contains(&repeated),
            "no scrubbed secret in the output: {out}\n{}",
            ended.err()
        );
        let authorized =
            |it: &Received| canary.is_in(it.header("authorization").unwrap_or_default());
        let received = upstream.received();
        assert!(received.iter().any(authorized), "no request had the real secret: {received:?}");
        self.assert_unseen(lab, canary, &ended);
        self.assert_allowed_by_presets(lab);

        let ended = self.run(lab, self.denied_script);
        assert_ne!(ended.code(), 0, "stdout: {}", ended.out());
        let err = ended.err();
        assert!(
            err.contains("denied: ") && err.contains(DENIED_HOST),
            "the request was not denied: {err}"
        );
        assert_eq!(upstream.received().len(), received.len(), "{:?}", upstream.received());
    }

    /// Writes the rules of the client to the config file of the lab.
    fn configure(&self, lab: &Lab, authority: &Authority, upstream: &Upstream) {
        let connect = format!("connect = \"{}\"\n", upstream.address());
        let mut rules = String::from(self.declared);
        for host in self.own_hosts {
            rules += &format!("[[template.default.allow]]\nhost = {host:?}\n{connect}");
        }
        // Gives the address of the host but allows no request that a client makes.
        for host in self.preset_hosts {
            let nothing = "methods = [\"PUT\"]\npaths = [\"/nothing\"]\n";
            rules += &format!("[[template.default.allow]]\nhost = {host:?}\n{connect}{nothing}");
        }
        for preset in self.presets {
            rules += &format!("[[template.default.allow]]\npreset = {preset:?}\n");
        }
        lab.configure_for(authority, &rules);
    }

    /// Runs a bash script in a box with the secret.
    #[track_caller]
    fn run(&self, lab: &Lab, script: &str) -> Ended {
        let mount = format!("{}:{CLIENTS}", clients_dir().display());
        // Files that a client writes to its home are searched for the secret later.
        let script = format!("mkdir -p home; export HOME=$PWD/home; touch home/left\n{script}");
        let options =
            ["run", "--secret", self.secret, "--mount", &mount, "--", "bash", "-euc", &script];
        lab.belljar(options).run()
    }

    /// Asserts that the secret is neither in the output nor in the files of the box.
    #[track_caller]
    fn assert_unseen(&self, lab: &Lab, canary: &Canary, ended: &Ended) {
        for (name, bytes) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
            assert_eq!(canary.found_in(bytes), None, "{name}: {}", String::from_utf8_lossy(bytes));
        }
        let mut files = Vec::new();
        collect_files(&lab.state(), &mut files);
        assert!(files.iter().any(|file| file.ends_with("home/left")), "{files:?}");
        for file in files {
            let found = canary.found_in(&fs::read(&file).unwrap_or_default());
            assert_eq!(found, None, "in {}", file.display());
        }
    }

    /// Asserts that a preset allowed the requests to each preset host.
    #[track_caller]
    fn assert_allowed_by_presets(&self, lab: &Lab) {
        let log = lab.belljar(["net", "log", "--json"]).succeed();
        for host in self.preset_hosts {
            let quoted = format!("\"{host}\"");
            let by_preset = |line: &str| line.contains(&quoted) && line.contains("\"preset ");
            assert!(log.lines().any(by_preset), "no preset allowed {host}: {log}");
        }
    }
}

/// Collects all files below a directory, except in unreadable directories of overlayfs.
fn collect_files(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// Returns the directory where `cargo xtask test` installed clients that are not Debian packages.
#[track_caller]
fn clients_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target directory")
        .join("clients");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

/// Creates a lab, a certificate authority and a random secret.
fn client_lab() -> (Lab, Authority, Arc<Canary>) {
    (lab(), Authority::new(), Arc::new(Canary::new()))
}
