//! Chromium against `belljar serve`: the login of a device, and what a page of another origin can do while a person
//! is logged in.

use std::path::Path;
use std::time::Duration;

use belljar_testkit::{Lab, Program, Signal};
use serde_json::{Value, json};

use super::{CHROMIUM, start};
use crate::lab;
use crate::mcp::installed;

/// Starts a script that uses Chromium. Its first arguments are the modules of the browser and the browser.
fn browser(lab: &Lab, script: &str) -> Program {
    let node = installed("mcp").join("npm/node_modules/node/bin/node");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/serve").join(script);
    lab.program(node).arg(script).arg(installed("browser")).arg(CHROMIUM)
}

#[test]
fn person_permits_the_login_of_a_device_on_the_page_that_the_device_names() {
    let lab = lab();
    let (live, address, _) = start(&lab);
    let link = lab.belljar(["login-link"]).succeed();
    let script = browser(&lab, "device_login.mjs").args([link.trim(), &address]);
    let text = script.start().within(Duration::from_secs(120)).wait().expect(0);
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["before"], 428, "control: nobody has permitted it {result}");
    assert_eq!(result["shown"], "The device is logged in.");
    assert_eq!((&result["after"], &result["principal"]), (&json!(200), &json!("service:laptop")));
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
}

#[test]
fn f04_page_of_another_origin_can_read_and_change_nothing() {
    let lab = lab();
    let (live, _, _) = start(&lab);
    let link = lab.belljar(["login-link"]).succeed();
    let script = browser(&lab, "other_origin.mjs").arg(link.trim());
    let ended = script.start().within(Duration::from_secs(200)).wait();
    let text = ended.expect(0);
    let results: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{ended:?}"));
    let control = json!({ "created": 201, "boxes": ["control"] });
    assert_eq!(results["control"], control, "control: the own page can read and change");
    for host in ["localhost", "other.localhost", "127.0.0.1"] {
        let tried = results[host].as_object().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(tried.len(), 15, "control: every attempt was made\n{text}");
        for (attempt, result) in tried {
            let is_harmless = match result.as_str() {
                Some(
                    "" | "refused" | "no document" | "cut off" | "opaque 0" | "nothing happened",
                ) => true,
                Some(text) => text.starts_with("refused: "),
                None => false,
            };
            assert!(is_harmless, "{host}: {attempt}: {result}");
        }
    }
    let after = json!({ "boxes": ["control"], "created": 201 });
    assert_eq!(results["after"], after, "nothing was created, and the session is valid");
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
}
