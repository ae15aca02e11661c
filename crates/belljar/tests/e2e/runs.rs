//! Runs of plans with the real binary: drivers and boxes that are killed, decisions of people, and `watch`
//! on a terminal.

mod watch;

use std::fs;

use belljar_testkit::{Lab, Signal, commit, eventually, eventually_shows, git};
use serde_json::Value;

use crate::lab;

/// A script whose first attempt waits for a file in its inputs.
const WAIT: &str = "echo waiting >&2; until [ -e /run/task/in/go ] || [ $BELLJAR_ATTEMPT = 2 ]; do sleep 0.02; done";

/// Submits a plan that is written to the workspace. Returns the id of the run.
#[track_caller]
fn submit(lab: &Lab, name: &str, plan: &str) -> String {
    lab.write(name, plan);
    let text = lab.belljar(["submit", name, "--json"]).succeed();
    let line: Value = serde_json::from_str(&text).unwrap();
    line["run"].as_str().unwrap().to_owned()
}

#[track_caller]
fn show(lab: &Lab, target: &str) -> Value {
    let text = lab.belljar(["runs", "show", target, "--json"]).succeed();
    serde_json::from_str(&text).unwrap()
}

/// Waits until a task has a state.
#[track_caller]
fn wait_for_state(lab: &Lab, run: &str, task: &str, state: &str) {
    let shown = || {
        let log = fs::read_to_string(lab.state().join("plans/driver.log")).unwrap_or_default();
        format!("{}\n{log}", show(lab, &format!("{run}/{task}")))
    };
    let expected = format!("\"state\":\"{state}\"");
    eventually_shows(&format!("{task} is {state}"), shown, |text| text.contains(&expected));
}

/// Waits until the program of a task has written the line of [`WAIT`]. Returns the box run.
#[track_caller]
fn wait_for_program(lab: &Lab, run: &str, task: &str) -> String {
    let target = format!("{run}/{task}");
    let mut box_run = String::new();
    eventually("the program of the task waits", || {
        let task = show(lab, &target);
        box_run = task["box_run"].as_str().unwrap_or_default().to_owned();
        task["lines"].to_string().contains("waiting")
    });
    box_run
}

/// Lets a program of [`WAIT`] continue.
fn release(lab: &Lab, run: &str, box_run: &str) {
    fs::write(lab.state().join(format!("plans/{run}/work/{box_run}/go")), "").unwrap();
}

/// Kills the process that has a file of the state directory open, and waits until no process has it open.
#[track_caller]
fn kill_holder(lab: &Lab, file: &str) {
    let file = lab.state().join(file);
    let holders = || -> Vec<i32> {
        let has_open = |pid: &i32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == file)
        };
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(has_open).collect()
    };
    let found = holders();
    let [pid] = found.as_slice() else { panic!("one process has {file:?} open: {found:?}") };
    rustix::process::kill_process(rustix::process::Pid::from_raw(*pid).unwrap(), Signal::KILL)
        .unwrap();
    eventually("the killed process is gone", || holders().is_empty());
}

/// Follows a run until it ends. Returns the exit code and the lines.
fn watch(lab: &Lab, run: &str) -> (i32, String) {
    let ended = lab.belljar(["watch", run]).run();
    (ended.code(), ended.out())
}

/// Returns how often a task was started, from the ledger.
fn starts(lab: &Lab, run: &str, task: &str) -> usize {
    let text = lab.belljar(["ledger", "log", "--run", run, "--json"]).succeed();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_start =
        |event: &Value| event["kind"] == "task.started" && event["fields"]["task"] == task;
    events.filter(is_start).count()
}

