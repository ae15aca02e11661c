//! Programs that exhaust memory or processes, or never end.

use belljar_testkit::{ProcessTree, cgroups_of, descendants, eventually};
use serde_json::json;

use super::*;

#[test]
fn d17_execute_code_refuses_invalid_and_too_long_timeouts() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    for timeout in [
        json!(0),
        json!(-1),
        json!(0.5),
        json!(601),
        json!(1e300),
        json!("0"),
        json!("soon"),
        json!([1]),
    ] {
        let arguments = json!({ "code": "1", "timeout": timeout });
        let answer = mcp.wait_for_response(mcp.start_call("execute_code", &arguments));
        let refused = answer.get("error").is_some() || answer["result"]["isError"] == true;
        assert!(refused, "{timeout}: {answer}");
        assert!(answer["result"]["structuredContent"].get("run").is_none(), "{answer}");
    }
    let allowed = mcp.call("execute_code", &json!({ "code": "1", "timeout": 600 }));
    assert_eq!(allowed["structuredContent"]["result"], 1, "control: {allowed}");
}

#[test]
fn d16_program_that_exhausts_memory_fails_without_affecting_other_calls() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let bombs = [
        ("ts", "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1));"),
        ("ts", "let s = 'x'; for (;;) s += s;"),
        ("ts", "const all = []; for (;;) all.push({ a: [1, 2, 3] });"),
        ("ts", "const f = () => [f(), f()]; f();"),
        ("ts", "new Array(2 ** 32 - 1).fill(1)"),
        ("ts", "new ArrayBuffer(2 ** 40)"),
        ("ts", "/(a+)+$/.test('a'.repeat(64) + 'b')"),
        ("py", "x = []\nwhile True: x.append(bytearray(1 << 20))"),
    ];
    let calls: Vec<u64> = bombs
        .iter()
        .map(|(language, code)| {
            mcp.start_call(
                "execute_code",
                &json!({ "code": code, "language": language, "timeout": 10 }),
            )
        })
        .collect();
    // The server answers other calls while these programs run.
    assert_eq!(result(&mcp, "'beside it'"), "beside it");
    for ((_, code), id) in bombs.iter().zip(calls) {
        let response = &mcp.wait_for_response(id)["result"]["structuredContent"];
        assert_eq!(response["ok"], false, "{code}: {response:#}");
    }
    assert_eq!(result(&mcp, "'afterwards'"), "afterwards");
}

#[test]
fn d16_full_workspace_stops_programs_that_write_and_no_other_program() {
    let lab = lab();
    lab.configure("[code]\ntemplate = 'small'\n[template.small]\ndisk = '16MiB'\n");
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let write = |name: &str| {
        let code = format!(
            "import fs from 'node:fs'; for (let i = 0; i < 3; i++) fs.writeFileSync(`/workspace/{name}${{i}}`, new Uint8Array(8 << 20).fill(1)); await new Promise(() => setInterval(() => 0, 10));"
        );
        let arguments = json!({ "code": code, "timeout": 60 });
        mcp.call("execute_code", &arguments)["structuredContent"].clone()
    };
    let filled = write("a");
    assert_eq!((&filled["reason"], &filled["notes"]), (&json!("disk"), &json!([])), "{filled:#}");
    // Each program lives long enough for several measurements, which find more files than the limit allows.
    let waits = "await new Promise((resolve) => setTimeout(resolve, 1500));";
    let reads =
        format!("import fs from 'node:fs'; {waits} fs.readdirSync('/workspace').length > 0");
    for code in [reads, format!("{waits} true")] {
        let response = mcp.run(&code);
        assert_eq!(result_of(&response), true, "{response:#}");
        let notes = response["notes"].to_string();
        assert!(notes.contains("exceeded the limit of 16MiB by"), "{response:#}");
    }
    // Control: a program that writes more is still stopped.
    let response = write("b");
    assert_eq!(response["reason"], "disk", "{response:#}");
    assert!(response["notes"].to_string().contains("delete files first"), "{response:#}");
    // A program can delete the files, and later programs can write again.
    let cleared = run_command(&mcp, &["sh", "-c", "rm /workspace/*; ls -A /workspace"]);
    assert_eq!((&cleared["ok"], &cleared["stdout"]), (&json!(true), &json!("")), "{cleared:#}");
    let code = format!(
        "import fs from 'node:fs'; fs.writeFileSync('/workspace/f', 'x'.repeat(1 << 20)); {waits} 4"
    );
    let response = mcp.run(&code);
    assert_eq!((result_of(&response), &response["notes"]), (json!(4), &json!([])), "{response:#}");
}

