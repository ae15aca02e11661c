//! `belljar secret`: values can be set and used, and are never printed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_testkit::{Lab, Program, Terminal};
use serde_json::Value;

use crate::lab;

/// The value of the secrets, which must not appear in any output or file.
const CANARY: &str = "canary-4f1dB7-value-of-a-secret";

/// The configuration that declares the secret `tracker`.
const DECLARED: &str = r#"
[secret.tracker]
hosts = ["tracker.example.com", "*.tracker.example.com"]
slots = ["header:x-tracker-key", "query:key"]
env = "TRACKER_KEY"
"#;

/// Returns the command `belljar secret` with these arguments.
fn secret(lab: &Lab, args: &[&str]) -> Program {
    lab.belljar(["secret"]).args(args)
}

/// Writes the operator's `belljar.toml`.
fn config(lab: &Lab, text: &str) {
    let dir = lab.home().join(".config/belljar");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("belljar.toml"), text).unwrap();
}

/// Stores a secret.
fn set(lab: &Lab, name: &str, value: impl Into<Vec<u8>>) {
    secret(lab, &["set", name]).input(value).succeed();
}

/// Runs a command that must succeed and returns the JSON objects that it writes, one per line.
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Returns the events of a kind in the ledger.
fn events(lab: &Lab, kind: &str) -> Vec<Value> {
    objects(lab.belljar(["ledger", "log", "--json", "--kind", kind]))
}

/// Collects the paths and contents of all files below a directory.
fn collect_files(dir: &Path, all: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => collect_files(&entry.path(), all),
            _ => all.push((entry.path().display().to_string(), fs::read(entry.path()).unwrap())),
        }
    }
}

/// Asserts that no file of the state directory contains the canary, also not in hex or base64.
#[track_caller]
fn assert_canary_not_stored(lab: &Lab) {
    let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    // The part of the base64 text that does not depend on the bytes around the canary.
    let base64 = STANDARD.encode(&CANARY[3..CANARY.len() - 4]);
    let mut all = Vec::new();
    collect_files(&lab.state(), &mut all);
    assert!(all.iter().any(|(name, _)| name.ends_with(".sealed")), "a secret is stored");
    for (name, content) in all {
        for form in [CANARY, &hex, &base64, &CANARY[8..20]] {
            let found = content.windows(form.len()).any(|window| window == form.as_bytes());
            assert!(!found && !name.contains(form), "{name} contains {form}");
        }
    }
}

#[test]
fn secret_is_set_listed_tested_and_removed() {
    let lab = lab();
    config(&lab, DECLARED);
    let ended = secret(&lab, &["set", "tracker"]).input(format!("{CANARY}\n")).run();
    assert_eq!(ended.status.code(), Some(0));
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(
        stderr,
        "belljar: stored the secret tracker; bound to tracker.example.com, *.tracker.example.com in header:x-tracker-key, query:key, placeholder in $TRACKER_KEY\n"
    );
    assert!(ended.stdout.is_empty());
    let line = secret(&lab, &["list"]).succeed();
    assert!(line.starts_with("tracker              20") && line.contains("Z  bound to"), "{line}");
    let listed = objects(secret(&lab, &["list", "--json"]));
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["name"], "tracker");
    assert_eq!(listed[0]["hosts"][1], "*.tracker.example.com");
    assert_eq!(listed[0]["slots"][0], "header:x-tracker-key");
    assert_eq!(listed[0]["env"], "TRACKER_KEY");
    assert!(listed[0]["set_at"].as_str().unwrap().ends_with('Z'));
    let tested = secret(&lab, &["test", "tracker"]).succeed();
    assert!(tested.starts_with("tracker can be decrypted; stored 20"), "{tested}");
    assert_eq!(objects(secret(&lab, &["test", "tracker", "--json"]))[0]["opens"], true);
    assert_canary_not_stored(&lab);

    secret(&lab, &["rm", "tracker"]).succeed();
    let listed = objects(secret(&lab, &["list", "--json"]));
    assert_eq!(listed[0]["is_set"], false, "a declared secret is listed as not set");
    for args in [["rm", "tracker"], ["test", "tracker"]] {
        let ended = secret(&lab, &args).run();
        assert_eq!(ended.status.code(), Some(2));
    }
}

