//! `belljar serve` with a full disk.

use crate::lab;

/// Starts a server whose state directory is on a small file system, and calls it with curl.
const SCRIPT: &str = r#"
    mount -t tmpfs -o size=12m,mode=700 none "$BELLJAR_HOME"
    "$BELLJAR" serve --listen 127.0.0.1:0 2> "$BELLJAR_HOME/../serve.log" &
    socket="$BELLJAR_HOME/server/socket"
    call() {
        name=$1 path=$2; shift 2
        curl --silent --unix-socket "$socket" --write-out " $name: %{http_code}\n" "$@" \
            "http://localhost$path"
    }
    until test -S "$socket" && curl --silent --fail --unix-socket "$socket" \
        http://localhost/readyz > /dev/null; do sleep 0.05; done
    make() { call "$1" /v1/boxes --json "{\"name\": \"$2\", \"start\": false}"; }
    make control one
    head -c 16m /dev/zero > "$BELLJAR_HOME/ballast" 2> /dev/null && exit 9
    make full two
    call health /healthz
    for try in 1 2 3 4 5 6 7 8 9 10; do
        call ready /readyz
        sleep 0.5
    done
    call list /v1/boxes
    rm "$BELLJAR_HOME/ballast"
    until curl --silent --fail --unix-socket "$socket" http://localhost/readyz > /dev/null; do
        sleep 0.1
    done
    make after two
    kill -TERM $!
    wait $!
    echo "exit status $?"
    "$BELLJAR" ledger verify > /dev/null 2>&1
    echo "verify $?"
"#;

#[test]
fn server_on_a_full_disk_refuses_changes_and_continues_when_there_is_room() {
    let lab = lab();
    let own_user = if belljar_testkit::is_root() { &[][..] } else { &["--map-root-user"] };
    let unshare = lab.program("unshare").arg("--mount").args(own_user);
    let output = unshare.args(["sh", "-c", SCRIPT]).succeed();
    let line = |name: &str| {
        let ends = format!(" {name}: ");
        let found = output.lines().find(|line| line.contains(&ends));
        found.unwrap_or_else(|| panic!("no {name} in {output}")).to_owned()
    };
    assert!(line("control").ends_with("201"), "control: {output}");
    let refused = line("full");
    assert!(refused.ends_with("503"), "{output}");
    assert!(refused.contains("No space left on device"), "{output}");
    assert!(refused.contains("make room on the disk of"), "{output}");
    assert!(line("health").ends_with("200"), "{output}");
    assert!(output.contains(" ready: 503"), "{output}");
    assert!(line("list").ends_with("200"), "reading is still possible: {output}");
    assert!(line("after").ends_with("201"), "{output}");
    assert!(output.contains("exit status 0") && output.contains("verify 0"), "{output}");
}