#[test]
fn submitted_run_continues_without_its_terminal_and_its_outputs_and_logs_are_shown() {
    let lab = lab();
    lab.write("issue.md", "one");
    let plan = "[run]\ninput.issue = { file = 'issue.md' }\n\
        [task.a]\ndo = { command = ['sh', '-c', 'echo to the log >&2; cat; echo \" two\"'] }\ndata = ['input.issue']\n\
        [task.b]\ndo = { command = ['sed', 's/$/ three/'] }\ndata = ['a']\n";
    // The terminal of the submission is closed before the run ends.
    lab.write("chain.toml", plan);
    let script = "\"$BELLJAR\" submit chain.toml >/dev/null & wait";
    lab.program("bash").args(["-c", script]).succeed();
    let (code, lines) = watch(&lab, "chain");
    assert_eq!(code, 0, "{lines}");
    assert_eq!(lab.belljar(["runs", "output", "chain/b"]).succeed(), "one two three");
    assert_eq!(lab.belljar(["logs", "chain/a"]).succeed(), "to the log");
    let list = lab.belljar(["runs"]).succeed();
    assert!(list.contains("chain         succeeded     2 of 2 tasks      plan"), "{list}");
}

#[test]
fn exec_runs_a_program_beside_a_running_agent_and_is_recorded() {
    let lab = lab();
    git(&lab.workspace(), &["init", "-q", "-b", "main"]);
    lab.write("README.md", "hello\n");
    commit(&lab.workspace(), "Begin");
    let agents = lab.home().join(".config/belljar/agents");
    fs::create_dir_all(&agents).unwrap();
    let script = format!("echo by the agent > made.txt; {WAIT}; cat > /dev/null");
    let agent = format!("program = 'bash'\n[task]\nargv = ['bash', '-c', '''{script}''']\n");
    fs::write(agents.join("own.toml"), agent).unwrap();
    let plan = "[task.fix]\ndo = { agent = 'own', prompt = 'Fix it.' }\n\
        [task.wait]\ndo = { command = ['sh', '-c', 'exec sleep 1000'] }\n";
    let run = submit(&lab, "fix.toml", plan);
    let box_run = wait_for_program(&lab, &run, "fix");
    // The program sees the clone and the processes of the agent, and its exit status is returned.
    let seen = lab.belljar(["exec", "fix/fix", "--", "cat", "made.txt"]).succeed();
    assert_eq!(seen, "by the agent");
    let status = lab.belljar(["exec", "fix/fix", "--", "sh", "-c", "exit 3"]).run();
    assert_eq!(status.code(), 3);
    let typed = lab.belljar(["exec", "fix/fix", "--", "tee", "more.txt"]).input("by a person\n");
    assert_eq!(typed.succeed(), "by a person");
    let text = lab.belljar(["ledger", "log", "--run", &box_run, "--kind", "box.exec"]).succeed();
    assert_eq!(text.lines().count(), 3, "{text}");
    wait_for_state(&lab, &run, "wait", "running");
    let refused = lab.belljar(["exec", "fix/wait", "--", "true"]).run();
    refused.fails_with(2, "starts no additional programs, because no agent does it");
    release(&lab, &run, &box_run);
    wait_for_state(&lab, &run, "fix", "done");
    let output = lab.belljar(["runs", "output", "fix/fix"]).succeed();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output["files"], 2, "both files are taken over: {output}");
    let ended = lab.belljar(["exec", "fix/fix", "--", "true"]).run();
    ended.fails_with(2, "is not running; its state is done");
    lab.belljar(["cancel", &run]).succeed();
    watch(&lab, &run);
}