#[test]
fn secret_set_and_rm_are_recorded_in_the_ledger() {
    let lab = lab();
    config(&lab, DECLARED);
    set(&lab, "tracker", CANARY);
    set(&lab, "other", CANARY);
    secret(&lab, &["rm", "other"]).succeed();
    let set = events(&lab, "secret.set");
    assert_eq!(set.len(), 2);
    assert_eq!(set[0]["fields"]["name"], "tracker");
    assert_eq!(set[0]["fields"]["slots"][1], "query:key");
    assert_eq!(set[1]["fields"]["hosts"].as_array().unwrap().len(), 0);
    assert_eq!(events(&lab, "secret.removed")[0]["fields"]["name"], "other");
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn secret_set_reads_the_value_from_a_variable_file_or_command() {
    let lab = lab();
    let file = lab.dir().join("value");
    fs::write(&file, format!("{CANARY}\r\n")).unwrap();
    let file = file.to_str().unwrap();
    secret(&lab, &["set", "one", "--from-env", "OWN"]).env("OWN", CANARY).succeed();
    secret(&lab, &["set", "two", "--from-file", file]).succeed();
    secret(&lab, &["set", "three", "--from-command", "cat", "-u", file]).succeed();
    let listed = objects(secret(&lab, &["list", "--json"]));
    assert!(listed.iter().all(|secret| secret["is_set"] == true) && listed.len() == 3);
    assert_canary_not_stored(&lab);
    for (args, expected) in [
        (["set", "s", "--from-env", "NO_SUCH"], "NO_SUCH is not set"),
        (["set", "s", "--from-file", "/no/such"], "--from-file: cannot read /no/such"),
        (["set", "s", "--from-command", "false"], "exit status: 1"),
        (["set", "s", "--from-command", "/no/such"], "cannot start /no/such"),
        (["set", "s", "--from-command", "true"], "empty"),
    ] {
        let ended = secret(&lab, &args).run();
        assert!(!ended.status.success());
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains(expected), "{stderr}");
    }
    let both = secret(&lab, &["set", "s", "--from-env", "OWN", "--from-file", file]).run();
    assert_eq!(both.status.code(), Some(2));
    assert_eq!(objects(secret(&lab, &["list", "--json"])).len(), 3);
}

#[test]
fn secret_set_refuses_invalid_values_without_printing_them() {
    let lab = lab();
    for (value, expected) in [
        (Vec::new(), "is empty"),
        (b"\n".to_vec(), "is empty"),
        (b"short12".to_vec(), "fewer than 8 bytes"),
        (b"canary-4f1d\nx: injected".to_vec(), "control character"),
        (b"canary-4f1d\r\nx: injected\n".to_vec(), "control character"),
        (b"canary-4f1d\0".to_vec(), "control character"),
        (vec![b'a'; (64 << 10) + 1], "64 KiB"),
        (vec![b'a'; 1 << 20], "64 KiB"),
    ] {
        let ended = secret(&lab, &["set", "s"]).input(value).run();
        assert_eq!(ended.status.code(), Some(1));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains(expected) && !stderr.contains("canary"), "{stderr}");
    }
    assert!(objects(secret(&lab, &["list", "--json"])).is_empty());
    assert!(!lab.state().join("vault/s.sealed").exists());
    for name in ["", "Big", "../x", "a b", "-x", "x/y"] {
        let ended = secret(&lab, &["set", name]).input(CANARY).run();
        assert_eq!(ended.status.code(), Some(2), "{name:?}");
    }
}

