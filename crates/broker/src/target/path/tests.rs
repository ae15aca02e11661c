//! Tests of unambiguous and ambiguous paths.

use proptest::prelude::*;

use super::*;

fn good(target: &str) -> (CanonicalPath, Option<String>) {
    CanonicalPath::parse(target).unwrap_or_else(|error| panic!("{target}: {error}"))
}

#[test]
fn unambiguous_paths_are_accepted_unchanged() {
    for target in [
        "/",
        "/a",
        "/a/",
        "/a/b.c",
        "/.well-known/x",
        "/a/...",
        "/a..b",
        "/v1beta/models/x:generate",
        "/@scope/pkg",
        "/a(b)!$&'+,=",
        "/%20",
        "/%C3%A9",
        "/a%3Fb",
        "/~user",
        "/100%25",
    ] {
        assert_eq!(good(target).0.as_str(), target);
    }
    assert_eq!(good("/a?b=c&d[]=%00").1.as_deref(), Some("b=c&d[]=%00"));
    assert_eq!(good("/a?").1.as_deref(), Some(""));
    assert_eq!(good("/a*/**").0.as_str(), "/a%2A/%2A%2A");
    assert_eq!(good("/@types%2fnode").0.as_str(), "/@types%2Fnode");
}

#[test]
fn a24_ambiguous_paths_are_refused() {
    for (target, expect) in [
        ("", Ambiguous::Relative),
        ("*", Ambiguous::Relative),
        ("a/b", Ambiguous::Relative),
        ("/public/../admin", Ambiguous::Dots),
        ("/public/./admin", Ambiguous::Dots),
        ("/..", Ambiguous::Dots),
        ("/public/%2e%2e/admin", Ambiguous::Dots),
        ("/public/.%2E/admin", Ambiguous::Dots),
        ("/public/..%2fadmin", Ambiguous::Dots),
        ("/public%2f..%2fadmin", Ambiguous::Dots),
        ("/public%2F.%2Fadmin", Ambiguous::Dots),
        ("//admin", Ambiguous::Empty),
        ("/a//b", Ambiguous::Empty),
        ("/a/%2fb", Ambiguous::Empty),
        ("/a%2f%2fb", Ambiguous::Empty),
        ("/a\\b", Ambiguous::Backslash),
        ("/a%5cb", Ambiguous::Backslash),
        ("/a/..%5c..%5cb", Ambiguous::Backslash),
        ("/a;x", Ambiguous::Semicolon),
        ("/a/..;/b", Ambiguous::Semicolon),
        ("/a%3bx", Ambiguous::Semicolon),
        ("/a#b", Ambiguous::Fragment),
        ("/a?b#c", Ambiguous::Fragment),
        ("/a%00", Ambiguous::Control),
        ("/a%0d%0aHost:%20x", Ambiguous::Control),
        ("/a%7f", Ambiguous::Control),
        ("/a\n", Ambiguous::Control),
        ("/a\t", Ambiguous::Control),
        ("/%", Ambiguous::Escape),
        ("/%4", Ambiguous::Escape),
        ("/%zz", Ambiguous::Escape),
        ("/%u002e", Ambiguous::Escape),
        ("/%41dmin", Ambiguous::Needless),
        ("/%7euser", Ambiguous::Needless),
        ("/%252e%252e/admin", Ambiguous::Twice),
        ("/%2541", Ambiguous::Twice),
        ("/caf\u{e9}", Ambiguous::Character),
        ("/a b", Ambiguous::Character),
        ("/a\"b", Ambiguous::Character),
        ("/a?b c", Ambiguous::Query),
        ("/a?\u{e9}", Ambiguous::Query),
        ("/a?b\u{7f}", Ambiguous::Query),
    ] {
        assert_eq!(CanonicalPath::parse(target).map(|_| ()), Err(expect), "{target:?}");
    }
    assert_eq!(
        CanonicalPath::parse(&format!("/{}", "a".repeat(MAX))).map(|_| ()),
        Err(Ambiguous::TooLong)
    );
    // Control: the plain path is accepted.
    good("/public/admin");
}