#[test]
fn list_has_plans_and_single_commands_in_pages_and_needs_no_files_of_ended_runs() {
    let lab = lab();
    let mut expected = Vec::new();
    for number in 0..3 {
        let plan = "[task.a]\ndo.stub = 1\n[task.b]\ndo.stub = 2\nneeds = ['a']\n";
        let run = submit(&lab, &format!("plan-{number}.toml"), plan);
        assert_eq!(watch(&lab, &run).0, 0);
        expected.push(format!("plan-{number}"));
        lab.belljar(["run", "--name", &format!("single-{number}"), "--", "true"]).succeed();
        expected.push(format!("single-{number}"));
        // Without its files, an ended run is listed and cannot be shown.
        let files = lab.state().join(format!("plans/{run}"));
        fs::remove_dir_all(files).unwrap();
    }
    expected.reverse();
    let objects = |args: &[&str]| -> Vec<Value> {
        let text = lab.belljar(["runs", "--json"]).args(args).succeed();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let names = |objects: &[Value]| -> Vec<String> {
        objects.iter().filter_map(|it| Some(it["name"].as_str()?.to_owned())).collect()
    };
    let pages = || {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut args = vec!["--limit", "2"];
            args.extend(after.as_deref().into_iter().flat_map(|after| ["--after", after]));
            let page = objects(&args);
            let page_names = names(&page);
            assert!(page_names.len() <= 2, "{page:?}");
            found.extend(page_names);
            after = page.iter().find_map(|it| Some(it["next"].as_str()?.to_owned()));
            if after.is_none() {
                return found;
            }
        }
    };
    let all = objects(&[]);
    assert_eq!(names(&all), expected);
    let plan = &all[1];
    assert_eq!((&plan["state"], &plan["reason"]), (&"finished".into(), &"succeeded".into()));
    assert_eq!(
        (&plan["tasks"], &plan["done"], &plan["phase"]),
        (&2.into(), &2.into(), &"ended".into())
    );
    assert_eq!(pages(), expected);
    // The database of runs is missing, or older than the ledger.
    fs::remove_file(lab.state().join("runs.db")).unwrap();
    assert_eq!(pages(), expected);
    lab.belljar(["run", "--name", "later", "--", "true"]).succeed();
    expected.insert(0, "later".to_owned());
    assert_eq!(pages(), expected);
    // The runs of another directory are listed only on request.
    let other = lab.dir().join("other");
    fs::create_dir(&other).unwrap();
    let listed = |args: &[&str]| {
        lab.belljar(["runs", "--json"]).args(args).cwd(&other).succeed().lines().count()
    };
    assert_eq!((listed(&[]), listed(&["--all"]), listed(&["--all", "--pending"])), (0, 7, 0));
    let first = lab.belljar(["runs", "--limit", "1"]).run();
    assert!(first.err().contains("there are more runs; add `--after "), "{}", first.err());
    lab.belljar(["runs", "--after", "x"]).run().fails_with(2, "invalid cursor");
    lab.belljar(["runs", "--limit", "0"]).run().fails_with(2, "--limit");
}

#[test]
fn submission_prints_the_id_of_its_run_if_no_driver_starts_and_resume_continues_it() {
    let lab = lab();
    lab.write("stub.toml", "[task.a]\ndo.stub = 1\n");
    lab.belljar(["runs"]).succeed();
    let log = lab.state().join("plans/driver.log");
    fs::create_dir_all(&log).unwrap(); // no driver can open its log
    let plain = lab.belljar(["submit", "stub.toml"]).run();
    assert!(plain.code() != 0 && plain.out().contains("not started"), "{}", plain.out());
    assert!(plain.err().contains("cannot start the driver"), "{}", plain.err());
    assert!(plain.err().contains("`belljar resume` starts a driver"), "{}", plain.err());
    let id = plain.out().split_whitespace().next().unwrap().to_owned();
    let json = lab.belljar(["submit", "stub.toml", "--json"]).run();
    let line: Value = serde_json::from_str(&json.out()).unwrap();
    assert!(json.code() != 0 && line["run"].is_string(), "{line}");
    fs::remove_dir(&log).unwrap();
    lab.belljar(["resume"]).succeed();
    for run in [id.as_str(), line["run"].as_str().unwrap()] {
        assert_eq!(watch(&lab, run).0, 0);
    }
    // The same holds for a run that repeats another one.
    eventually("the driver has exited", || {
        let resumed = lab.belljar(["resume"]).succeed();
        resumed == "no run is open"
    });
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let args = ["runs", "rerun", &id, "--from", "a", "--json"];
    eventually("no driver runs", || {
        let again = lab.belljar(args).run();
        let line: Value = serde_json::from_str(&again.out()).unwrap();
        assert!(line["run"].is_string(), "{line}");
        again.code() != 0
    });
}

