//! Secrets in programs that use `fetch`: a program sees only placeholders.

use serde_json::json;

use super::*;

#[test]
fn b01_placeholder_from_fetch_is_replaced_by_the_value_only_in_its_slot() {
    let (lab, upstream) = lab_with_api(echo);
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
const token = process.env.TOKEN;
const ask = async (path, init) => {
  try { return (await fetch("https://api.example.com" + path, init)).status; } catch (error) { return `${error.name}: ${error.message}`; }
};
const headers = { authorization: `Bearer ${token}` };
({
  control: await ask("/control", { headers }),
  body: await ask("/body", { method: "POST", body: `token=${token}` }),
  json: await ask("/json", { method: "POST", headers, body: JSON.stringify({ note: token }) }),
  stream: await ask("/stream", { method: "POST", duplex: "half", body: new ReadableStream({ start(c) { const b = new TextEncoder().encode(token); c.enqueue(b.slice(0, 9)); c.enqueue(b.slice(9)); c.close(); } }) }),
  query: await ask(`/query?t=${token}`),
  path: await ask(`/path/${token}`),
  base64: await ask("/base64", { method: "POST", body: btoa(token) }),
  other: await ask("/other", { headers: { "x-note": token } }),
  agent: await ask("/agent", { headers: { "user-agent": token } }),
  cookie: await ask("/cookie", { headers: { cookie: `t=${token}` } }),
  twice: await ask("/twice", { headers: { ...headers, "x-api-key": token } }),
});
"#;
    let results = result(&mcp, code);
    // In a body to a host of the secret, the placeholder is masked.
    let masked = ["body", "json", "stream", "base64"];
    for name in masked.into_iter().chain(["control"]) {
        assert_eq!(results[name], 200, "{name}: {results:#}");
    }
    let is_refused = |name: &str| name != "control" && !masked.contains(&name);
    for (name, outcome) in results.as_object().unwrap().iter().filter(|(name, _)| is_refused(name))
    {
        let refused = outcome == &json!(403)
            || outcome.as_str().is_some_and(|it| it.starts_with("TypeError"));
        assert!(refused, "{name}: {results:#}");
    }
    let received = upstream.received();
    let bearer = format!("Bearer {SECRET_VALUE}");
    assert_eq!(received[0].header("authorization"), Some(bearer.as_str()));
    for it in &received[1..] {
        let body = String::from_utf8_lossy(&it.body).into_owned();
        assert!(body.contains("[belljar:token]"), "{}: {body}", it.path);
        assert!(!body.contains(SECRET_VALUE) && !body.contains("ghp_"), "{}: {body}", it.path);
        assert!(!it.path.contains("ghp_") && it.header("x-note").is_none(), "{}", it.path);
    }
    let log = lab.belljar(["ledger", "log", "--json", "--limit", "100000"]).succeed();
    assert!(log.contains("placeholder-elsewhere") && !log.contains(SECRET_VALUE), "{log}");
    assert_eq!(log.matches("\"secret.masked\"").count(), masked.len(), "{log}");
}

#[test]
fn b03_placeholder_from_fetch_is_refused_in_headers_that_servers_forward() {
    let (lab, upstream) = lab_with_api(echo);
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
const token = process.env.TOKEN;
const out = {};
for (const name of ["cookie", "referer", "user-agent", "x-forwarded-for", "origin", "x-forwarded-host", "via"]) {
  try { out[name] = (await fetch("https://api.example.com/sink", { headers: { [name]: token } })).status; } catch (error) { out[name] = error.name; }
}
out;
"#;
    let results = result(&mcp, code);
    for (name, outcome) in results.as_object().unwrap() {
        assert!(outcome == "TypeError" || outcome == &json!(403), "{name}: {results:#}");
    }
    assert!(upstream.received().is_empty());
    assert_eq!(result(&mcp, "(await fetch('https://api.example.com/')).status"), 200, "control");
}

#[test]
fn b04_secret_that_a_server_echoes_is_scrubbed_before_the_program_sees_it() {
    let (lab, _) = lab_with_api(|received| {
        let sent = received.header("authorization").unwrap_or_default().to_owned();
        let body = json!({ "sent": sent, "again": received.to_json() }).to_string();
        Reply::new(if received.path == "/error" { 500 } else { 200 }, body)
            .header("x-echo", &sent)
            .header("set-cookie", &format!("session={sent}"))
            .header("content-type", "application/json")
    });
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
const headers = { authorization: `Bearer ${process.env.TOKEN}` };
const res = await fetch("https://api.example.com/x", { headers });
const bad = await fetch("https://api.example.com/error", { headers });
const client = await apis.svc.get("/y");
({ status: res.status, headers: [...res.headers], body: await res.text(), bad: [bad.status, await bad.text()], client });
"#;
    let response = mcp.run(code);
    let results = result_of(&response);
    assert_eq!((&results["status"], &results["bad"][0]), (&json!(200), &json!(500)), "{results:#}");
    let all = response.to_string();
    assert!(all.contains("[belljar:token]"), "control: {all}");
    assert!(!all.contains(SECRET_VALUE), "{all}");
    assert!(!all.contains(&SECRET_VALUE[4..20]), "{all}");
}

