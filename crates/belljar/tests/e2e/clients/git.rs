//! Git over HTTPS against `git http-backend`.

use std::path::Path;

use belljar_testkit::{Program, Received, Reply};

use super::{ClientCase, client_lab, upstream};

#[test]
fn git_clones_and_pushes_through_the_broker_with_a_placeholder() {
    let (lab, authority, canary) = client_lab();
    let repositories = lab.dir().join("repositories");
    std::fs::create_dir(&repositories).expect("a directory of the lab");
    let git =
        |script: &str| lab.program("bash").args(["-euc", script]).cwd(&repositories).succeed();
    git(r#"
git init -q --bare -b main acme/demo.git
git -C acme/demo.git config http.receivepack true
git clone -q acme/demo.git copy 2> /dev/null
cd copy
git config user.email a@example.com
git config user.name a
echo 'got it' > note
# Larger than one packet, and than the size above which git compresses the request.
seq 100000 > numbers
git add .
git commit -qm first
git push -q origin HEAD:main
"#);
    let (root, repeated) = (repositories.clone(), canary.repeated());
    let serve = move |received: &Received| {
        if received.path.starts_with("/acme/other.git/") {
            return Reply::new(403, repeated.clone()).header("content-type", "text/plain");
        }
        backend(&root, received)
    };
    let upstream = upstream(&authority, &["github.com"], &["github.com"], &canary, serve);
    let case = ClientCase {
        secret: "github",
        declared: "",
        presets: &["github"],
        preset_hosts: &["github.com"],
        own_hosts: &[],
        script: r#"
git config --global credential.helper '!f() { echo username=me; echo "password=$GITHUB_TOKEN"; }; f'
git config --global user.email a@example.com
git config --global user.name a
git clone -q https://github.com/acme/demo.git
cd demo
cat note
seq 200000 | sha512sum > more
git add more
git commit -qm second
git push -q origin HEAD:main
! git ls-remote https://github.com/acme/other.git 2>&1
"#,
        denied_script: "git clone https://nobody.example.net/acme/demo.git",
    };
    case.check(&lab, &authority, &canary, &upstream);
    assert_eq!(git("git -C acme/demo.git log --format=%s main"), "second\nfirst");
}

/// Passes a request to the CGI program `git http-backend` and returns its response.
fn backend(root: &Path, received: &Received) -> Reply {
    let (path, query) = received.path.split_once('?').unwrap_or((&received.path, ""));
    let header = |name: &str| received.header(name).unwrap_or_default();
    let ended = Program::new("git")
        .arg("http-backend")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "me")
        .env("REQUEST_METHOD", &received.method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", received.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .input(received.body.clone())
        .run();
    let end = ended.stdout.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = ended.stdout.split_at(end.expect("a head") + 4);
    let head = String::from_utf8_lossy(head).into_owned();
    let mut reply = Reply::new(200, body);
    for line in head.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").expect("a header");
        match name {
            "Status" => reply.status = value[..3].parse().expect("a status"),
            _ => reply = reply.header(&name.to_lowercase(), value),
        }
    }
    reply
}
