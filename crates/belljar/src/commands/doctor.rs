//! `belljar doctor`: what this machine can enforce, and on request the proof.

use std::io;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use belljar_attacks::{ATTACKS, Attack, Lab, Verdict};
use belljar_model::display;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use belljar_engine::doctor::{self, Examination, Finding, Health};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::lockdown;

pub(crate) fn run(args: &DoctorArgs) -> Outcome {
    if let Some(file) = &args.write_probe {
        doctor::write_probe(file)?;
        return Ok(0);
    }
    if args.try_jail {
        if !args.outside {
            lockdown::enter(lockdown::LockedRole::Broker)
                .context("lock this process in")
                .kind(ErrorKind::Broken)?;
        }
        for line in lockdown::trial::run() {
            print::out(&line).kind(ErrorKind::Broken)?;
        }
        io::copy(&mut io::stdin(), &mut io::sink()).kind(ErrorKind::Broken)?; // stays for as long as it is looked at
        return Ok(0);
    }
    let findings = doctor::examine();
    let proofs = if args.prove { Some(prove(args)?) } else { None };
    let healthy = findings.iter().all(|finding| finding.health != Health::Missing);
    let proved = proofs.iter().flatten().all(|proof| proof.kept);
    let report = Report { healthy, findings, proofs };
    let recorded = record(&report);
    if args.json {
        print::json(&report).kind(ErrorKind::Broken)?;
    } else {
        for finding in &report.findings {
            print::out(&line(finding)).kind(ErrorKind::Broken)?;
        }
    }
    if let Err(error) = recorded {
        print::note("the result is not on record:");
        print::error(&error);
        return Ok(exit::FAILED);
    }
    Ok(if healthy && proved { 0 } else { exit::FAILED })
}

/// Puts the result on record: what the machine could enforce when.
fn record(report: &Report) -> Result<(), EngineError> {
    let state = scope::open(None)?;
    let text = serde_json::to_vec(report).kind(ErrorKind::Broken)?;
    let of_proofs = report.proofs.iter().flatten().map(|proof| proof.kept);
    let of_findings = report.findings.iter().map(|finding| finding.health != Health::Missing);
    let (passed, failed): (Vec<bool>, Vec<bool>) =
        of_findings.chain(of_proofs).partition(|good| *good);
    let examination = Examination {
        proved: report.proofs.is_some(),
        passed: passed.len() as u64,
        failed: failed.len() as u64,
        report: &text,
    };
    doctor::record(&state, &examination)
}

#[derive(Serialize)]
struct Report {
    healthy: bool,
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proofs: Option<Vec<Proof>>,
}

/// One attack that was tried here.
#[derive(Serialize)]
struct Proof {
    id: &'static str,
    title: &'static str,
    kept: bool,
    verdict: &'static str,
    detail: String,
}

fn line(finding: &Finding) -> String {
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

/// So many attacks are under way at once: most of them wait most of the time.
const AT_ONCE: usize = 4;

/// Runs the attacks, telling of each as it ends. The result is in the order of the table.
fn prove(args: &DoctorArgs) -> Result<Vec<Proof>, EngineError> {
    let unknown = args.only.iter().find(|id| !ATTACKS.iter().any(|attack| attack.id == **id));
    if let Some(id) = unknown {
        return Err(invalid(format!("--only {id}: no such attack")));
    }
    let own = std::env::current_exe().context("find our own program").kind(ErrorKind::Broken)?;
    let is_chosen =
        |attack: &&Attack| args.only.is_empty() || args.only.iter().any(|id| id == attack.id);
    let queue = Mutex::new(ATTACKS.iter().filter(is_chosen));
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let work = || -> anyhow::Result<Vec<Proof>> {
        let mut proofs = Vec::new();
        while let Some(attack) = next() {
            let lab = Lab::new(&own, &std::env::temp_dir())?;
            let proof = judge(attack.id, attack.title, attack.run(&lab));
            if !args.json {
                print::out(&told(&proof))?;
            }
            proofs.push(proof);
        }
        Ok(proofs)
    };
    let finished: Vec<anyhow::Result<Vec<Proof>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let failed = |_| Err(anyhow!("an attack broke off"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(failed)).collect()
    });
    let mut proofs = Vec::new();
    for of_one in finished {
        proofs.extend(of_one.kind(ErrorKind::Broken)?);
    }
    proofs.sort_by_key(|proof| proof.id);
    Ok(proofs)
}

/// One attack for people.
fn told(proof: &Proof) -> String {
    let title = display::safe_line(proof.title);
    if proof.kept {
        return format!("{:<8} {} {title}\n", proof.verdict, proof.id);
    }
    format!("BROKEN   {} {title}\n         {}\n", proof.id, display::safe_line(&proof.detail))
}

fn judge(id: &'static str, title: &'static str, verdict: Verdict) -> Proof {
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
    Proof { id, title, kept, verdict: name, detail }
}
