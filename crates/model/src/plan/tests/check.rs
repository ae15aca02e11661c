use super::*;

/// Checks the faults of a plan that consists of task `a`, a JSON stub, and these lines.
#[track_caller]
fn refused(lines: &str, expect: &str) {
    let text = format!("[task.a]\ndo.stub = 1\n{lines}\n");
    assert_eq!(check(&text).unwrap_err(), format!("p.toml:{expect}"));
}

#[track_caller]
fn accepted(lines: &str) {
    assert_eq!(check(&format!("[task.a]\ndo.stub = 1\n{lines}\n")).err(), None);
}

#[test]
fn checked_plan_has_its_tasks_in_topological_order() {
    let text = "[task.d]\ndo.stub = 1\nneeds = ['b', 'c']\n[task.b]\ndo.stub = 1\nneeds = ['a']\n\
                [task.c]\ndo.stub = 1\ndata = ['a']\nneeds = ['a']\n[task.a]\ndo.stub = 1\n";
    let plan = check(text).unwrap();
    let ids: Vec<&str> = plan.tasks().iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    assert_eq!((plan.index(&id("c")), plan.index(&id("x"))), (Some(2), None));
    assert_eq!((plan.dependents(0), plan.dependents(3)), ([1, 2].as_slice(), [].as_slice()));
    assert_eq!(plan.dependencies(3).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(plan.task(&id("d")).map(|task| task.id.as_str()), Some("d"));
}

#[test]
fn example_plan_is_accepted_with_a_template_for_each_box() {
    let plan = check(EXAMPLE).unwrap();
    assert_eq!((plan.tasks().len(), plan.max_instances()), (4, 5));
    let timeout = |task| plan.box_template(task).map(|template| template.limits.timeout);
    assert_eq!(timeout(0), Some(Some(Duration::from_secs(600))));
    assert_eq!(timeout(1), Some(Some(Duration::from_secs(300))));
    assert_eq!(timeout(3), None);
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    refused("needs = ['aa']", "3: task `a`: unknown task `aa`; did you mean `a`?");
    refused(
        "data = [\n  'input.isue']\n[run]\ninput.issue.text = ''",
        "4: task `a`: unknown input `isue`; did you mean `issue`?",
    );
    refused("[run]\nanswer = 'b'", "4: `answer` names the unknown task `b`; did you mean `a`?");
    refused("[run]\ntemplate = 'agent'", "4: unknown template `agent`; did you mean `agents`?");
    refused(
        "[task.b]\ndo = { agent = 'cluade', prompt = 'x' }",
        "4: task `b`: unknown agent `cluade`; did you mean `claude`?",
    );
    refused(
        "[task.b]\ndo = { model = 'cheap', escalate = ['zzz'], prompt = 'x' }",
        "4: task `b`: unknown tier `zzz`; known: capable, cheap, local",
    );
    refused(
        "check = [{ model = 'chaep', prompt = 'x' }]",
        "3: task `a`: unknown tier `chaep`; did you mean `cheap`?",
    );
}

#[test]
fn h14_cycles_are_named_in_full() {
    let text = stubs(3, |at| vec![(at + 1) % 3]);
    let expect = "p.toml:3: the tasks form a cycle: t0 -> t1 -> t2 -> t0";
    assert_eq!(check(&text).unwrap_err(), expect);
    refused("needs = ['a']", "3: the tasks form a cycle: a -> a");
    let two = stubs(5, |at| match at {
        0 => vec![1],
        1 => vec![0],
        2 => vec![1, 3],
        3 => vec![4],
        _ => vec![3],
    });
    let expect = "p.toml:3: the tasks form a cycle: t0 -> t1 -> t0\np.toml:12: the tasks form a cycle: t3 -> t4 -> t3";
    assert_eq!(check(&two).unwrap_err(), expect);
    // The control: the same tasks without the edge that closes the cycle.
    assert!(check(&stubs(3, |at| if at < 2 { vec![at + 1] } else { Vec::new() })).is_ok());
}

#[test]
fn h14_long_chains_and_cycles_are_refused_without_a_stack_overflow() {
    let chain = |count| stubs(count, |at| at.checked_sub(1).into_iter().collect());
    assert!(check(&chain(2_000)).is_ok());
    let expect = "p.toml:1: a chain of 2001 tasks; at most 2000 can depend on each other";
    assert_eq!(check(&chain(2_001)).unwrap_err(), expect);
    let error = check(&stubs(10_000, |at| vec![(at + 1) % 10_000])).unwrap_err();
    assert!(error.ends_with("t98 -> t99 -> … 9900 more … -> t0"), "{error}");
}

#[test]
fn h14_expansion_of_for_each_counts_tasks_and_edges() {
    let many = |max: u32, count: usize, needs: &str| -> String {
        let task = |at: usize| {
            format!(
                "[task.f{at}]\ndo.stub = 1\nneeds = ['a'{needs}]\nfor_each = {{ of = 'a', max = {max} }}\n"
            )
        };
        (0..count).map(task).collect()
    };
    accepted(&many(999, 10, ""));
    refused(
        &many(1_000, 10, ""),
        "1: 10001 tasks with all instances of `for_each`; at most 10000 are possible, so use fewer values or a lower `max`",
    );
    let others: String = (0..20).map(|at| format!("[task.o{at}]\ndo.stub = 1\n")).collect();
    let needs: String = (0..20).map(|at| format!(", 'o{at}'")).collect();
    refused(
        &format!("{others}{}", many(990, 10, &needs)),
        "1: 207900 edges with all instances of `for_each`; at most 100000 are possible",
    );
    accepted(&format!("{others}{}", many(400, 10, &needs)));
}

#[test]
fn when_and_for_each_need_the_json_output_of_an_input() {
    let condition = "when = { of = 'a', exists = true }";
    accepted(&format!("[task.b]\ndo.stub = 1\nneeds = ['a']\n{condition}"));
    accepted(&format!(
        "[task.b]\ndo.stub = 1\nneeds = ['a']\n[task.c]\ndo.stub = 1\nneeds = ['b']\n{condition}"
    ));
    let no_input = "`when` names `a`, which is no input; add `a` to `needs`, without `?`";
    refused(&format!("[task.b]\ndo.stub = 1\n{condition}"), &format!("5: task `b`: {no_input}"));
    refused(
        &format!("[task.b]\ndo.stub = 1\nneeds = ['a?']\n{condition}"),
        &format!("6: task `b`: {no_input}"),
    );
    refused(
        "[task.b]\ndo.stub = ''\n[task.c]\ndo.stub = 1\nneeds = ['b']\nfor_each.of = 'b'",
        "8: task `c`: `for_each` reads the output of `b`, which must be of type `json`",
    );
    refused(
        "for_each.values = [1]\n[task.c]\ndo.stub = 1\nneeds = ['a']\nwhen = { of = 'a', equals = 1 }",
        "7: task `c`: `when` cannot read the output of `a`, which has `for_each`",
    );
    refused(
        "[task.b]\ndo.stub = 1\nwhen = { of = 'x', equals = 1 }",
        "5: task `b`: unknown task `x`; did you mean `a`?",
    );
}

#[test]
fn output_types_must_fit_their_executor() {
    refused("output = 'branch'", "3: task `a`: only an agent makes a branch");
    refused(
        "output = 'choice'",
        "3: task `a`: a choice is the id of one input; name the tasks to choose from in `data`",
    );
    refused(
        "[task.b]\ndo = { agent = 'claude', prompt = 'x' }\noutput = 'text'",
        "5: task `b`: the output of an agent is its branch; remove `output` or write \"branch\"",
    );
    refused(
        "output = 'text'\ncheck = [\n { schema = 'x.json' }]",
        "5: task `a`: a check by a schema needs an output of type `json`",
    );
    accepted("check = [{ schema = 'x.json' }]");
}

#[test]
fn base_and_apply_need_the_branch_of_an_earlier_task() {
    let agent = "[task.x]\ndo = { agent = 'claude', prompt = 'p' }\n";
    let pick =
        "[task.p]\ndo = { model = 'cheap', prompt = 'p' }\noutput = 'choice'\ndata = ['x?']\n";
    let apply = |of: &str| {
        format!("[task.m]\ndo = {{ approval = 'ok', apply = '{of}' }}\nneeds = ['{of}']\n")
    };
    let base = |of: &str| {
        format!(
            "[task.m]\ndo = {{ agent = 'codex', prompt = 'p', base = 'task:{of}' }}\nneeds = ['{of}']\n"
        )
    };
    let items = "for_each.values = [1, 2]\n";
    accepted(&format!("{agent}{}", apply("x")));
    accepted(&format!("{agent}{}", base("x")));
    accepted(&format!("{agent}{items}{pick}{}", apply("p")));
    accepted(&format!("{agent}{items}{pick}{}", base("p")));
    let no_branch = "which must be an agent task or a choice between agent tasks";
    refused(&apply("a"), &format!("4: task `m`: `apply` names `a`, {no_branch}"));
    refused(&base("a"), &format!("4: task `m`: `base` names `a`, {no_branch}"));
    refused(
        &format!("{agent}{pick}data = []\n{}", apply("p"))
            .replace("data = ['x?']\ndata = []", "data = ['x', 'a']"),
        &format!("10: task `m`: `apply` names `p`, {no_branch}"),
    );
    refused(
        &format!("{agent}{items}{}", apply("x")),
        "7: task `m`: `apply` names `x`, which has `for_each` and so several branches; name a task that chooses one of them",
    );
    refused(
        &format!("{agent}[task.m]\ndo = {{ approval = 'ok', apply = 'x' }}\n"),
        "6: task `m`: `apply` names `x`, which is no input; add `x` to `needs`, without `?`",
    );
}

#[test]
fn h14_box_of_a_task_cannot_widen_the_template() {
    let command =
        |box_keys: &str| format!("[task.b]\ndo.command = ['true']\nbox = {{ {box_keys} }}");
    for (keys, expect) in [
        ("memory = '1TiB'", "`memory` of `box`: 1TiB, but the template has 2GiB"),
        ("net = 'full'", "`net` of `box`: full, but the template has none"),
        ("mode = 'direct'", "`mode` of `box`: direct, but the template has overlay"),
        (
            "mounts = ['/etc:/x']",
            "`mounts` of `box`: /etc:/x:ro, but the template has no such mount",
        ),
        ("secrets = ['github']", "`secrets` of `box`: github, but the template has no such entry"),
        ("allow = ['pypi']", "`allow` of `box`: pypi, but the template has no such rule"),
        (
            "weaken = ['landlock']",
            "`weaken` of `box`: landlock weakened, but the template has landlock in force",
        ),
        (
            "env = ['HOME']",
            "`env` of `box`: HOME inherited, but the template has HOME not inherited",
        ),
    ] {
        let expect = format!("5: task `b`: {expect}; a task may only tighten");
        refused(&command(keys), &expect);
    }
    refused("box.memory = '1GiB'", "3: task `a`: an approval or a stub has no box; remove `box`");
    // The control: tighter values are accepted and are those of the box.
    let text = format!(
        "[task.a]\ndo.stub = 1\n{}",
        command("memory = '1GiB', allow = [], env = ['CI=1']")
    );
    let plan = check(&text).unwrap();
    let template = plan.box_template(1).unwrap();
    assert_eq!((template.limits.memory, template.env.len()), (ByteSize::mib(1024), 1));
}

#[test]
fn h14_empty_list_in_a_box_removes_the_grants_of_the_template() {
    let mut ceiling = ceiling();
    let template = ceiling.templates.get_mut("default").unwrap();
    template.net = crate::choice::Net::Restricted;
    template.allow = vec!["pypi".parse().unwrap()];
    let plan = |keys: &str| {
        let text = format!("[task.b]\ndo.command = ['true']\n{keys}\n");
        parse(&text).unwrap().check(&ceiling).unwrap()
    };
    let rules = |plan: &CheckedPlan| plan.box_template(0).unwrap().allow.len();
    assert_eq!(rules(&plan("box.allow = []")), 0);
    assert_eq!(rules(&plan("box.pids = 5")), 1);
    // Also after the plan was stored.
    let stored = CheckedPlan::stored(&plan("box.allow = []").canonical()).unwrap();
    assert_eq!(rules(&stored), 0);
}

#[test]
fn h14_direct_mode_is_refused_also_from_the_template() {
    let mut ceiling = ceiling();
    ceiling.templates.get_mut("default").unwrap().mode = crate::choice::Mode::Direct;
    let refused = |text: &str| parse(text).unwrap().check(&ceiling).err().map(|it| it.to_string());
    let error = refused("[task.b]\ndo.command = ['true']\n").unwrap();
    assert!(error.contains("cannot write directly to the workspace"), "{error}");
    assert_eq!(refused("[task.b]\ndo.command = ['true']\nbox.mode = 'overlay'\n"), None);
    assert_eq!(refused("[task.b]\ndo.stub = 1\n"), None);
}

#[test]
fn box_without_a_timeout_gets_the_longest_one() {
    let mut ceiling = ceiling();
    ceiling.templates.get_mut("default").unwrap().limits.timeout = None;
    let plan = parse("[task.b]\ndo.command = ['true']\n").unwrap().check(&ceiling).unwrap();
    let timeout = plan.box_template(0).unwrap().limits.timeout;
    assert_eq!(timeout, Some(Duration::from_secs(7 * 86_400)));
}

#[test]
fn h16_budgets_cannot_exceed_those_of_their_parent() {
    let run =
        "[run]\nbudget = { money = '5 USD', tokens = 10, time = '1h', secrets.s.requests = 3 }\n";
    let text = |budget: &str| format!("{run}[task.a]\ndo.stub = 1\nbudget = {{ {budget} }}\n");
    for (budget, expect) in [
        ("money = '6 USD'", "`money` of the budget is 6 USD, but the budget of the run has 5 USD"),
        ("tokens = 11", "`tokens` of the budget is 11, but the budget of the run has 10"),
        ("time = '2h'", "`time` of the budget is 2h, but the budget of the run has 1h"),
        (
            "secrets.s.requests = 4",
            "`secrets.s.requests` of the budget is 4, but the budget of the run has 3",
        ),
    ] {
        let error = check(&text(budget)).unwrap_err();
        assert_eq!(error, format!("p.toml:5: task `a`: {expect}"));
    }
    let same = text("money = '5 USD', tokens = 10, time = '1h', secrets.s.requests = 3");
    assert_eq!(check(&same).err(), None);
    refused(
        "[run]\nbudget.money = '21 USD'",
        "4: `money` of the budget is 21 USD, but the budget of the tenant has 20 USD",
    );
    refused(
        "budget.money = '21 USD'",
        "3: task `a`: `money` of the budget is 21 USD, but the budget of the tenant has 20 USD",
    );
}

#[test]
fn h16_money_cap_with_an_unpriced_tier_is_refused() {
    let text = "[task.m]\ndo = { model = 'local', prompt = 'x' }\n";
    let expect = "p.toml:2: task `m`: the budget limits money, but the price of tier `local` is unknown; set `price` in `[tier.local]`";
    assert_eq!(check(text).unwrap_err(), expect);
    let free = Ceiling { budget: RunBudget::default(), ..ceiling() };
    assert!(parse(text).unwrap().check(&free).is_ok());
    let capped = format!("[run]\nbudget.money = '1 USD'\n{text}");
    assert!(parse(&capped).unwrap().check(&free).is_err());
}
