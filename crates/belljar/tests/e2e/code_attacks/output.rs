//! Output of code-mode programs: limits, timeouts, control sequences and invalid text.

use belljar_testkit::Terminal;
use serde_json::json;

use super::*;

/// An upper bound for a response with 1 MiB of output, sent twice and escaped to six bytes each.
const MAX_RESPONSE: usize = 16 << 20;

#[test]
fn d18_execute_code_truncates_endless_output_and_keeps_its_start() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let endless = [
        json!({ "code": "console.log('first'); for (;;) console.log('x'.repeat(1000));", "timeout": 2 }),
        json!({ "code": "console.error('first'); for (;;) console.error('y'.repeat(100000));", "timeout": 2 }),
        json!({ "code": "process.stdout.write('first'); for (;;) process.stdout.write('z'.repeat(1 << 20));", "timeout": 2 }),
    ];
    for arguments in endless {
        let answer = mcp.call("execute_code", &arguments);
        let response = &answer["structuredContent"];
        assert!(answer.to_string().len() < MAX_RESPONSE, "{} bytes", answer.to_string().len());
        assert_eq!(response["ok"], false, "{}", response["reason"]);
        let (out, err) =
            (response["stdout"].as_str().unwrap(), response["stderr"].as_str().unwrap());
        assert!(out.starts_with("first") || err.starts_with("first"), "{}", response["reason"]);
        assert!(response["stdout_truncated"] == true || response["stderr_truncated"] == true);
    }
    // A native command that writes 10 GiB.
    let flood = json!({ "command": "echo first; head -c 10G /dev/zero", "timeout": 3 });
    let answer = mcp.call("run_command", &flood);
    assert!(answer.to_string().len() < MAX_RESPONSE, "{} bytes", answer.to_string().len());
    assert!(answer["structuredContent"]["stdout"].as_str().unwrap().starts_with("first\n"));
    assert_eq!(answer["structuredContent"]["stdout_truncated"], true);
    // Control: output below the limit is complete.
    let whole = mcp.run("console.log('w'.repeat(500000))");
    assert_eq!(whole["stdout"].as_str().unwrap().len(), 500_001);
    assert_eq!(whole["stdout_truncated"], false);
}

#[test]
fn d18_execute_code_limits_the_size_of_results_and_errors() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let huge = [
        "'r'.repeat(50 << 20)",
        "Array.from({ length: 1 << 20 }, () => 'r'.repeat(40))",
        "throw new Error('m'.repeat(50 << 20))",
    ];
    for code in huge {
        let answer =
            mcp.wait_for_response(mcp.start_call("execute_code", &json!({ "code": code })));
        assert!(
            answer.to_string().len() < MAX_RESPONSE,
            "{code}: {} bytes",
            answer.to_string().len()
        );
    }
    assert_eq!(result(&mcp, "'r'.repeat(5)"), "rrrrr", "control");
}

#[test]
fn d18_execute_code_keeps_the_output_written_before_a_timeout() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let waits = [
        (
            "ts",
            "console.log('so far'); await new Promise((r) => setTimeout(r, 60000)); console.log('never')",
        ),
        ("ts", "console.log('so far'); for (;;);"),
        ("js", "console.log('so far'); while (true) await null;"),
        ("sh", "echo so far; sleep 60; echo never"),
        ("py", "print('so far', flush=True)\nwhile True: pass"),
    ];
    for (language, code) in waits {
        let arguments = json!({ "code": code, "language": language, "timeout": 1 });
        let response = &mcp.call("execute_code", &arguments)["structuredContent"];
        assert_eq!(response["reason"], "timeout", "{language}: {response:#}");
        assert_eq!(response["stdout"], "so far\n", "{language}: {response:#}");
        assert_eq!(response["ok"], false);
    }
    assert_eq!(result(&mcp, "'in time'"), "in time", "control");
}

const HOSTILE: &str =
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;title\x07\u{9b}31m\u{202e}reversed\x08\x08\r";

#[test]
fn f13_terminal_control_sequences_of_a_program_are_escaped_or_removed() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = format!(
        "console.log({HOSTILE:?}); console.error({HOSTILE:?}); throw new Error({HOSTILE:?})"
    );
    let answer = mcp.wait_for_response(
        mcp.start_call("execute_code", &json!({ "code": code, "language": "js" })),
    );
    // The JSON response has no control byte; after decoding, the output is complete.
    let raw = answer.to_string();
    assert!(!raw.bytes().any(|byte| byte < b' '), "{raw:?}");
    assert!(
        answer["result"]["structuredContent"]["stdout"].as_str().unwrap().contains("\x1b]52"),
        "control"
    );
    // On a terminal the output cannot change anything but the screen.
    lab.write("hostile.js", format!("{code}\n"));
    let program = lab.belljar(["code", "hostile.js"]).env("TERM", "xterm-256color");
    let (status, screen) = Terminal::start(program, 30, 100).end();
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert!(!status.success());
    assert!(screen.contains("reversed"), "control: {screen:?}");
    for never in ["\x1b]52", "\u{9b}"] {
        assert!(!screen.contains(never), "{never:?} in {screen:?}");
    }
    let error = screen.lines().filter(|line| line.contains("Error: "));
    assert!(error.clone().count() > 0, "{screen:?}");
    assert!(
        error.clone().all(|line| !line.trim_end().contains(['\x1b', '\u{202e}'])),
        "{screen:?}"
    );
    // The ledger log is safe to print on a terminal.
    let log = lab.belljar(["ledger", "log"]).succeed();
    assert!(!log.contains(['\x1b', '\u{9b}', '\u{202e}']), "{log:?}");
}

#[test]
fn d18_invalid_utf8_in_output_becomes_replacement_characters() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let response = run_command(&mcp, &["printf", r"ok \377\376 \303\244 \360\237\230"]);
    assert_eq!(response["stdout"], "ok \u{fffd}\u{fffd} \u{e4} \u{fffd}", "{response:#}");
    let lone = mcp.run("console.log('a\\uD800b'); '\\uDFFF'");
    assert_eq!((&lone["ok"], &lone["stdout"]), (&json!(true), &json!("a\u{fffd}b\n")), "{lone:#}");
    let nul = mcp.run("console.log('a\\u0000b')");
    assert_eq!(nul["stdout"], "a\0b\n", "{nul:#}");
}
