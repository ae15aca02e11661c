//! Extends the leases of running attempts.
//!
//! A host asks for more when its box has used 80 % of a limit. The extension is reserved in all accounts and
//! recorded before the host gets it.

use std::collections::BTreeSet;

use belljar_model::RunId;

use super::rounds::Driver;
use crate::error::EngineError;
use crate::runs::budget::{Amounts, Limits, Unit, settle};
use crate::runs::host;
use crate::runs::machine::{InputKind, Try};

impl Driver<'_> {
    /// Reserves more for the attempts whose hosts ask for it.
    pub(super) fn look_for_leases(&mut self) -> Result<(), EngineError> {
        let runs: BTreeSet<RunId> = self.hosts.iter().map(|waiting| waiting.run).collect();
        for run in runs {
            for (file, box_run) in host::lease_requests(self.state, run) {
                let Some(live) = self.runs.get_mut(&run) else { continue };
                if live.requests.contains(&file) {
                    continue; // it is carried out in this round
                }
                live.requests.push(file);
                self.lease_more(run, box_run)?;
            }
        }
        Ok(())
    }

    fn lease_more(&mut self, run: RunId, box_run: RunId) -> Result<(), EngineError> {
        let Some(live) = self.runs.get(&run) else { return Ok(()) };
        let running = live.progress.running().find(|(of, _)| live.box_of(of) == Some(box_run));
        let checked = self.hosts.iter().find(|host| host.is_check && host.box_run == box_run);
        let judging =
            checked.and_then(|host| live.progress.judging().find(|(of, _)| *of == host.of));
        let Some((of, lease)) = running.or(judging) else { return Ok(()) };
        // The time of an attempt is fixed when it starts.
        let lease = lease.with(Unit::Seconds, None).with(Unit::Boxes, None);
        let tasks = live
            .progress
            .running()
            .count()
            .saturating_add(live.progress.startable(self.now()).count());
        let owners = live.owners(&self.state.caller().tenant, &of.task);
        let tasks = u64::try_from(tasks).unwrap_or(u64::MAX);
        let Some(more) = self.accounts.extend(&owners, &lease, tasks) else {
            // A request can wait for an answer.
            let of_check = self.check_lease(run, &of).filter(|(of_check, _)| *of_check == box_run);
            self.send_lease(box_run, &of_check.map_or(lease, |(_, lease)| lease));
            return Ok(());
        };
        tracing::info!(%run, %box_run, "lease is extended");
        let (has_facts, _) = self.give(run, InputKind::More(of, more))?;
        if !has_facts {
            // The attempt has ended, so the extension is returned.
            self.accounts.settle(&owners, &settle(&more, Some(&Amounts::default())));
        }
        Ok(())
    }

    /// Tells the host of an attempt its whole lease, which is on record.
    pub(super) fn extend(&self, run: RunId, of: &Try) {
        let Some(live) = self.runs.get(&run) else { return };
        let lease = live.progress.running().find(|(running, _)| running == of);
        if let (Some(box_run), Some((_, lease))) = (live.box_of(of), lease) {
            self.send_lease(box_run, lease);
        } else if let Some((box_run, lease)) = self.check_lease(run, of) {
            self.send_lease(box_run, &lease);
        }
    }

    /// Tells a host its whole lease. Does nothing for a lease without limits of the network.
    pub(super) fn send_lease(&self, box_run: RunId, lease: &Limits) {
        let budget = lease.network();
        if budget.is_empty() {
            return;
        }
        if let Err(error) = host::extend(self.state, box_run, budget) {
            self.state.failed(&anyhow::anyhow!("{error:#}"));
        }
    }
}
