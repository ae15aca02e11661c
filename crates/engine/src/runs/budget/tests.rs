use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;

const RUN: RunId = RunId::new(1, 1);

fn tokens(limit: u64) -> Limits {
    Limits::default().with(Unit::Tokens, Some(limit))
}

fn task(id: &str) -> Owner {
    Owner::Task(RUN, id.parse().unwrap())
}

fn chain(id: &str) -> [Owner; 3] {
    [Owner::Tenant(TenantId::local()), Owner::Run(RUN), task(id)]
}

fn accounts(run: Limits) -> Accounts {
    let mut accounts = Accounts::default();
    accounts.open(Owner::Run(RUN), run);
    accounts
}

#[test]
fn lease_is_the_cap_of_the_task_or_a_share_of_the_rest() {
    let mut accounts = accounts(tokens(1000));
    let lease = accounts.lease(&chain("a"), &tokens(100), 4).unwrap();
    assert_eq!(lease.get(Unit::Tokens), Some(100));
    let lease = accounts.lease(&chain("b"), &Limits::default(), 3).unwrap();
    assert_eq!(lease.get(Unit::Tokens), Some(300));
    let lease = accounts.lease(&chain("c"), &tokens(5000), 1).unwrap();
    assert_eq!(lease.get(Unit::Tokens), Some(600), "no lease is above the rest");
    assert_eq!(lease.get(Unit::Money), None, "a unit without a limit stays without one");
    assert_eq!(accounts.lease(&chain("d"), &Limits::default(), 1), Err(Refusal::Busy));
}

#[test]
fn lease_is_refused_as_spent_only_if_no_wait_can_help() {
    let mut accounts = accounts(tokens(100));
    let lease = accounts.lease(&chain("a"), &Limits::default(), 1).unwrap();
    assert_eq!(accounts.lease(&chain("b"), &Limits::default(), 1), Err(Refusal::Busy));
    accounts.settle(&chain("a"), &settle(&lease, None));
    let spent = Spent { owner: Owner::Run(RUN), unit: Unit::Tokens, cap: 100, renews: None };
    assert_eq!(accounts.lease(&chain("b"), &Limits::default(), 1), Err(Refusal::Spent(spent)));
}

#[test]
fn boxes_are_returned_and_never_spent() {
    let mut accounts = accounts(Limits::default().with(Unit::Boxes, Some(1)));
    for _ in 0..3 {
        let lease = accounts.lease(&chain("a"), &Limits::default(), 9).unwrap();
        assert_eq!(lease.get(Unit::Boxes), Some(1));
        assert_eq!(accounts.lease(&chain("b"), &Limits::default(), 9), Err(Refusal::Busy));
        accounts.settle(&chain("a"), &settle(&lease, None));
    }
    assert_eq!(accounts.get(&Owner::Run(RUN)).unwrap().spent, Amounts::default());
}

#[test]
fn extension_is_asked_for_at_eighty_percent_and_comes_from_the_rest() {
    let used = |amount| Amounts::default().with(Unit::Tokens, amount);
    assert!(!needs_more(&tokens(100), &used(79)));
    assert!(needs_more(&tokens(100), &used(80)));
    assert!(needs_more(&tokens(u64::MAX), &used(u64::MAX)));
    assert!(!needs_more(&Limits::default(), &used(u64::MAX)), "there is no limit");
    let mut accounts = accounts(tokens(1000));
    let lease = accounts.lease(&chain("a"), &tokens(100), 1).unwrap();
    let more = accounts.extend(&chain("a"), &lease, 2).unwrap();
    assert_eq!(more.get(Unit::Tokens), Some(100), "at most as much as the lease");
    let more = accounts.extend(&chain("a"), &tokens(5000), 1).unwrap();
    assert_eq!(more.get(Unit::Tokens), Some(800));
    assert_eq!(accounts.extend(&chain("a"), &lease, 1), None, "nothing is left");
}

