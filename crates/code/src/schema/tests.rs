use serde_json::json;

use super::*;

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the cases read better without `&`")]
fn check(schema: Value, expect: &str) {
    let mut names = Names::new(&schema);
    let text = type_of(&schema, &mut names);
    let declared = names.declarations();
    let whole = if declared.is_empty() { text } else { format!("{text}\n{declared}") };
    assert_eq!(whole.trim_end(), expect);
}

#[test]
fn primitive_schemas_become_primitive_types() {
    check(json!({"type": "string"}), "string");
    check(json!({"type": "integer"}), "number");
    check(json!({"type": ["string", "null"]}), "string | null");
    check(json!({"type": "string", "nullable": true}), "string | null");
    check(json!({"enum": ["a", "b\"c", 1, null]}), r#""a" | "b\"c" | 1 | null"#);
    check(json!({"const": true}), "true");
    check(json!({}), "unknown");
    check(json!(true), "unknown");
    check(json!(false), "never");
    check(json!({"type": "no-such"}), "unknown");
}

#[test]
fn array_schemas_become_arrays_and_tuples() {
    check(json!({"type": "array", "items": {"type": "string"}}), "string[]");
    check(
        json!({"type": "array", "items": {"type": ["string", "number"]}}),
        "Array<string | number>",
    );
    check(json!({"type": "array"}), "unknown[]");
    check(
        json!({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": false}),
        "[string, number]",
    );
}

#[test]
fn object_schemas_mark_optional_properties() {
    check(
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b-c": {"type": "number"}}, "required": ["a"]}),
        r#"{ a: string; "b-c"?: number }"#,
    );
    check(json!({"type": "object"}), "Record<string, unknown>");
    check(json!({"type": "object", "additionalProperties": false}), "{}");
    check(json!({"additionalProperties": {"type": "number"}}), "Record<string, number>");
    check(
        json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        "{ a?: string } & Record<string, string>",
    );
    check(json!({"type": "object", "required": ["x"]}), "{ x: unknown }");
    check(
        json!({"type": "object", "properties": {"a": {"type": "string", "description": "The\nname */ x"}}}),
        "{\n  /** The name * / x */\n  a?: string;\n}",
    );
}

#[test]
fn schema_compositions_become_unions_and_intersections() {
    check(
        json!({"oneOf": [{"type": "string"}, {"type": "string"}, {"type": "null"}]}),
        "string | null",
    );
    check(
        json!({"allOf": [{"properties": {"a": {}}}, {"anyOf": [{"type": "string"}, {"type": "number"}]}]}),
        "{ a?: unknown } & (string | number)",
    );
    check(json!({"anyOf": [{"type": "string"}, {}]}), "unknown");
}

#[test]
fn schema_references_become_named_types_even_if_they_are_recursive() {
    check(
        json!({"$ref": "#/$defs/tree-node", "$defs": {"tree-node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree-node"}}}}}}),
        "TreeNode\ntype TreeNode = { children?: TreeNode[] };",
    );
    check(
        json!({"properties": {"self": {"$ref": "#"}}}),
        "{ self?: Root }\ntype Root = { self?: Root };",
    );
    check(json!({"$ref": "https://example.com/x.json"}), "unknown");
    check(json!({"$ref": "#/nowhere"}), "unknown");
    check(json!({"$ref": "#/%"}), "unknown");
}

#[test]
fn equal_schema_names_of_two_documents_get_different_type_names() {
    let one = json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}});
    let two = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "number"}}});
    let mut names = Names::new(&one);
    assert_eq!(type_of(&one, &mut names), "A");
    names.enter(&two);
    assert_eq!(type_of(&two, &mut names), "A2");
    let declared = names.declarations();
    let mut lines: Vec<&str> = declared.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["type A = string;", "type A2 = B;", "type B = number;"]);
}

/// Returns the position of the closing quotation mark of a string literal.
fn end_of_literal(inside: &str) -> usize {
    let mut escaped = false;
    let ends = |c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    };
    inside.find(ends).unwrap()
}

#[test]
fn f09_hostile_schema_text_stays_inside_comments_and_literals() {
    let hostile = "*/ }; evil(); /* \u{2028} \" ` ${x} \u{e0041}\u{202e}\n// ";
    let schema = json!({
        "description": hostile,
        "type": "object",
        "properties": {
            hostile: {"enum": [hostile], "description": hostile},
            "__proto__": {"type": hostile},
            "ref": {"$ref": format!("#/$defs/{hostile}")},
            "more": {"$ref": "#/$defs/*~1 evil()"},
        },
        "required": [hostile, "evil();"],
        "$defs": {"*/ evil()": {"title": hostile, "const": hostile}},
    });
    let mut names = Names::new(&schema);
    let text = format!("{}\n{}", type_of(&schema, &mut names), names.declarations());
    assert!(
        text.contains("type Type1Evil = \"*/ }; evil();"),
        "control: the text is there as a string literal: {text}"
    );
    // Without comments and string literals, no call remains.
    let mut bare = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['"', '/']) {
        bare.push_str(&rest[..at]);
        rest = &rest[at..];
        let close = match rest.strip_prefix('"') {
            Some(inside) => end_of_literal(inside) + 2,
            None => {
                assert!(rest.starts_with("/** "), "{rest}");
                rest.find("*/").unwrap() + 2
            }
        };
        assert!(!rest[..close].contains('\n'), "{}", &rest[..close]);
        rest = &rest[close..];
    }
    bare.push_str(rest);
    assert!(!bare.contains("evil") && !bare.contains('('), "{bare}");
    assert!(text.chars().all(|c| belljar_model::plain::is_plain(c) || c == '\n'), "{text}");
}

#[test]
fn f09_deep_wide_and_exponential_schemas_are_truncated() {
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    let mut names = Names::new(&deep);
    assert!(type_of(&deep, &mut names).starts_with("unknown["));
    let wide: Map<String, Value> =
        (0..5_000).map(|number| (format!("p{number}"), json!({"type": "string"}))).collect();
    let wide = json!({"properties": wide});
    assert!(type_of(&wide, &mut Names::new(&wide)).len() < 16 << 10);
    // Each definition refers to the next one twice.
    let chain: Map<String, Value> = (0..21_000)
        .map(|n| (format!("d{n}"), json!({"anyOf": [{"$ref": format!("#/$defs/d{}", n + 1)}, {"$ref": format!("#/$defs/d{}", n + 2)}]})))
        .collect();
    let chain = json!({"$ref": "#/$defs/d0", "$defs": chain});
    let mut names = Names::new(&chain);
    type_of(&chain, &mut names);
    assert!(names.declarations().len() < 1 << 20);
}

#[test]
fn function_and_type_names_avoid_invalid_and_built_in_names() {
    for (name, expect) in [
        ("get-sum", "get_sum"),
        ("a.b/c", "a_b_c"),
        ("2fast", "_2fast"),
        ("", "_"),
        ("then", "then_"),
        ("__proto__", "__proto___"),
        ("p\u{430}y", "p_y"),
    ] {
        assert_eq!(identifier(name), expect);
    }
    assert_eq!(type_name("pull-request.review"), "PullRequestReview");
    assert_eq!(type_name("Promise"), "PromiseType");
    assert_eq!(type_name("1"), "Type1");
}