#[test]
fn cancelled_run_ends_its_boxes_and_watch_returns_1() {
    let lab = lab();
    let plan = format!(
        "[task.a]\ndo.command = ['sh', '-c', '{WAIT}']\n[task.b]\ndo.stub = 1\nneeds = ['a']\n"
    );
    let run = submit(&lab, "slow.toml", &plan);
    wait_for_program(&lab, &run, "a");
    let text = lab.belljar(["cancel", &run]).succeed();
    assert!(text.starts_with(&format!("cancelling {run};")), "{text}");
    let (code, lines) = watch(&lab, &run);
    assert_eq!(code, 1, "{lines}");
    let shown = show(&lab, &run);
    assert_eq!(
        (&shown["outcome"], &shown["tasks"][0]["state"]),
        (&"cancelled".into(), &"cancelled".into())
    );
    lab.belljar(["cancel", &run]).run().fails_with(2, "has ended: cancelled");
}

#[test]
fn cancelled_task_ends_and_other_tasks_go_on() {
    let lab = lab();
    let plan = format!(
        "[run]\nanswer = 'b'\n[task.a]\ndo.command = ['sh', '-c', '{WAIT}']\n[task.b]\ndo.command = ['echo', 'fine']\n"
    );
    let run = submit(&lab, "two.toml", &plan);
    wait_for_program(&lab, &run, "a");
    lab.belljar(["cancel", &format!("{run}/missing")]).run().fails_with(2, "has no task missing");
    lab.belljar(["cancel", &format!("{run}/a"), "--json"]).succeed();
    assert_eq!(watch(&lab, &run).0, 0);
    assert_eq!(show(&lab, &format!("{run}/a"))["state"], "cancelled");
}

#[test]
fn h11_resume_after_a_kill_of_the_driver_adopts_boxes_and_repeats_nothing() {
    let lab = lab();
    let plan = format!(
        "[task.first]\ndo.command = ['echo', 'one']\n[task.second]\ndo.command = ['sh', '-c', '{WAIT}; cat']\ndata = ['first']\n"
    );
    let run = submit(&lab, "resumed.toml", &plan);
    let box_run = wait_for_program(&lab, &run, "second");
    kill_holder(&lab, "driver.lock");
    let text = lab.belljar(["resume"]).succeed();
    let expected =
        "driver epoch 2: 1 open run; 1 goes on\n  resumed  second  box still running; adopted";
    assert_eq!(text, expected);
    let again = lab.belljar(["resume", "--json"]).succeed();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["driver_was_running"], &again["epoch"]), (&true.into(), &2.into()));
    release(&lab, &run, &box_run);
    assert_eq!(watch(&lab, &run).0, 0);
    assert_eq!(lab.belljar(["runs", "output", "resumed/second"]).succeed(), "one");
    assert_eq!((starts(&lab, &run, "first"), starts(&lab, &run, "second")), (1, 1));
}

#[test]
fn h11_resume_reports_boxes_that_died_and_tasks_that_need_a_decision() {
    let lab = lab();
    let plan = format!(
        "[task.again]\ndo.command = ['sh', '-c', '{WAIT}']\n[task.asks]\ndo.command = ['sh', '-c', '{WAIT}']\non_crash = 'ask'\n"
    );
    let run = submit(&lab, "died.toml", &plan);
    let boxes = ["again", "asks"].map(|task| wait_for_program(&lab, &run, task));
    kill_holder(&lab, "driver.lock");
    for box_run in boxes {
        kill_holder(&lab, &format!("runs/{box_run}/lock"));
    }
    let text = lab.belljar(["resume"]).succeed();
    let expected = format!(
        "driver epoch 2: 1 open run; 1 goes on; 1 task needs attention
  died  again  box died; no effect on record; started again
        asks   box died and may have had an effect: needs attention
        belljar runs settle {run}/asks --rerun | --done FILE | --failed"
    );
    assert_eq!(text, expected);
    let pending = lab.belljar(["runs", "--pending"]).succeed();
    assert!(pending.contains("died          attention     "), "{pending}");
    let page = lab.belljar(["runs", "show", &run]).succeed();
    assert!(page.contains(&format!("belljar runs settle {run}/asks --rerun")), "{page}");
    lab.belljar(["runs", "settle", &format!("{run}/asks"), "--failed"]).succeed();
    assert_eq!(watch(&lab, &run).0, 1);
    assert_eq!(show(&lab, &format!("{run}/asks"))["reason"], "settled as failed");
    assert_eq!((starts(&lab, &run, "again"), starts(&lab, &run, "asks")), (2, 1));
}