#[test]
fn b05_secret_echoed_in_base64_hex_or_escapes_is_scrubbed_for_fetch() {
    use base64::Engine as _;
    let (lab, _) = lab_with_api(|received| {
        let sent =
            received.header("authorization").unwrap_or_default().trim_start_matches("Bearer ");
        let hex: String = sent.bytes().map(|byte| format!("{byte:02x}")).collect();
        let escaped: String = sent.chars().map(|it| format!("\\u{:04x}", u32::from(it))).collect();
        let percent: String = sent.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let based = base64::engine::general_purpose::STANDARD.encode(format!("user:{sent}"));
        Reply::new(200, format!("{based}\n{hex}\n{escaped}\n{percent}\nplain"))
    });
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
const text = await (await fetch("https://api.example.com/x", { headers: { authorization: `Bearer ${process.env.TOKEN}` } })).text();
const [based, hex, escaped, percent, plain] = text.split("\n");
const tries = (f) => { try { return f(); } catch { return "?"; } };
[tries(() => atob(based)), tries(() => Buffer.from(hex, "hex").toString()), tries(() => JSON.parse(`"${escaped}"`)), tries(() => decodeURIComponent(percent)), plain, text];
"#;
    let results = result(&mcp, code);
    assert_eq!(results[4], "plain", "control: {results:#}");
    assert!(!results.to_string().contains(&SECRET_VALUE[4..24]), "{results:#}");
}

#[test]
fn b06_secret_split_across_chunks_is_scrubbed_in_a_fetch_stream() {
    let (lab, _) = lab_with_api(|received| {
        let sent = received.header("authorization").unwrap_or_default().to_owned();
        let size = received.path.rsplit('/').next().and_then(|it| it.parse().ok()).unwrap_or(1);
        let text = format!("before {sent} after");
        let chunks = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
        Reply { chunks, pause: std::time::Duration::from_millis(1), ..Reply::new(200, "") }
    });
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
const out = [];
for (const size of [1, 2, 7, 20, 39, 40, 41]) {
  const res = await fetch(`https://api.example.com/${size}`, { headers: { authorization: `Bearer ${process.env.TOKEN}` } });
  const parts = [];
  const decoder = new TextDecoder();
  for await (const chunk of res.body) parts.push(decoder.decode(chunk, { stream: true }));
  out.push(parts.join(""));
}
out;
"#;
    let results = result(&mcp, code);
    for text in results.as_array().unwrap() {
        assert_eq!(text, "before Bearer [belljar:token] after", "{results:#}");
    }
}

#[test]
fn a20_fetch_with_a_foreign_credential_is_refused_for_a_host_that_has_a_secret() {
    let (lab, upstream) = lab_with_api(echo);
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
const ask = async (headers, path = "/x") => {
  try { return (await fetch("https://api.example.com" + path, { headers })).status; } catch (error) { return error.name; }
};
({
  control: await ask({ authorization: `Bearer ${process.env.TOKEN}` }),
  own: await ask({ authorization: "Bearer ghp_aKeyOfTheAttackersOwn0123456789abcdef" }),
  basic: await ask({ authorization: "Basic " + btoa("user:pass") }),
  key: await ask({ "x-api-key": "sk-attacker-0123456789abcdefghijklmnop" }),
  query: await ask({}, "/x?access_token=ghp_aKeyOfTheAttackersOwn0123456789abcdef"),
});
"#;
    let results = result(&mcp, code);
    assert_eq!(results["control"], 200, "{results:#}");
    for name in ["own", "basic", "key", "query"] {
        assert!(results[name] == "TypeError" || results[name] == 403, "{name}: {results:#}");
    }
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn b02_call_leaves_no_secret_in_state_files_and_its_placeholder_expires() {
    let (lab, _) = lab_with_api(echo);
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = "console.log(process.env.TOKEN, await (await fetch('https://api.example.com/', { headers: { authorization: `Bearer ${process.env.TOKEN}` } })).text()); require('fs').writeFileSync('/workspace/kept', process.env.TOKEN)";
    let first = mcp.run(code);
    let second =
        mcp.run("[require('fs').readFileSync('/workspace/kept', 'utf8'), process.env.TOKEN]");
    let kept = result_of(&second);
    // The next call has another placeholder, and the stored one is refused.
    assert!(kept[0].as_str().unwrap().starts_with("ghp_"), "control: {kept}");
    assert_ne!(kept[0], kept[1], "{kept}");
    let used = mcp.run(
        "const old = require('fs').readFileSync('/workspace/kept', 'utf8'); \
         await fetch('https://api.example.com/', { headers: { authorization: `Bearer ${old}` } }).then((r) => r.status, (e) => e.name)",
    );
    assert!(used["result"] == "TypeError" || used["result"] == 403, "{used:#}");
    assert!(!format!("{first}{second}{used}").contains(SECRET_VALUE));
    drop(mcp);
    let state = lab.program("grep").args(["-rlF", SECRET_VALUE]).arg(lab.state()).run();
    assert_eq!(state.out(), "", "no file of the state directory has the secret");
}