#[test]
fn h16_task_without_reported_usage_spends_its_whole_lease() {
    let lease = tokens(100);
    let used = Amounts::default().with(Unit::Tokens, 30);
    let known = settle(&lease, Some(&used));
    assert_eq!((known.spent, known.released.get(Unit::Tokens)), (used, 70), "control: known usage");
    let unknown = settle(&lease, None);
    assert_eq!((unknown.spent, unknown.released), (lease.amounts(), Amounts::default()));
}

#[test]
fn h16_retries_and_instances_pay_from_the_account_of_their_task() {
    let mut accounts = accounts(tokens(1000));
    accounts.open(task("a"), tokens(100));
    let cap = tokens(100);
    let first = accounts.lease(&chain("a"), &cap, 1).unwrap();
    let used = Amounts::default().with(Unit::Tokens, 60);
    accounts.settle(&chain("a"), &settle(&first, Some(&used)));
    let second = accounts.lease(&chain("a"), &cap, 1).unwrap();
    assert_eq!(second.get(Unit::Tokens), Some(40), "the second attempt has the rest only");
    accounts.settle(&chain("a"), &settle(&second, None));
    let spent = Spent { owner: task("a"), unit: Unit::Tokens, cap: 100, renews: None };
    assert_eq!(accounts.lease(&chain("a"), &cap, 1), Err(Refusal::Spent(spent)));
    let other = accounts.lease(&chain("b"), &Limits::default(), 1).unwrap();
    assert_eq!(other.get(Unit::Tokens), Some(900), "control: another task has the rest of the run");
}

#[test]
fn h16_usage_beyond_a_lease_reduces_the_rest_of_the_budget() {
    let mut accounts = accounts(tokens(100));
    let lease = accounts.lease(&chain("a"), &tokens(10), 1).unwrap();
    let used = Amounts::default().with(Unit::Tokens, 95);
    accounts.settle(&chain("a"), &settle(&lease, Some(&used)));
    let account = accounts.get(&Owner::Run(RUN)).unwrap();
    assert_eq!(account.remaining(Unit::Tokens), Some(5));
    assert_eq!((account.spent.get(Unit::Tokens), account.over.get(Unit::Tokens)), (10, 85));
}

fn tenant() -> Owner {
    Owner::Tenant(TenantId::local())
}

#[test]
fn lease_of_a_tenant_without_other_limits_leaves_a_share_for_each_free_box() {
    let mut accounts = Accounts::default();
    accounts.open(tenant(), tokens(1000).with(Unit::Boxes, Some(4)));
    for expected in [250, 250, 250, 250] {
        let lease = accounts.lease(&chain("a"), &Limits::default(), 1).unwrap();
        assert_eq!((lease.get(Unit::Tokens), lease.get(Unit::Boxes)), (Some(expected), Some(1)));
    }
    assert_eq!(accounts.lease(&chain("b"), &Limits::default(), 1), Err(Refusal::Busy));
}

#[test]
fn h16_budget_of_a_tenant_that_is_used_up_names_the_tenant_its_limit_and_the_renewal() {
    let mut accounts = Accounts::default();
    accounts.open(tenant(), tokens(1000));
    let used = |spent: u64, over: u64| period::Used {
        spent: Amounts::default().with(Unit::Tokens, spent),
        over: Amounts::default().with(Unit::Tokens, over),
    };
    let renews = Some(Moment(1_763_510_400_000));
    accounts.set_period(&tenant(), &used(900, 99), renews);
    let lease = accounts.lease(&chain("a"), &Limits::default(), 1).unwrap();
    assert_eq!(lease.get(Unit::Tokens), Some(1), "control: the rest can be reserved");
    let busy = accounts.lease(&chain("b"), &Limits::default(), 1);
    assert_eq!(busy, Err(Refusal::Busy), "a reservation can be returned");
    accounts.settle(&chain("a"), &settle(&lease, None));
    let Err(Refusal::Spent(spent)) = accounts.lease(&chain("b"), &Limits::default(), 1) else {
        panic!("the budget is used up");
    };
    assert_eq!(
        UsedUp::from(&spent).to_string(),
        "the budget of tenant local is used up (1000 tokens); it is renewed at 2025-11-19 00:00:00Z"
    );
    accounts.set_period(&tenant(), &period::Used::default(), None);
    let lease = accounts.lease(&chain("b"), &Limits::default(), 1).unwrap();
    assert_eq!(lease.get(Unit::Tokens), Some(1000), "a new period begins with the whole budget");
}