#[test]
fn b19_secret_commands_never_print_a_value() {
    let lab = lab();
    config(&lab, DECLARED);
    set(&lab, "tracker", CANARY);
    for verb in ["get", "show", "cat", "export", "print", "reveal"] {
        assert_eq!(secret(&lab, &[verb, "tracker"]).run().status.code(), Some(2), "{verb}");
    }
    for args in [["list", "--json"].as_slice(), &["list"], &["test", "tracker"], &["rm", "tracker"]]
    {
        let ended = secret(&lab, args).run();
        assert_eq!(ended.status.code(), Some(0));
        let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert!(!output.contains(&CANARY[8..20]), "{args:?} prints {output}");
    }
}

#[test]
fn b16_secret_prompt_hides_the_input_and_restores_the_terminal() {
    let lab = lab();
    let script = r#""$BELLJAR" secret set s; echo "ended $?"; read"#;
    let mut terminal = Terminal::start(lab.program("bash").args(["-c", script]), 24, 80);
    let before = terminal.settings();
    terminal.wait_for("Value of s (not shown): ");
    assert_ne!(terminal.settings().local_modes, before.local_modes, "echo is off");
    // The input has a deleted character and a deleted line.
    terminal.type_keys(&format!("x\x7fwrong\x15{CANARY}\r"));
    terminal.wait_for("ended 0");
    assert_eq!(terminal.settings().local_modes, before.local_modes);
    assert_eq!(terminal.settings().input_modes, before.input_modes);
    terminal.type_keys("\r");
    let (_, screen) = terminal.end();
    let screen = String::from_utf8_lossy(&screen);
    assert!(!screen.contains(&CANARY[..6]) && !screen.contains("wrong"), "{screen}");
    secret(&lab, &["test", "s"]).run();
    assert_canary_not_stored(&lab);
}

#[test]
fn secret_prompt_accepts_a_long_line_and_refuses_two_lines() {
    let lab = lab();
    let prompt = |typed: &str| {
        let script =
            r#""$BELLJAR" secret set s; echo "ended $?"; read -r rest; echo "left:$rest:""#;
        let mut terminal = Terminal::start(lab.program("bash").args(["-c", script]), 24, 80);
        terminal.wait_for("(not shown): ");
        terminal.type_keys(typed);
        terminal.wait_for("ended ");
        terminal.type_keys("\r");
        terminal.end();
        terminal.text()
    };
    // The line buffer of the kernel has only 4095 bytes.
    let screen = prompt(&format!("{}\r", "a".repeat(6000)));
    assert!(screen.contains("ended 0"), "{screen}");
    assert!(fs::metadata(lab.state().join("vault/s.sealed")).unwrap().len() > 6000);
    let screen = prompt("first line\rsecond line\r");
    assert!(screen.contains("more than one line") && screen.contains("ended 1"), "{screen}");
    assert!(!screen.contains("second"), "the second line does not reach the shell: {screen}");
}

#[test]
fn secret_prompt_restores_the_terminal_after_a_signal() {
    let lab = lab();
    for (keys, code) in [("\x03", 130), ("\x1c", 131)] {
        let script = r#"trap : INT QUIT; "$BELLJAR" secret set s; echo "ended $?"; read"#;
        let mut terminal = Terminal::start(lab.program("bash").args(["-c", script]), 24, 80);
        let before = terminal.settings();
        terminal.wait_for("(not shown): ");
        terminal.type_keys("half of a val");
        terminal.type_keys(keys);
        terminal.wait_for(&format!("ended {code}"));
        assert_eq!(terminal.settings().local_modes, before.local_modes);
        terminal.type_keys("\r");
        let (_, screen) = terminal.end();
        assert!(!String::from_utf8_lossy(&screen).contains("half"));
    }
    assert!(!lab.state().join("vault/s.sealed").exists());
}