#[test]
fn d16_fork_bomb_in_execute_code_leaves_no_process_or_cgroup() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let before = run_command(&mcp, &["sh", "-c", "sleep 0.01 & wait; echo $?"]);
    assert_eq!(before["stdout"], "0\n", "control: {before:#}");
    let family = ProcessTree::watch(mcp.pid());
    let bomb = "echo so far; f() { f | f & }; f; sleep 60";
    let answer = mcp.call("execute_code", &json!({ "code": bomb, "language": "sh", "timeout": 2 }));
    let response = &answer["structuredContent"];
    assert_eq!(response["ok"], false, "{response:#}");
    assert!(response["stdout"].as_str().unwrap().starts_with("so far"), "{response:#}");
    assert_eq!(result(&mcp, "'afterwards'"), "afterwards");
    mcp.end().expect(0);
    assert!(family.wait_until_gone() > 0);
    assert_eq!(cgroups_of(&lab.runs()), Vec::<PathBuf>::new());
}

#[test]
fn d17_cancelled_call_ends_all_its_processes() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let endless = [
        json!({ "code": "console.log('on'); for (;;);", "timeout": 600 }),
        json!({ "code": "console.log('on'); while (true) await new Promise((r) => setTimeout(r, 0));", "timeout": 600 }),
        json!({ "code": "trap '' TERM INT HUP; (setsid sleep 1000 &) ; echo on; sleep 1000", "language": "sh", "timeout": 600 }),
    ];
    let count = |text: &str| lab.belljar(["ledger", "log"]).run().out().matches(text).count();
    for arguments in endless {
        let before = count("run.exec");
        let id = mcp.start_call("execute_code", &arguments);
        // Boxes that wait for a program also run for a moment, so the ledger must have the event, too.
        eventually("the program runs", || count("run.exec") > before && any_busy(&mcp));
        mcp.cancel(id);
        assert_eq!(result(&mcp, "'next'"), "next");
        // Boxes that wait for the next program sleep; only the cancelled program would be running.
        eventually("no process of the cancelled call is left", || !any_busy(&mcp));
        assert!(!mcp.has_response(id) || mcp.wait_for_response(id).to_string().contains("cancel"));
    }
    // The supervisors ended the programs and recorded that; they were not killed themselves.
    eventually("all ends are recorded", || count("interrupted") == 3);
    let family = ProcessTree::watch(mcp.pid());
    mcp.end().expect(0);
    family.wait_until_gone();
    assert_eq!(cgroups_of(&lab.runs()), Vec::<PathBuf>::new());
}

#[test]
fn d17_killed_mcp_server_ends_the_processes_of_its_calls() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    mcp.start_call("execute_code", &json!({ "code": "for (;;);", "timeout": 600 }));
    // Boxes that wait for a program also run for a moment, so the ledger must have the event, too.
    let has = |text: &str| lab.belljar(["ledger", "log"]).run().out().contains(text);
    eventually("the program runs", || has("run.exec") && any_busy(&mcp));
    let family = ProcessTree::watch(mcp.pid());
    belljar_testkit::kill(mcp.pid());
    assert!(family.wait_until_gone() > 0, "the processes end before their timeout");
    eventually("the end of the run is in the ledger", || has("interrupted"));
}

/// Tells whether any thread of a descendant of the server is running, or a descendant is `sleep`.
fn any_busy(mcp: &Mcp) -> bool {
    let is_running = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|it| it.1.starts_with('R'))
    };
    descendants(mcp.pid()).iter().any(|(pid, _)| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        line.starts_with(b"sleep") || threads.flatten().any(is_running)
    })
}
