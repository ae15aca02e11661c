//! Attacks through Unix sockets, and descriptors passed over them.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::boxed::probe_args;
use crate::handoff::repository;
use crate::host::{Listener, eventually};
use crate::lab::{Lab, random};
use crate::trial::{Checks, During, Trial};
use std::sync::atomic::Ordering;

const REFUSED: &str = "errno ECONNREFUSED";
const ABSENT: &str = "errno ENOENT";

/// Tests that a box cannot connect to Unix sockets of the host by path. A read-only mount alone
/// does not prevent connections.
pub(crate) fn d06(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let top = repository(lab, "d06")?;
    let path = top.join("agent.sock");
    let reached = Listener::path(&path)?;
    let act = format!("connect-path {}", path.display());
    let outside = lab.outside(&act)?;
    checks.control(outside == "ok hello from the host", format_args!("{act}: {outside}"))?;
    let before = reached.load(Ordering::SeqCst);
    for user in ["1000", "0"] {
        checks.exactly(&act, &lab.boxed().user(user).act(&act)?, ABSENT)?;
        let mounted = lab.boxed().user(user).mount(&top, "/mounted:ro");
        let answer = mounted.act("connect-path /mounted/agent.sock")?;
        checks.exactly("through a read-only mount", &answer, REFUSED)?;
        for mode in ["overlay", "read-only"] {
            let boxed = lab.boxed().user(user).workspace(&top).options(&["--mode", mode]);
            let answer = boxed.act("connect-path /workspace/agent.sock")?;
            checks.exactly(format_args!("through a workspace, {mode}"), &answer, REFUSED)?;
        }
    }
    // The socket as the source of a mount is refused.
    let mounted =
        lab.boxed().mount(&path, "/agent.sock:ro").run(&probe_args("connect-path /agent.sock"))?;
    checks.holds(
        matches!(mounted.code, Some(2 | 125)) || mounted.line() == REFUSED,
        format_args!("a socket as a mount: {}", mounted.line()),
    )?;
    checks.holds(reached.load(Ordering::SeqCst) == before, "a box reached a socket of the host")?;
    for directory in ["/run", "/var/run", "/tmp"] {
        let act = format!("list {directory}");
        checks.exactly(&act, &lab.boxed().act(&act)?, "ok")?;
    }
    // Control: sockets work between programs of the same box.
    let script = "/probe bind /tmp/own.sock; /probe connect-path /tmp/own.sock";
    let own = lab.boxed().run(&["/bin/sh", "-c", script])?.line();
    checks.control(own == format!("ok\n{REFUSED}"), format_args!("sockets inside: {own}"))?;
    checks.held()
}

/// Tests that abstract Unix sockets connect neither from a box to the host nor back. They belong to
/// a network namespace.
pub(crate) fn d07(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let name = format!("belljar-lab-{:x}", random());
    let reached = Listener::abstract_name(&name)?;
    let connect = format!("connect-abstract {name}");
    let outside = lab.outside(&connect)?;
    checks.control(outside == "ok hello from the host", format_args!("{connect}: {outside}"))?;
    let before = reached.load(Ordering::SeqCst);
    for user in ["1000", "0"] {
        let send = format!("send-abstract {name}");
        for act in [&connect, &send] {
            checks.exactly(act, &lab.boxed().user(user).act(act)?, REFUSED)?;
        }
    }
    checks.holds(reached.load(Ordering::SeqCst) == before, "a box reached a socket of the host")?;

    let work_dir = lab.directory("d07")?;
    make_writable(&work_dir)?;
    let (mine, ready) = (format!("belljar-lab-{:x}", random()), work_dir.join("ready"));
    let listen = format!("listen-abstract {mine} /work_dir/ready 300");
    let boxed = lab.boxed().mount(&work_dir, "/work_dir:rw");
    let mut inside = boxed.start(&probe_args(&listen))?;
    checks.control(eventually(|| ready.exists()), "the box does not listen")?;
    let connect = format!("connect-abstract {mine}");
    checks.exactly("from the host into the box", &lab.outside(&connect)?, REFUSED)?;
    checks.exactly("from another box", &lab.boxed().act(&connect)?, REFUSED)?;
    inside.kill()?;
    checks.held()
}

/// Makes a directory writable for all users, because a box of root writes with another user id.
pub(crate) fn make_writable(work_dir: &std::path::Path) -> crate::trial::Step {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(work_dir, fs::Permissions::from_mode(0o777)).during("set permissions")
}

/// Tests that the standard streams of a box are pipes, over which no descriptor can be passed. A
/// socket could pass descriptors of the host.
pub(crate) fn d08(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let pair = || UnixStream::pair().during("create a socket pair");
    let (theirs, mine) = pair()?;
    let probe = crate::command::Program::new(&lab.probe).args(["readlink", "/proc/self/fd/0"]);
    let outside = probe.input_from(OwnedFd::from(theirs)).run()?.line();
    checks.control(outside.starts_with("ok socket:"), format_args!("outside: {outside}"))?;
    drop(mine);
    for user in ["1000", "0"] {
        for number in 0..=2 {
            let (theirs, mine) = pair()?;
            drop(mine); // end-of-file for the reader
            let act = format!("readlink /proc/self/fd/{number}");
            let command = lab.boxed().user(user).command(&probe_args(&act));
            let inside = command.input_from(OwnedFd::from(theirs)).run()?.line();
            checks.holds(inside.starts_with("ok pipe:"), format_args!("{act}: {inside}"))?;
        }
    }
    checks.exactly("other open descriptors", &lab.boxed().act("descriptors")?, "ok")?;
    checks.held()
}
