//! Modules from the network.

use std::net::{IpAddr, Ipv4Addr};

use belljar_testkit::{Reply, Upstream};
use belljar_worker::runtime::http::{Kind, Loaded, load};

const DOOR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

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
fn a_module_is_what_its_type_says_or_else_its_name() {
    let (_upstream, url) = site();
    for (path, kind, at) in [
        ("/a.ts", Kind::TypeScript, "/a.ts"),
        ("/video.ts", Kind::TypeScript, "/video.ts"),
        ("/c", Kind::JavaScript, "/c"),
        ("/d.mjs", Kind::JavaScript, "/d.mjs"),
        ("/e.json", Kind::Json, "/e.json"),
        ("/moved", Kind::JavaScript, "/deep/a.js"),
    ] {
        let Loaded { url: from, kind: got, source } = load(DOOR, &format!("{url}{path}")).unwrap();
        assert_eq!((got, from), (kind, format!("{url}{at}")), "{path}: {source}");
    }
}

#[test]
fn what_cannot_be_a_module_says_why() {
    let (_upstream, url) = site();
    for (path, expected) in [
        ("/page.js", "\"text/html\" is no type of a module"),
        ("/plain", "\"text/plain\" is no type of a module"),
        ("/big.js", "longer than 8 MiB"),
        ("/latin.js", "not text in UTF-8"),
        ("/none.js", "404 Not Found"),
        ("/refused.js", "no rule allows it"),
    ] {
        let error = load(DOOR, &format!("{url}{path}")).unwrap_err();
        assert!(
            error.starts_with(&format!("import of {url}{path}: ")) && error.contains(expected),
            "{error}"
        );
    }
    assert!(load(DOOR, "nonsense").unwrap_err().contains("no URL"));
    assert!(load(DOOR, "file:///etc/passwd").unwrap_err().contains("only http: and https:"));
}
