//! `belljar doctor`: checks which isolation layers this machine supports, and optionally runs attacks.

use std::io;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use belljar_attacks::{ATTACKS, Attack, Lab, Verdict};
use belljar_gateway::Prover;
use belljar_model::display;

use crate::cli::DoctorArgs;
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use belljar_engine::doctor::{self, AttackResult, DoctorReport, Finding, Health};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::lockdown;

/// Runs `belljar doctor`.
pub(crate) fn run(args: &DoctorArgs) -> Outcome {
    if let Some(file) = &args.write_probe {
        doctor::write_probe(file)?;
        return Ok(0);
    }
    if args.try_jail {
        if !args.outside {
            lockdown::enter(lockdown::LockedRole::Broker)
                .context("cannot lock this process down")
                .kind(ErrorKind::Broken)?;
        }
        for line in lockdown::trial::run() {
            print::out(&line).kind(ErrorKind::Broken)?;
        }
        io::copy(&mut io::stdin(), &mut io::sink()).kind(ErrorKind::Broken)?; // wait until the test has examined this process and closes the input
        return Ok(0);
    }
    let findings = doctor::examine();
    let proofs = if args.prove { Some(prove(args)?) } else { None };
    let report = DoctorReport::new(findings, proofs);
    let recorded = scope::open(None).and_then(|state| report.record(&state));
    if args.json {
        print::json(&report).kind(ErrorKind::Broken)?;
    } else {
        for finding in &report.findings {
            print::out(&finding_line(finding)).kind(ErrorKind::Broken)?;
        }
    }
    if let Err(error) = recorded {
        print::note("the ledger does not record this result:");
        print::error(&error);
        return Ok(exit::FAILED);
    }
    Ok(if report.healthy && report.is_proved() { 0 } else { exit::FAILED })
}

/// Returns a finding as a line of text, with its remedy.
fn finding_line(finding: &Finding) -> String {
    let mark = match finding.health {
        Health::Good => "ok     ",
        Health::Weak => "weak   ",
        Health::Missing => "missing",
    };
    let remedy =
        finding.remedy.as_ref().map_or_else(String::new, |remedy| format!("\n          {remedy}"));
    format!(
        "{mark}  {:<18} {}{}\n",
        finding.subject,
        display::safe_line(&finding.detail),
        display::safe_multiline(remedy)
    )
}

/// The maximum number of attacks that run at the same time; most of them wait most of the time.
const MAX_PARALLEL_ATTACKS: usize = 4;

/// Runs the chosen attacks and prints each result; returns the results sorted by id.
fn prove(args: &DoctorArgs) -> Result<Vec<AttackResult>, EngineError> {
    let unknown = args.only.iter().find(|id| !ATTACKS.iter().any(|attack| attack.id == **id));
    if let Some(id) = unknown {
        return Err(invalid(format!(
            "--only: unknown attack {id}; docs/threat-model.md lists the ids"
        )));
    }
    attack(&args.only, &|proof| match args.json {
        true => Ok(()),
        false => print::out(&attack_line(proof)),
    })
}

/// Runs the attacks with these ids, or all attacks; returns the results sorted by id. `show` receives each
/// result when its attack has ended.
fn attack(
    only: &[String],
    show: &(dyn Fn(&AttackResult) -> io::Result<()> + Sync),
) -> Result<Vec<AttackResult>, EngineError> {
    let own = std::env::current_exe()
        .context("cannot find the executable of belljar")
        .kind(ErrorKind::Broken)?;
    let is_chosen = |attack: &&Attack| only.is_empty() || only.iter().any(|id| id == attack.id);
    let queue = Mutex::new(ATTACKS.iter().filter(is_chosen));
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let work = || -> anyhow::Result<Vec<AttackResult>> {
        let mut proofs = Vec::new();
        while let Some(attack) = next() {
            let lab = Lab::new(&own, &std::env::temp_dir())?;
            let proof = attack_result(attack.id, attack.title, attack.run(&lab));
            show(&proof)?;
            proofs.push(proof);
        }
        Ok(proofs)
    };
    let finished: Vec<anyhow::Result<Vec<AttackResult>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..MAX_PARALLEL_ATTACKS).map(|_| scope.spawn(work)).collect();
        let failed = |_| Err(anyhow!("the thread of an attack panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(failed)).collect()
    });
    let mut proofs = Vec::new();
    for results in finished {
        proofs.extend(results.kind(ErrorKind::Broken)?);
    }
    proofs.sort_by_key(|proof| proof.id);
    Ok(proofs)
}

/// Returns the attack suite for the server.
pub(super) fn prover() -> Prover {
    let ids = ATTACKS.iter().map(|attack| attack.id).collect();
    Prover::new(ids, |only, ended| {
        attack(only, &|_| {
            ended();
            Ok(())
        })
    })
}

/// Returns the result of an attack as a line of text.
fn attack_line(proof: &AttackResult) -> String {
    let title = display::safe_line(proof.title);
    if proof.kept {
        return format!("{:<8} {} {title}\n", proof.verdict, proof.id);
    }
    format!("BROKEN   {} {title}\n         {}\n", proof.id, display::safe_line(&proof.detail))
}

/// Converts the verdict of an attack into a result.
fn attack_result(id: &'static str, title: &'static str, verdict: Verdict) -> AttackResult {
    let kept = !verdict.is_failure();
    let (name, detail) = match verdict {
        Verdict::Held { checks, detail, .. } if detail.is_empty() => {
            ("held", format!("{checks} checks"))
        }
        Verdict::Held { checks, detail, .. } => ("held", format!("{checks} checks; {detail}")),
        Verdict::Residual { checks, why } => ("residual", format!("{checks} checks; {why}")),
        Verdict::NotHere { why } => ("not here", why),
        Verdict::Broken { what } => ("broken", what),
        Verdict::ControlFailed { what } => ("control failed", what),
    };
    AttackResult { id, title, kept, verdict: name, detail }
}