#[test]
fn b16_vault_files_readable_by_others_are_refused() {
    let lab = lab();
    config(&lab, DECLARED);
    set(&lab, "tracker", CANARY);
    let vault = lab.state().join("vault");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&vault), 0o700);
    for name in ["key", "tracker.sealed"] {
        let path = vault.join(name);
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let ended = secret(&lab, &["test", "tracker"]).run();
        assert_eq!(ended.status.code(), Some(1));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains("mode 644"), "{stderr}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    secret(&lab, &["test", "tracker"]).succeed();
}

#[test]
fn b16_changed_or_swapped_vault_file_is_not_decrypted() {
    let lab = lab();
    config(&lab, DECLARED);
    set(&lab, "tracker", CANARY);
    set(&lab, "other", "of-somebody-else");
    let vault = lab.state().join("vault");
    let sealed = fs::read(vault.join("tracker.sealed")).unwrap();
    let assert_refused = |expected: &str| {
        let ended = secret(&lab, &["test", "tracker"]).run();
        assert_eq!(ended.status.code(), Some(1));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains(expected), "{stderr}");
    };
    fs::copy(vault.join("other.sealed"), vault.join("tracker.sealed")).unwrap();
    assert_refused("contains another secret");
    let mut changed = sealed.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(vault.join("tracker.sealed"), changed).unwrap();
    assert_refused("modified or is damaged");
    fs::write(vault.join("tracker.sealed"), &sealed).unwrap();
    secret(&lab, &["test", "tracker"]).succeed();
    fs::write(vault.join("key"), [7; 32]).unwrap();
    assert_refused("another key");
}

#[test]
fn vault_key_can_come_from_a_command() {
    let lab = lab();
    let key = lab.dir().join("keyring");
    fs::write(&key, "0123456789abcdef0123456789abcdef0123456789abcdef\n").unwrap();
    let configure_key_file = |path: &Path| {
        config(
            &lab,
            &format!(
                "[vault]\nkey-command = [\"cat\", {:?}]\n{DECLARED}",
                path.display().to_string()
            ),
        );
    };
    configure_key_file(&key);
    set(&lab, "tracker", CANARY);
    secret(&lab, &["test", "tracker"]).succeed();
    assert!(!lab.state().join("vault/key").exists(), "no key is stored in the vault");
    for (content, expected) in [("short", "fewer than 32 bytes"), (&"x".repeat(40), "another key")]
    {
        fs::write(&key, content).unwrap();
        let ended = secret(&lab, &["test", "tracker"]).run();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && stderr.contains(expected), "{stderr}");
    }
    configure_key_file(Path::new("/no/such/file"));
    let ended = secret(&lab, &["set", "tracker"]).input(CANARY).run();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && stderr.contains("`key-command` cat"), "{stderr}");
}

#[test]
fn secret_set_and_rm_are_refused_when_the_ledger_cannot_be_written() {
    let lab = lab();
    set(&lab, "one", CANARY);
    let log = lab.state().join("ledger/events.log");
    let kept = fs::read(&log).unwrap();
    fs::write(&log, &kept[..kept.len() / 2]).unwrap();
    for (args, input) in [(["set", "two"], CANARY), (["rm", "one"], "")] {
        let ended = secret(&lab, &args).input(input).run();
        assert_eq!(ended.status.code(), Some(1));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains("ledger"), "{stderr}");
    }
    let vault = lab.state().join("vault");
    assert!(vault.join("one.sealed").exists() && !vault.join("two.sealed").exists());
    fs::write(&log, &kept).unwrap();
    set(&lab, "two", CANARY);
}

#[test]
fn secret_set_checks_the_format_of_a_sigv4_key_pair() {
    let lab = lab();
    config(&lab, "[secret.aws]\nkind = \"sigv4\"\nhosts = [\"bucket.s3.amazonaws.com\"]\n");
    let ended = secret(&lab, &["set", "aws"]).input("AKIAIOSFODNN7EXAMPLE").run();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && stderr.contains("ID:SECRET"), "{stderr}");
    set(&lab, "aws", "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
}
