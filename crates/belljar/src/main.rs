//! temporary
#![forbid(unsafe_code)]
use std::os::fd::AsFd;
use belljar_box::*;
use belljar_model::*;
fn main() {
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    let dir = std::env::temp_dir().join(format!("bj-{}", std::process::id()));
    for d in ["upper","work"] { std::fs::create_dir_all(dir.join(d)).unwrap(); }
    let (place, path) = open(std::path::Path::new(".")).unwrap();
    let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()), ("HOME".into(), "/home/user".into())];
    let request = Request { id: RunId::new(1, std::process::id()), random: std::process::id(), template: Template::default(), argv, env, workspace: Some(Workspace{place, path, layers: Some(dir)}), hidden: vec![], terminal: None, now: 0 };
    let r = start(&request);
    let running = match r { Ok(r) => r, Err(e) => { eprintln!("{e}: {:?}", std::error::Error::source(&e)); std::process::exit(125) } };
    let (i,o,e) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let f = running.supervise(Supervision { input: i.as_fd(), output: o.as_fd(), error: e.as_fd(), guard: None, disk: None });
    if std::env::var_os("V").is_some() { eprintln!("{f:?}"); }
}
