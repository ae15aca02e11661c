//! `cargo xtask attack`: runs the attack suite on this machine with the release binary.
//!
//! The attacks are part of `belljar doctor --prove`. This command runs it as root and as a plain user,
//! because boxes of root are built in a different way.

use anyhow::{Result, bail};

use crate::shell::{Args, program, run, uid};
use crate::{dist, user};

const HELP: &str = "\
Run the attack suite with the release binary, as root and as a plain user.

Usage: cargo xtask attack [ID…]

  ID  run only the attacks of these rows of docs/threat-model.md, for example C10
";

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(args) = Args::new(args, HELP) else { return Ok(()) };
    let mut prove_args = vec!["doctor".to_owned(), "--prove".to_owned()];
    prove_args.extend(args.positionals()?.into_iter().map(|id| format!("--only={id}")));
    let belljar = dist::release_binary()?;
    if uid()? != 0 {
        println!("not root: the attacks run only as this user");
        return check_results(&[("this user", run(program(&belljar).args(&prove_args)).is_ok())]);
    }
    let user = user::prepare(&belljar)?;
    println!("\n=== as root");
    let root = run(program(&belljar).args(&prove_args)).is_ok();
    println!("\n=== as a plain user");
    let plain = run(program(&user.runner).arg(&user.belljar).args(&prove_args)).is_ok();
    check_results(&[("root", root), ("a plain user", plain)])
}

/// Fails if the suite failed for one of the users.
fn check_results(results: &[(&str, bool)]) -> Result<()> {
    let failed: Vec<&str> =
        results.iter().filter(|(_, passed)| !passed).map(|(user, _)| *user).collect();
    if !failed.is_empty() {
        bail!("the attack suite failed as {}", failed.join(" and as "));
    }
    Ok(())
}
