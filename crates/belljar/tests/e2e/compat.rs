//! Compatibility: programs and language toolchains of the host give the same output in a box.
//!
//! The packages that the rows need are listed in `xtask/src/packages.rs`, so a missing program is a
//! failure. Programs whose installation would do more than add files are tested only on machines that
//! have them.

use std::path::PathBuf;

use belljar_testkit::{is_root, skip};

use crate::lab;

/// One row of the compatibility table: a bash script that runs in a box, and its expected output.
struct Row {
    name: &'static str,
    script: &'static str,
    expect: Expect,
}

/// The expected standard output of a row.
enum Expect {
    /// The complete standard output without the final newline.
    Is(&'static str),
    /// A prefix of the standard output, for output that contains versions.
    Starts(&'static str),
}

use Expect::{Is, Starts};

const fn row(name: &'static str, script: &'static str, expect: Expect) -> Row {
    Row { name, script, expect }
}

const SHELLS: &[Row] = &[
    row(
        "bash",
        r#"a=(x y z); for i in "${!a[@]}"; do printf '%s%s ' "$i" "${a[i]}"; done; diff <(seq 2) <(seq 2) && echo same"#,
        Is("0x 1y 2z same"),
    ),
    row("dash", "dash -c 'echo $((6*7))'", Is("42")),
    row("zsh", "zsh -c 'print -l {1..3}'", Is("1\n2\n3")),
    row("fish", "fish -c 'math 6 x 7'", Is("42")),
    row("busybox", "busybox sh -c 'busybox seq 3 | busybox tac'", Is("3\n2\n1")),
    row(
        "signals",
        "trap 'echo caught' USR1; kill -USR1 $$; (sleep 60 & wait) & kill $!; wait $!; echo $?",
        Is("caught\n143"),
    ),
    row("pipes and status", "false | true | (exit 3); echo ${PIPESTATUS[@]}", Is("1 0 3")),
    row("fork-heavy xargs", "seq 500 | xargs -P8 -n1 true && echo done", Is("done")),
    row(
        "large argv and environment",
        r#"X=$(seq 15000) Y=$(seq 15000) /bin/echo $(seq 20000) | wc -w"#,
        Is("20000"),
    ),
];

const FILES: &[Row] = &[
    row("ls", "touch b a .c; ls -A", Is(".c\na\nb")),
    row(
        "sort and uniq",
        "printf '%s\\n' 3 1 2 3 | sort -n --parallel=2 | uniq -c | awk '{print $1 $2}'",
        Is("11\n12\n23"),
    ),
    row(
        "cp -a",
        "mkdir a; echo x > a/f; ln a/f a/h; chmod 640 a/f; touch -d '2001-01-01 UTC' a/f; cp -a a b; stat -c '%a %h %Y %U' b/f",
        Is("640 2 978307200 user"),
    ),
    row("cp --reflink", "seq 1000 > a; cp --reflink=auto a b; cmp a b && echo same", Is("same")),
    row("install", "install -D -m 750 /etc/hosts q/w/e; stat -c %a q/w/e", Is("750")),
    row(
        "mv and rename",
        "mkdir d; touch d/f; mv d e; mv e/f g; ls e g; rmdir e; echo $?",
        Is("g\n\ne:\n0"),
    ),
    row(
        "tar and gzip",
        "mkdir d o; seq 1000 > d/f; ln -s f d/l; tar czf d.tgz d; tar xzf d.tgz -C o; cmp d/f o/d/f; readlink o/d/l",
        Is("f"),
    ),
    row("xz", "seq 1000 | xz | xz -d | tail -1", Is("1000")),
    row("zstd", "seq 1000 | zstd -q | zstd -dq | tail -1", Is("1000")),
    row("zip and unzip", "seq 9 > f; zip -q z.zip f; unzip -p z.zip | tail -1", Is("9")),
    row(
        "find and xargs",
        "mkdir -p x/y; touch x/1 'x/y/2 2'; find x -type f -print0 | xargs -0 -n1 basename | sort",
        Is("1\n2 2"),
    ),
    row(
        "sed, awk and grep",
        "seq 10 | sed -n 5,6p | awk '{s+=$1} END {print s}' | grep -E '^1+$'",
        Is("11"),
    ),
    row("flock", "flock f -c 'flock -n f true || echo held'", Is("held")),
    row("mkfifo", "mkfifo p; echo through > p & cat p", Is("through")),
    row("file", "file -b --mime-type /usr/bin/env", Starts("application/x-")),
    row(
        "vim",
        "printf 'one\\ntwo\\n' > f; vim -es -u NONE -c '%s/one/uno/' -c wq f; cat f",
        Is("uno\ntwo"),
    ),
    row("less", "seq 3 | less", Is("1\n2\n3")),
    row("jq", "echo '{\"a\":[1,2]}' | jq '.a|add'", Is("3")),
    row("bc", "echo '2^100' | bc", Is("1267650600228229401496703205376")),
];

const GIT: &[Row] = &[
    row(
        "git with its own identity",
        "git init -q; git config user.email a@b; git config user.name n; echo one > f; git add f; git commit -qm first; echo two >> f; git diff --stat | tail -1; git commit -qam second; git log --format=%s; git fsck 2>&1; git status --short",
        Is(" 1 file changed, 1 insertion(+)\nsecond\nfirst"),
    ),
    row(
        "git with a configuration in HOME",
        "git config --global user.email a@b; git config --global user.name n; git config --global init.defaultBranch trunk; git init -q r; cd r; git commit -q --allow-empty -m x; git log --format='%an %s'; git branch --show-current; git clone -q . ../s; git -C ../s rev-list --count HEAD",
        Is("n x\ntrunk\n1"),
    ),
];

const PYTHON: &[Row] = &[
    row(
        "python3 -m venv",
        "python3 -m venv --without-pip v; v/bin/python -c 'import sys; print(sys.prefix)'",
        Is("/workspace/v"),
    ),
    row(
        "python3 threads",
        r#"python3 -c '
import threading
done = []
threads = [threading.Thread(target=lambda: done.append(1)) for _ in range(50)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(done))'"#,
        Is("50"),
    ),
    row(
        "python3 multiprocessing",
        r#"cat > m.py <<E
import multiprocessing as mp
from multiprocessing import shared_memory
def square(x): return x * x
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(2) as pool: print(method, sum(pool.map(square, range(10))))
    with mp.Manager() as manager: # talks over a socket in /tmp
        shared = manager.dict()
        child = mp.Process(target=shared.__setitem__, args=(1, 2)); child.start(); child.join()
        print(dict(shared))
    memory = shared_memory.SharedMemory(create=True, size=100); memory.buf[0] = 7
    print(memory.buf[0]); memory.close(); memory.unlink()
E
python3 m.py"#,
        Is("fork 285\nspawn 285\nforkserver 285\n{1: 2}\n7"),
    ),
    row(
        "python3 sqlite3, ssl, subprocess",
        r#"python3 -c '
import ctypes, hashlib, lzma, sqlite3, ssl, subprocess
db = sqlite3.connect("t.db"); db.execute("create table t(a)"); db.execute("insert into t values(41)"); db.commit()
print(db.execute("select a + 1 from t").fetchone()[0], bool(ssl.create_default_context().get_ca_certs()))
print(subprocess.run("echo out; exit 3", shell=True, capture_output=True))'"#,
        Is(
            "42 True\nCompletedProcess(args='echo out; exit 3', returncode=3, stdout=b'out\\n', stderr=b'')",
        ),
    ),
    row(
        "python3 asyncio",
        r#"python3 -c '
import asyncio
async def echo(reader, writer): writer.write(await reader.readline()); writer.close()
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"there and back\n"); print((await reader.readline()).decode().strip())
    child = await asyncio.create_subprocess_exec("echo", "child", stdout=-1)
    print((await child.communicate())[0].decode().strip())
asyncio.run(main())'"#,
        Is("there and back\nchild"),
    ),
    row(
        "python3 http.server",
        r#"echo page > index.html; python3 -c '
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://localhost:%d/" % server.server_port).read().decode().strip())'"#,
        Is("page"),
    ),
];

const NODE: &[Row] = &[
    row(
        "node os",
        r#"node -p 'const os = require("os"); [os.cpus().length > 0, os.hostname(), os.userInfo().username, os.totalmem() == 2**31, os.tmpdir()].join()'"#,
        Is("true,belljar,user,true,/tmp"),
    ),
    row(
        "node worker_threads",
        r#"node -e '
const { Worker } = require("worker_threads");
new Worker("require(\"worker_threads\").parentPort.postMessage(6 * 7)", { eval: true }).on("message", console.log)'"#,
        Is("42"),
    ),
    row(
        "node child_process",
        r#"node -e '
const cp = require("child_process");
console.log(cp.execSync("echo child").toString().trim());
require("fs").writeFileSync("child.js", "process.send({ n: 1 })");
cp.fork("child.js").on("message", m => console.log(m.n))'"#,
        Is("child\n1"),
    ),
    row(
        "node fs.watch",
        r#"node -e '
const fs = require("fs");
const watch = fs.watch(".", (event, file) => { console.log(file); watch.close(); });
fs.writeFileSync("seen", "")'"#,
        Is("seen"),
    ),
    row(
        "node http",
        r#"node -e '
const http = require("http");
const server = http.createServer((request, response) => response.end("served " + request.url)).listen(0, "127.0.0.1", () =>
  http.get({ host: "localhost", port: server.address().port, path: "/x" }, response => {
    response.on("data", data => console.log(data.toString())).on("end", () => server.close());
  }))'"#,
        Is("served /x"),
    ),
];

const COMPILERS: &[Row] = &[
    row(
        "gcc",
        r#"echo '#include <stdio.h>
int main(void) { puts("hello"); return 7; }' > a.c; gcc -O2 -Wall a.c -o a; ./a; echo $?"#,
        Is("hello\n7"),
    ),
    row(
        "g++",
        r#"echo '#include <iostream>
#include <thread>
int main() { int n = 0; std::thread t([&] { n = 7; }); t.join(); std::cout << n << std::endl; }' > a.cc; g++ -pthread a.cc -o a; ./a"#,
        Is("7"),
    ),
    row(
        "make -j",
        r#"for i in 1 2 3 4 5 6; do echo "int f$i(void){return $i;}" > f$i.c; done; echo 'int f1(void),f6(void);int main(void){return f1()+f6();}' > main.c
printf 'p: main.o $(patsubst %%,f%%.o,1 2 3 4 5 6)\n\tgcc -o $@ $^\n' > Makefile; make -s -j4; ./p; echo $?"#,
        Is("7"),
    ),
    row(
        "cmake",
        r#"printf 'cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(p p.c)\n' > CMakeLists.txt; echo 'int main(void) { return 0; }' > p.c; cmake -S . -B b > log && cmake --build b >> log && b/p && echo built"#,
        Is("built"),
    ),
    row(
        "java and javac",
        r#"echo 'public class H { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> System.out.println("hello")); t.start(); t.join(); } }' > H.java; javac H.java && java H"#,
        Is("hello"),
    ),
    row("mvn", "mvn -B --version | grep -c 'Apache Maven'", Is("1")),
    row(
        "perl",
        r#"perl -MPOSIX -MSocket -e 'my $p = fork; exit 3 unless $p; waitpid $p, 0; print $? >> 8, join(",", map { $_ * 2 } 1..3)'"#,
        Is("32,4,6"),
    ),
    row("tclsh", "echo 'puts [expr 6*7]' | tclsh", Is("42")),
];

const SYSTEM: &[Row] = &[
    row("apt-get", "apt-get --version", Starts("apt ")),
    row("dpkg", "dpkg --version", Starts("Debian")),
    row(
        "ps",
        "ps -eo comm,user --no-headers; true",
        Is("bash            user\nps              user"),
    ),
    row("free", "free -m | awk '/Mem/ {print $2}'", Is("2048")),
    row("top", "top -bn1 > out; grep -c bash out", Is("1")),
    row("nproc", "[ $(nproc) -ge 1 ] && echo some", Is("some")),
    row("uptime", "uptime | grep -o 'load average'", Is("load average")),
    row("df", "df --output=target /tmp | tail -1", Is("/tmp")),
    row("mount", "mount | grep -c ' /workspace type overlay'", Is("1")),
    row("id and whoami", "id -u; id -un; whoami; id -G", Is("1000\nuser\nuser\n1000")),
    row("hostname", "hostname; uname -n", Is("belljar\nbelljar")),
    row("date", "TZ=CET-1 date -d @0 +%H:%M; date +%Z", Is("01:00\nUTC")),
    row(
        "locale",
        "locale -k LC_CTYPE | grep charmap; printf 'žluťoučký' | wc -m",
        Is("charmap=\"UTF-8\"\n9"),
    ),
    row(
        "getent",
        "getent passwd user; getent hosts localhost | awk '{print $2}'",
        Is("user:x:1000:1000::/home/user:/bin/bash\nlocalhost"),
    ),
];

const SERVERS: &[Row] = &[
    row(
        "tmux",
        r#"export TERM=xterm; tmux new-session -d "echo inside > out.tmp; mv out.tmp out; tmux wait-for -S written; cat"; tmux wait-for written; cat out; tmux list-sessions -F '#{session_windows}'; tmux kill-server"#,
        Is("inside\n1"),
    ),
    row(
        "gpg",
        "gpg --batch -q --passphrase '' --quick-gen-key a@b rsa2048 2> log; echo hello > m; gpg --batch -q -s m && gpg --verify m.gpg 2>&1 | grep -c 'Good signature'",
        Is("1"),
    ),
    row(
        "openssl",
        r#"openssl req -x509 -newkey rsa:2048 -nodes -keyout k -subj /CN=localhost -days 1 -out c 2> log
openssl s_server -accept 127.0.0.1:4433 -key k -cert c > server 2>&1 & until grep -q ACCEPT server; do sleep 0.01; done
echo Q | openssl s_client -connect localhost:4433 -CAfile c 2>> log | grep 'Verify return code'; kill $! 2>> log; true"#,
        Is("Verify return code: 0 (ok)"),
    ),
    row(
        "curl",
        r#"echo page > index.html; python3 -uc '
import http.server; s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(s.server_port); s.serve_forever()' > port 2> log & until [ -s port ]; do sleep 0.01; done
curl -s http://localhost:$(cat port)/; kill $!"#,
        Is("page"),
    ),
    row(
        "socat",
        r#"socat -t 60 UNIX-LISTEN:/tmp/s,fork EXEC:'tr a-z A-Z' & until echo shout | socat -t 60 - UNIX-CONNECT:/tmp/s 2>> log; do sleep 0.01; done; kill $!"#,
        Is("SHOUT"),
    ),
    row(
        "sqlite3",
        "sqlite3 x.db 'pragma journal_mode=wal; create table t(a); insert into t values(5); select a*2 from t'",
        Is("wal\n10"),
    ),
];

/// Programs that are tested only where they are installed. The packages of `npm` conflict with some
/// packages of Node, and the other packages start services on the machine.
const OPTIONAL: &[Row] = &[
    row(
        "npm",
        "npm init -y > log && npm --version > version && node -p 'require(\"./package.json\").name'",
        Is("workspace"),
    ),
    row(
        "initdb",
        r#"PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); initdb -D /tmp/pg -A trust -N > log; pg_ctl -D /tmp/pg -w -o '-k /tmp -p 5433' -l log start >> log
psql -h /tmp -p 5433 postgres -Atc 'select 6*7'; psql -h localhost -p 5433 postgres -Atc 'select count(*) from generate_series(1, 1000)'; pg_ctl -D /tmp/pg -w stop -m immediate >> log"#,
        Is("42\n1000"),
    ),
    row(
        "redis-server",
        "redis-server --port 6380 --save '' > log & until redis-cli -p 6380 ping 2> /dev/null; do sleep 0.01; done; redis-cli -p 6380 incr n; kill $!",
        Is("PONG\n1"),
    ),
];

const REQUIRED: [&[Row]; 8] = [SHELLS, FILES, GIT, PYTHON, NODE, COMPILERS, SYSTEM, SERVERS];

/// Runs each row in a box and workspace of its own, and panics with all differences.
#[track_caller]
fn check(rows: &[Row]) {
    let differences: Vec<String> = rows.iter().filter_map(difference).collect();
    let count = differences.len();
    assert!(count == 0, "{count} of {} differ\n{}", rows.len(), differences.join("\n"));
}

/// Runs a row in a box and describes how its output or exit code differs from the expected one.
fn difference(row: &Row) -> Option<String> {
    let ended = lab().bash(row.script).run();
    let out = ended.out();
    let (matches, expect) = match row.expect {
        Is(text) => (out == text, text),
        Starts(text) => (out.starts_with(text), text),
    };
    (!matches || ended.code() != 0).then(|| {
        format!(
            "{}: expected {expect:?}, not {out:?}; exit {}, stderr {:?}",
            row.name,
            ended.code(),
            ended.err()
        )
    })
}

#[test]
fn compatibility_table_has_at_least_forty_programs() {
    let rows: usize = REQUIRED.iter().map(|rows| rows.len()).sum();
    assert!(rows >= 40, "only {rows}");
}

#[test]
fn shells_produce_the_expected_output_in_a_box() {
    check(SHELLS);
}

#[test]
fn file_tools_produce_the_expected_output_in_a_box() {
    check(FILES);
}

#[test]
fn git_produces_the_expected_output_in_a_box() {
    check(GIT);
}

#[test]
fn python_produces_the_expected_output_in_a_box() {
    check(PYTHON);
}

#[test]
fn node_produces_the_expected_output_in_a_box() {
    check(NODE);
}

#[test]
fn compilers_and_interpreters_produce_the_expected_output_in_a_box() {
    check(COMPILERS);
}

#[test]
fn system_information_tools_produce_the_expected_output_in_a_box() {
    check(SYSTEM);
}

#[test]
fn servers_and_clients_produce_the_expected_output_in_a_box() {
    check(SERVERS);
}

#[test]
fn optional_programs_produce_the_expected_output_where_installed() {
    let host = lab();
    let find =
        "command -v \"$0\" > /dev/null || ls /usr/lib/postgresql/*/bin/\"$0\" > /dev/null 2>&1";
    let is_installed =
        |row: &&Row| host.program("bash").args(["-c", find, row.name]).run().code() == 0;
    let differences: Vec<String> =
        OPTIONAL.iter().filter(is_installed).filter_map(difference).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Returns the directory of the Rust toolchain that runs the tests, if this user can read it. The
/// toolchain may be in the home directory of another user.
fn toolchain() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "cargo passes its own path to tests")]
    let cargo = PathBuf::from(std::env::var_os("CARGO").expect("tests are started by cargo"));
    let root = cargo.parent()?.parent()?.to_owned();
    root.join("bin/rustc").is_file().then_some(root)
}