#[test]
fn limit_that_is_lowered_below_the_usage_stops_new_leases_only() {
    let mut accounts = Accounts::default();
    accounts.open(tenant(), tokens(1000));
    let held = accounts.lease(&chain("a"), &tokens(400), 1).unwrap();
    let other = accounts.lease(&chain("b"), &tokens(300), 1).unwrap();
    accounts.settle(&chain("b"), &settle(&other, None));
    accounts.open(tenant(), tokens(500));
    assert_eq!(accounts.get(&tenant()).unwrap().remaining(Unit::Tokens), Some(0));
    assert_eq!(accounts.lease(&chain("b"), &tokens(1), 1), Err(Refusal::Busy));
    assert_eq!(accounts.extend(&chain("a"), &held, 1), None);
    accounts.open(tenant(), tokens(300));
    assert!(matches!(accounts.lease(&chain("b"), &tokens(1), 1), Err(Refusal::Spent(_))));
    accounts.settle(&chain("a"), &settle(&held, None));
    let account = accounts.get(&tenant()).unwrap();
    assert_eq!((account.reserved, account.spent.get(Unit::Tokens)), (Amounts::NONE, 700));
}

#[test]
fn amounts_are_shown_with_their_units() {
    let shown = [
        Unit::Calls.text(5),
        Unit::Money.text(1_500_000),
        Unit::Seconds.text(5400),
        Unit::Seconds.text(0),
        Unit::Bytes.text(1 << 30),
        Unit::Bytes.text(1_000_000_000),
        Unit::Bytes.text(0),
    ];
    let expected = ["5 calls", "1.50 USD", "1h30m", "0s", "1GiB", "1000000000 bytes", "0 bytes"]
        .map(str::to_owned);
    assert_eq!(shown, expected);
}

proptest! {
    #[test]
    fn accounts_never_overflow_and_stay_below_their_caps(
        cap in any::<u64>(),
        steps in proptest::collection::vec((any::<u64>(), 0_u64..4, proptest::option::of(any::<u64>())), 0..40),
    ) {
        let mut accounts = accounts(tokens(cap));
        let mut held: Vec<Limits> = Vec::new();
        for (amount, what, usage) in steps {
            match what {
                0 => held.extend(accounts.lease(&chain("a"), &tokens(amount), 1)),
                1 => held.extend(accounts.lease(&chain("a"), &Limits::default(), amount)),
                2 => {
                    let more = held.last().and_then(|lease| accounts.extend(&chain("a"), lease, amount));
                    held.extend(more);
                }
                _ => {
                    let usage = usage.map(|usage| Amounts::default().with(Unit::Tokens, usage));
                    if let Some(lease) = held.pop() {
                        accounts.settle(&chain("a"), &settle(&lease, usage.as_ref()));
                    }
                }
            }
            let account = accounts.get(&Owner::Run(RUN)).unwrap();
            let sum = |unit| u128::from(account.reserved.get(unit)) + u128::from(account.spent.get(unit));
            prop_assert!(sum(Unit::Tokens) <= u128::from(cap));
        }
        for lease in held {
            accounts.settle(&chain("a"), &settle(&lease, None));
        }
        prop_assert_eq!(accounts.get(&Owner::Run(RUN)).unwrap().reserved, Amounts::default());
    }
}