#[test]
fn settled_task_is_done_with_the_given_file_or_runs_again() {
    let lab = lab();
    let plan = format!(
        "[task.push]\ndo.command = ['sh', '-c', '{WAIT}; echo {{}}']\non_crash = 'ask'\noutput = {{ type = 'json', max = '1 KiB' }}\n[task.next]\ndo.command = ['cat']\ndata = ['push']\nwhen = {{ of = 'push', at = '/n', equals = 7 }}\n"
    );
    let lose = |name: &str| {
        let run = submit(&lab, name, &plan);
        let box_run = wait_for_program(&lab, &run, "push");
        lab.belljar(["runs", "settle", &format!("{run}/push"), "--rerun"])
            .run()
            .fails_with(2, "does not wait for a decision; its state is running");
        kill_holder(&lab, &format!("runs/{box_run}/lock"));
        wait_for_state(&lab, &run, "push", "attention");
        run
    };
    let run = lose("given.toml");
    let push = format!("{run}/push");
    let settle = |file: &str| lab.belljar(["runs", "settle", &push, "--done", file]).run();
    lab.write("wrong.json", "{");
    settle("wrong.json")
        .fails_with(2, "the file cannot be the output of push: the output is not JSON");
    lab.write("large.json", format!("\"{}\"", "x".repeat(2000)));
    settle("large.json").fails_with(2, "it is larger than");
    settle("missing.json").fails_with(2, "cannot read missing.json");
    lab.write("right.json", "{\"n\": 7}");
    settle("right.json").expect(0);
    assert_eq!(watch(&lab, &run).0, 0);
    let output = |task: &str| lab.belljar(["runs", "output", &format!("{run}/{task}")]).succeed();
    assert_eq!((output("push"), output("next")), ("{\"n\": 7}".into(), "{\"n\": 7}".into()));
    let given = show(&lab, &push);
    assert_eq!(given["reason"], "output given by a person");
    let requests = fs::read_dir(lab.state().join(format!("plans/{run}/control"))).unwrap();
    assert_eq!(requests.count(), 0, "the request and its file are removed");
    assert!(given["by"].as_str().unwrap().starts_with("user:"), "{given}");
    let run = lose("repeated.toml");
    lab.belljar(["runs", "settle", &format!("{run}/push"), "--rerun"]).succeed();
    let (code, lines) = watch(&lab, &run);
    assert_eq!(code, 0, "{lines}");
    assert_eq!((starts(&lab, &run, "push"), starts(&lab, &run, "next")), (2, 0), "{lines}");
}

/// A plan whose tasks count their starts in their outputs.
const COUNTED: &str = "[task.list]\ndo.command = ['sh', '-c', 'echo \"[$(date +%s%N)]\"']\noutput = 'json'\n\
    [task.each]\ndo.command = ['date', '+%s%N']\nneeds = ['list']\nfor_each = { of = 'list', at = '' }\n\
    [task.other]\ndo.command = ['date', '+%s%N']\n\
    [task.join]\ndo.command = ['sh', '-c', 'cat /run/task/in/each* /run/task/in/other']\ndata = ['each', 'other']\n";

fn outputs(lab: &Lab, run: &str) -> [String; 4] {
    ["list", "each[0]", "other", "join"]
        .map(|task| lab.belljar(["runs", "output", &format!("{run}/{task}")]).succeed())
}

/// Repeats a run from a task and waits for its end. Returns the new run and the tasks that it reuses.
#[track_caller]
fn rerun(lab: &Lab, run: &str, from: &str) -> (String, Vec<String>) {
    let text = lab.belljar(["runs", "rerun", run, "--from", from, "--json"]).succeed();
    let line: Value = serde_json::from_str(&text).unwrap();
    let new = line["run"].as_str().unwrap().to_owned();
    let (code, lines) = watch(lab, &new);
    assert_eq!(code, 0, "{lines}");
    let reused = line["reused"].as_array().unwrap();
    (new, reused.iter().map(|task| task.as_str().unwrap().to_owned()).collect())
}

