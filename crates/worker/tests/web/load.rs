//! Modules that are loaded over HTTP.

use std::net::{IpAddr, Ipv4Addr};

use belljar_testkit::{Reply, Upstream};
use belljar_worker::runtime::http::{LoadedModule, ModuleKind, load};

const BROKER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn site() -> (Upstream, String) {
    let upstream = Upstream::plain(|request| {
        let typed = |kind: &str, body: &str| Reply::new(200, body).header("content-type", kind);
        match request.path.as_str() {
            "/a.ts" => typed("application/typescript", "export const a: number = 1"),
            "/video.ts" => typed("video/mp2t", "export const b: number = 1"),
            "/c" => typed("text/javascript; charset=utf-8", "export const c = 1"),
            "/d.mjs" => typed("text/plain", "export const d = 1"),
            "/e.json" => typed("application/json", "{}"),
            "/moved" => Reply::new(302, "").header("location", "/deep/a.js"),
            "/deep/a.js" => typed("application/javascript", "export default import.meta.url"),
            "/page.js" => typed("text/html", "<html>"),
            "/plain" => typed("text/plain", "x"),
            "/big.js" => {
                Reply::new(200, vec![b' '; (8 << 20) + 1]).header("content-type", "text/javascript")
            }
            "/latin.js" => Reply::new(200, vec![0xe4]).header("content-type", "text/javascript"),
            "/refused.js" => {
                Reply::new(403, "belljar: no rule allows it\n").header("x-belljar", "no-rule")
            }
            _ => Reply::new(404, "no"),
        }
    });
    let url = format!("https://esm.example.com:{}", upstream.address().port());
    (upstream, url)
}

#[test]
fn module_language_comes_from_its_content_type_or_extension() {
    let (_upstream, url) = site();
    for (path, kind, at) in [
        ("/a.ts", ModuleKind::TypeScript, "/a.ts"),
        ("/video.ts", ModuleKind::TypeScript, "/video.ts"),
        ("/c", ModuleKind::JavaScript, "/c"),
        ("/d.mjs", ModuleKind::JavaScript, "/d.mjs"),
        ("/e.json", ModuleKind::Json, "/e.json"),
        ("/moved", ModuleKind::JavaScript, "/deep/a.js"),
    ] {
        let LoadedModule { url: from, kind: got, source } =
            load(BROKER, &format!("{url}{path}")).unwrap();
        assert_eq!((got, from), (kind, format!("{url}{at}")), "{path}: {source}");
    }
}

#[test]
fn failed_module_load_reports_the_reason() {
    let (_upstream, url) = site();
    for (path, expected) in [
        ("/page.js", "the content type \"text/html\" is not a module"),
        ("/plain", "the content type \"text/plain\" is not a module"),
        ("/big.js", "larger than 8 MiB"),
        ("/latin.js", "not valid UTF-8"),
        ("/none.js", "404 Not Found"),
        ("/refused.js", "no rule allows it"),
    ] {
        let error = load(BROKER, &format!("{url}{path}")).unwrap_err();
        assert!(
            error.starts_with(&format!("cannot import {url}{path}: ")) && error.contains(expected),
            "{error}"
        );
    }
    assert!(load(BROKER, "nonsense").unwrap_err().contains("not a valid URL"));
    assert!(load(BROKER, "file:///etc/passwd").unwrap_err().contains("only http: and https:"));
}
