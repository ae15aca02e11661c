//! `cargo xtask attack`: the attack suite on this machine, with the binary as it is shipped.
//!
//! The attacks themselves live in `belljar doctor --prove`; this runs it as root and as a plain
//! user, because a box is built in different ways for the two.

use anyhow::{Result, bail};

use crate::shell::{Args, program, run, uid};
use crate::{dist, user};

const HELP: &str = "\
Runs the attack suite with the binary as it is shipped, as root and as a plain user.

Usage: cargo xtask attack [ID…]

  ID  only these rows of docs/threat-model.md, for example C10
";

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(args) = Args::new(args, HELP) else { return Ok(()) };
    let mut prove = vec!["doctor".to_owned(), "--prove".to_owned()];
    prove.extend(args.words()?.into_iter().map(|id| format!("--only={id}")));
    let belljar = dist::shipped()?;
    if uid()? != 0 {
        println!("not root: only as this user");
        return verdict(&[("this user", run(program(&belljar).args(&prove)).is_ok())]);
    }
    let user = user::prepare(&belljar)?;
    println!("\n=== as root");
    let root = run(program(&belljar).args(&prove)).is_ok();
    println!("\n=== as a plain user");
    let plain = run(program(&user.runner).arg(&user.belljar).args(&prove)).is_ok();
    verdict(&[("root", root), ("a plain user", plain)])
}

fn verdict(results: &[(&str, bool)]) -> Result<()> {
    let failed: Vec<&str> = results.iter().filter(|(_, held)| !held).map(|(who, _)| *who).collect();
    if !failed.is_empty() {
        bail!("not every attack was stopped as {}", failed.join(" and as "));
    }
    Ok(())
}