#[test]
fn rerun_reuses_outputs_of_tasks_that_do_not_depend_on_the_first_task() {
    let lab = lab();
    let run = submit(&lab, "counted.toml", COUNTED);
    assert_eq!(watch(&lab, &run).0, 0);
    let before = outputs(&lab, &run);
    // The name of the plan finds the newest run, so the first run is named by its id.
    let (new, reused) = rerun(&lab, &run, "join");
    assert_eq!(reused, ["list", "each[0]", "other"]);
    assert_eq!(outputs(&lab, &new), before);
    assert_eq!(
        ["list", "each[0]", "other", "join"].map(|task| starts(&lab, &new, task)),
        [0, 0, 0, 1]
    );
    // A repeated run can be repeated.
    assert_eq!(rerun(&lab, &new, "join").1, ["list", "each[0]", "other"]);
    let (new, reused) = rerun(&lab, &run, "list");
    assert_eq!(reused, ["other"]);
    let after = outputs(&lab, &new);
    assert!(after[0] != before[0] && after[1] != before[1] && after[2] == before[2], "{after:?}");
    lab.belljar(["runs", "rerun", &run, "--from", "missing"])
        .run()
        .fails_with(2, "no task missing");
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn rerun_reads_the_inputs_of_the_first_submission_and_repeats_tasks_that_were_not_done() {
    let lab = lab();
    lab.write("in.txt", "before");
    let plan = "[run]\ninput.text = { file = 'in.txt' }\n\
        [task.read]\ndo.command = ['cat']\ndata = ['input.text']\n\
        [task.flaky]\ndo.command = ['sh', '-c', '[ -e /workspace/fixed ] && echo well'] \ndo.workspace = '.'\n";
    let run = submit(&lab, "inputs.toml", plan);
    assert_eq!(watch(&lab, &run).0, 1);
    lab.belljar(["runs", "rerun", &run, "--from", "read", "--watch"]).run().expect(1);
    lab.write("in.txt", "after");
    lab.write("fixed", "");
    let (new, reused) = rerun(&lab, &run, "read");
    assert!(reused.is_empty(), "{reused:?}");
    assert_eq!(lab.belljar(["runs", "output", &format!("{new}/read")]).succeed(), "before");
    let (_, reused) = rerun(&lab, &run, "flaky");
    assert_eq!(reused, ["read"]);
}

#[test]
fn runs_show_prints_a_page_about_a_run_of_a_single_command() {
    let lab = lab();
    lab.belljar(["run", "--name", "single", "--", "true"]).succeed();
    let page = lab.belljar(["runs", "show", "single"]).succeed();
    assert!(page.contains("purpose    run\n") && page.contains("ended      exited"), "{page}");
    let json: Value =
        serde_json::from_str(&lab.belljar(["runs", "show", "single", "--json"]).succeed()).unwrap();
    assert_eq!(json["name"], "single");
}

#[test]
fn h17_rerun_reuses_nothing_after_a_change_of_the_policy_or_of_a_stored_output() {
    let lab = lab();
    let run = submit(&lab, "counted.toml", COUNTED);
    assert_eq!(watch(&lab, &run).0, 0);
    lab.configure("[template.default]\nmemory = '200MiB'\n");
    let refused = lab.belljar(["runs", "rerun", &run, "--from", "join"]).run();
    refused.fails_with(2, "have changed since run");
    lab.configure("");
    // Control: with the same configuration, the outputs are reused.
    assert_eq!(rerun(&lab, &run, "join").1, ["list", "each[0]", "other"]);
    fs::write(lab.state().join(format!("plans/{run}/out/other")), "forged").unwrap();
    let (new, reused) = rerun(&lab, &run, "join");
    assert_eq!(reused, ["list", "each[0]"]);
    assert!(!outputs(&lab, &new).concat().contains("forged"));
}