#[test]
fn a24_escaped_slash_neither_widens_allow_rules_nor_evades_deny_rules() {
    let pattern = |text: &str| text.parse::<PathPattern>().unwrap();
    let (path, _) = good("/public/a%2fadmin");
    assert!(!path.allowed_by(&pattern("/public/*")), "some servers read two segments");
    assert!(path.allowed_by(&pattern("/public/**")));
    assert!(path.denied_by(&pattern("/public/*")) && path.denied_by(&pattern("/public/a/admin")));
    let (path, _) = good("/admin%2fusers");
    assert!(path.denied_by(&pattern("/admin/**")));
    assert!(!path.allowed_by(&pattern("/admin/**")), "some servers read one segment");
    assert!(path.allowed_by(&pattern("/admin%2fusers")), "a rule can name the escaped path");
    assert!(!path.allowed_by(&pattern("/admin/users")) && !path.allowed_by(&pattern("/*")));
    let (path, _) = good("/v1/x%3Adelete");
    assert!(path.denied_by(&pattern("/v1/x:delete")));
    let (path, _) = good("/a%20b");
    assert!(path.denied_by(&pattern("/a%20b")) && path.allowed_by(&pattern("/a%20b")));
}

#[test]
fn a26_query_that_overrides_the_method_is_refused() {
    let check = |method: &str, target: &str| {
        let (path, query) = good(target);
        query_override(&method.parse().unwrap(), &path, query.as_deref())
    };
    assert_eq!(check("GET", "/graphql?query=mutation%20%7Bx%7D"), Err(QueryOverride::Mutation));
    assert_eq!(check("GET", "/api/GraphQL?a=1&query=%6dutation+x"), Err(QueryOverride::Mutation));
    assert_eq!(check("HEAD", "/graphql?query=mutation"), Err(QueryOverride::Mutation));
    assert_eq!(check("POST", "/x?_method=DELETE"), Err(QueryOverride::Method));
    assert_eq!(check("GET", "/x?%5Fmethod=PUT"), Err(QueryOverride::Method));
    // Controls: a safe GraphQL query and a mutation by POST.
    assert_eq!(check("GET", "/graphql?query=%7Bviewer%7D"), Ok(()));
    assert_eq!(check("POST", "/graphql?query=mutation"), Ok(()));
    assert_eq!(check("GET", "/x?query=mutation"), Ok(()));
    assert_eq!(check("GET", "/x?method=DELETE"), Ok(()));
}

/// Returns the segments that a careless server reads: all escapes decoded, then dots and slashes
/// resolved.
fn careless(path: &str) -> Vec<String> {
    let mut segments: Vec<String> = Vec::new();
    let decoded = percent_decoded(&percent_decoded(path)).replace('\\', "/");
    for segment in decoded.split('/') {
        let segment = segment.split(';').next().unwrap_or_default();
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment.to_owned()),
        }
    }
    segments
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a24_careless_servers_reach_only_allowed_paths(
        target in "(/|\\.|%2e|%2E|%2f|%2F|%5c|%25|%252e|;|public|admin|a|\\\\|%00|%3b|\\?|#| ){0,9}",
    ) {
        let target = format!("/{target}");
        let allowed: PathPattern = "/public/**".parse().unwrap();
        if let Ok((path, _)) = CanonicalPath::parse(&target) && path.allowed_by(&allowed) {
            let spelled = target.split('?').next().unwrap();
            let reached = careless(spelled);
            prop_assert_eq!(reached.first().map(String::as_str), Some("public"));
        }
        let denied: PathPattern = "/admin/**".parse().unwrap();
        if let Ok((path, _)) = CanonicalPath::parse(&target) {
            let spelled = target.split('?').next().unwrap();
            let reached = careless(spelled).first().is_some_and(|first| first == "admin");
            prop_assert!(!reached || path.denied_by(&denied), "{}", target);
        }
    }

    #[test]
    fn parsing_a_canonical_path_again_does_not_change_it(target in "/[ -~]{0,30}|(?s).{0,20}") {
        if let Ok((path, _)) = CanonicalPath::parse(&target) {
            prop_assert_eq!(CanonicalPath::parse(path.as_str()).map(|(path, _)| path), Ok(path));
        }
    }
}
