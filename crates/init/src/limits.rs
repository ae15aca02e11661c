//! Sets resource limits and CPU affinity on init, so that the payload inherits them. The seccomp filter
//! forbids changing them later.

use std::io;

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;

use crate::plan::{Limit, Plan, Stage};
use crate::{Context, Failure};

/// Applies the resource limits and the CPU affinity of the plan.
pub(crate) fn apply(plan: &Plan) -> Result<(), Failure> {
    for (limit, value) in &plan.limits {
        set_limit(*limit, *value)
            .context(Stage::Rlimits, || format!("cannot set the limit {limit:?}"))?;
    }
    if let Some(cpus) = plan.affinity {
        bind_to(cpus).context(Stage::Rlimits, || "cannot set the CPU affinity".to_owned())?;
    }
    Ok(())
}

/// Sets a resource limit to `value`, or to the current hard limit if that is lower.
fn set_limit(limit: Limit, value: u64) -> io::Result<()> {
    let resource = match limit {
        Limit::Files => Resource::Nofile,
        Limit::Processes => Resource::Nproc,
        Limit::FileSize => Resource::Fsize,
        Limit::Core => Resource::Core,
        Limit::Data => Resource::Data,
        Limit::MessageQueues => Resource::Msgqueue,
        Limit::PendingSignals => Resource::Sigpending,
        Limit::LockedMemory => Resource::Memlock,
    };
    let hard = rustix::process::getrlimit(resource).maximum;
    let value = Some(hard.map_or(value, |hard| hard.min(value)));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })?)
}

/// Binds this process to the first `cpus` of the CPUs that it can use.
fn bind_to(cpus: u32) -> io::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut chosen = CpuSet::new();
    let wanted = usize::try_from(cpus).unwrap_or(usize::MAX);
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .take(wanted)
        .for_each(|cpu| chosen.set(cpu));
    Ok(rustix::thread::sched_setaffinity(None, &chosen)?)
}
