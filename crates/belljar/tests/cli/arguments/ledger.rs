//! Invalid arguments of `belljar ledger`.

use crate::{lab, transcript};

#[test]
fn ledger_commands_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "ledger log --kind none",
        "ledger log --since yesterday",
        "ledger log --limit all",
        "ledger log --follow --reverse",
        "ledger replay x --speed 0",
        "ledger redact abc --reason ''",
        "ledger prune",
        "ledger prune --before soon",
        "ledger export --otel --jsonl",
    ]), @r##"
$ belljar ledger log --kind none
belljar: invalid value 'none' for '--kind <KIND>'
  [possible values: run, run.created, run.layers, run.weakened, run.exec, box, box.exec, run.limit, run.ended, run.failed, workspace, workspace.changed, workspace.applying, workspace.applied, workspace.discarded, policy, policy.loaded, doctor, doctor.checked, dns, dns.decided, request, request.decided, request.finished, secret, secret.used, secret.masked, secret.set, secret.renewed, secret.removed, skill, skill.saved, skill.approved, skill.removed, box.removed, box.discarded, box.restored, box.snapshot, box.reset, box.forked, box.forwarded, trash, trash.emptied, api, api.added, alarm, alarm.raised, budget, budget.spent, model, model.called, approval, approval.asked, approval.given, approval.refused, network, network.changed, attention, attention.settled, access, access.changed, access.denied, tenant, tenant.checkpoint, driver, driver.opened, plan, plan.accepted, schedule, schedule.enabled, schedule.paused, schedule.fired, schedule.queued, schedule.skipped, plan.cancelling, plan.ended, task, task.started, grant, grant.removed, task.ended, task.judged, task.retrying, task.lost, task.stopped, budget.leased, ledger, ledger.created, ledger.redacted, ledger.pruned, ledger.repaired, ledger.checkpoint, key, key.rotated, trace, trace.span]

For more information, try '--help'.
[exit 2]

$ belljar ledger log --since yesterday
belljar: invalid value 'yesterday' for '--since <TIME>': expected a date (2026-11-16), a time ([TIME]) or an age (90s, 15m, 12h, 30d, 8w)

For more information, try '--help'.
[exit 2]

$ belljar ledger log --limit all
belljar: invalid value 'all' for '--limit <N>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar ledger log --follow --reverse
belljar: the argument '--follow' cannot be used with '--reverse'

Usage: belljar ledger log --follow

For more information, try '--help'.
[exit 2]

$ belljar ledger replay x --speed 0
belljar: invalid value '0' for '--speed <N>': expected a number above 0, such as 10 or 0.5

For more information, try '--help'.
[exit 2]

$ belljar ledger redact abc --reason ''
belljar: invalid value '' for '--reason <TEXT>': the reason must not be empty

For more information, try '--help'.
[exit 2]

$ belljar ledger prune
belljar: the following required arguments were not provided:
  --before <DATE>

Usage: belljar ledger prune --before <DATE>

For more information, try '--help'.
[exit 2]

$ belljar ledger prune --before soon
belljar: invalid value 'soon' for '--before <DATE>': expected a date (2026-11-16), a time ([TIME]) or an age (90s, 15m, 12h, 30d, 8w)

For more information, try '--help'.
[exit 2]

$ belljar ledger export --otel --jsonl
belljar: the argument '--otel' cannot be used with '--jsonl'

Usage: belljar ledger export --otel

For more information, try '--help'.
[exit 2]
"##);
}