#[test]
fn rustc_and_cargo_compile_and_run_programs_in_a_box() {
    let Some(toolchain) = toolchain() else {
        assert!(!is_root(), "cargo is not beside a rustc");
        return skip("this user cannot read the toolchain");
    };
    let lab = lab();
    lab.write(
        "main.rs",
        "fn main() { println!(\"{}\", std::thread::spawn(|| 6 * 7).join().unwrap()) }",
    );
    let mount = format!("{}:/opt/rust", toolchain.display());
    let script = "PATH=/opt/rust/bin:$PATH; rustc main.rs && ./main && cargo new -q hello && cd hello && cargo run -q --offline";
    let boxed = lab.belljar(["run", "--mount", &mount, "--", "bash", "-c", script]);
    assert_eq!(boxed.succeed(), "42\nHello, world!");
}

/// Returns bytes in a pattern that repeats every 251 bytes, so that no buffer boundary is aligned with it.
fn pattern_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * index % 251).expect("below 251")).collect()
}

#[test]
fn run_passes_ten_megabytes_of_output_unchanged() {
    let lab = lab();
    let bytes = pattern_bytes(10 << 20);
    lab.write("noise", &bytes);
    let ended = lab.bash("cat noise; cat noise >&2").run();
    assert_eq!(ended.code(), 0);
    assert!(ended.stdout == bytes && ended.stderr == bytes);
}

#[test]
fn run_passes_five_megabytes_of_input_unchanged() {
    let lab = lab();
    let bytes = pattern_bytes(5 << 20);
    let ended = lab.bash("cat > copy; wc -c < copy; cat copy").input(bytes.clone()).run();
    let head = format!("{}\n", bytes.len());
    assert!(ended.stdout == [head.as_bytes(), &bytes].concat(), "{}", ended.err());
}
