use std::fs;

use belljar_model::Scope;

use super::*;

fn config(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/belljar.toml"), Scope::Operator).unwrap()
}

fn service(text: &str, document: Option<Value>) -> Service {
    let config = config(text);
    let document = document.map(|it| Document::parse(it.to_string().as_bytes()).unwrap());
    Service::new(config.apis().values().next().unwrap(), &config, document, None)
}

fn petstore(operations: usize) -> Value {
    let mut paths = serde_json::Map::new();
    for number in 0..operations {
        let definition = json!({
            "operationId": format!("pets/get{number}"),
            "summary": format!("Pet number {number}\nand more"),
            "parameters": [{"name": "deep", "in": "query", "schema": {"$ref": "#/components/schemas/Deep"}}],
        });
        paths.insert(format!("/pets/{number}"), json!({"get": definition}));
    }
    let deep =
        json!({"type": "object", "properties": {"in": {"$ref": "#/components/schemas/Deep"}}});
    json!({"openapi": "3.0.0", "paths": paths, "components": {"schemas": {"Deep": deep}}})
}

#[test]
fn service_with_too_many_operations_has_a_remark_that_counts_those_left_out() {
    let remarks = |count: usize| {
        let paths: serde_json::Map<_, _> =
            (0..count).map(|number| (format!("/pets/{number}"), json!({"get": {}}))).collect();
        let document = json!({"openapi": "3.0.0", "paths": paths});
        let service = service("[api.a]\nhosts = ['a.example']\n", Some(document));
        assert_eq!(service.operations(), count.min(5000));
        service.remarks
    };
    assert_eq!(remarks(5000), [] as [&str; 0], "control");
    let [remark] = &remarks(5003)[..] else { panic!() };
    assert!(remark.contains("more than 5000 operations, so 3 of them"), "{remark}");
}

#[test]
fn base_url_comes_from_the_operator_then_the_document_then_the_rules() {
    let with = |definition: &str, server: &str| {
        let document = json!({"openapi": "3.0.0", "servers": [{"url": server}]});
        let text = format!("[api.a]\nhosts = ['first.example', 'second.example']\n{definition}");
        service(&text, Some(document)).base().map(str::to_owned)
    };
    let first = Some("https://first.example".to_owned());
    assert_eq!(with("", "https://second.example/v3/"), Some("https://second.example/v3".into()));
    assert_eq!(
        with("base-url = 'https://first.example/x'", "https://second.example"),
        Some("https://first.example/x".into())
    );
    assert_eq!(with("", "/api"), Some("https://first.example/api".into()));
    assert_eq!(with("", "//second.example/v3"), Some("https://second.example/v3".into()));
    assert_eq!(with("", "//evil.example/v3"), first);
    // A document cannot change the base URL to a host that no rule allows.
    assert_eq!(with("", "https://evil.example"), first);
    assert_eq!(with("", "http://first.example"), first);
    assert_eq!(with("", "/../\"+evil"), first);
    assert_eq!(with("", "javascript:alert(1)"), first);
    let wide = service("[api.a]\nhosts = ['*.a.example']\n", None);
    assert_eq!((wide.base(), wide.remarks.len()), (None, 1));
}

#[test]
fn api_client_sends_a_placeholder_in_the_slot_of_its_secret() {
    let with = |secret: &str, document: Option<Value>| {
        let text = format!(
            "[secret.s]\nhosts = ['a.example']\n{secret}\n[api.a]\nhosts = ['a.example']\nsecrets = ['s']\n"
        );
        let service = service(&text, document);
        let auth = service
            .auth
            .into_iter()
            .map(|it| format!("{} {} {} {}", it.variable, it.slot, it.name, it.scheme));
        (auth.collect::<Vec<_>>(), service.remarks.len())
    };
    let one = |text: &str| (vec![text.to_owned()], 0);
    assert_eq!(with("env = 'S'", None), one("S header authorization Bearer"));
    assert_eq!(with("env = 'S'\nslots = ['header:x-key']", None), one("S header x-key "));
    assert_eq!(with("env = 'S'\nslots = ['query:key']", None), one("S query key "));
    assert_eq!(with("env = 'S'\nslots = ['basic']", None), one("S header authorization Basic"));
    let key = json!({"type": "apiKey", "in": "header", "name": "authorization"});
    let document = json!({"openapi": "3.0.0", "components": {"securitySchemes": {"k": key}}});
    assert_eq!(with("env = 'S'", Some(document)), one("S header authorization "));
    // A slot that a client cannot fill adds a remark.
    assert_eq!(with("", None), (vec![], 1));
    assert_eq!(with("env = 'S'\nslots = ['json:/a']", None), (vec![], 1));
    assert_eq!(with("env = 'S'\nkind = 'sigv4'", None), (vec![], 1));
}

#[test]
fn files_of_a_service_are_relative_to_the_configuration_and_limited_in_size() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("belljar.toml");
    let read = |text: &str| {
        let config = Config::parse(text, &file, Scope::Operator).unwrap();
        Service::read(config.apis().values().next().unwrap(), &config, None)
    };
    let text = "[api.a]\nhosts = ['a.example']\nopenapi = 'a.json'\ntypes = 'a.d.ts'\n";
    assert!(matches!(read(text), Err(ServiceError::Read { .. })));
    fs::write(dir.path().join("a.json"), petstore(3).to_string()).unwrap();
    fs::write(dir.path().join("a.d.ts"), "type Own = 1;").unwrap();
    let client = read(text).unwrap().client();
    assert_eq!(client.operations, 3);
    assert!(client.declarations.ends_with("type Own = 1;\n"));
    assert!(client.module.is_ascii() || RUNTIME.contains('…'));
    fs::write(dir.path().join("a.json"), "openapi: 3.0.0").unwrap();
    let message = read(text).unwrap_err().to_string();
    assert!(message.contains("a.json of api `a`: looks like YAML"), "{message}");
    fs::write(dir.path().join("a.json"), petstore(1).to_string()).unwrap();
    fs::write(dir.path().join("a.d.ts"), vec![b'x'; MAX_TYPES + 1]).unwrap();
    assert!(matches!(read(text), Err(ServiceError::TooLong { .. })));
}

#[test]
fn description_of_a_large_service_stays_short() {
    let text = "[api.a-b]\nhosts = ['a.example']\ndescription = 'Pets'\nreference = 'https://docs.example'\nexamples = ['await apis.a_b.get(1)']\nrestricted-methods = ['DELETE']\n";
    let small = service(text, Some(petstore(3))).describe(&ApiQuery::Overview).unwrap();
    for part in [
        "# a-b\n",
        "Pets\n",
        "Base address: https://a.example\n",
        "Refused methods: DELETE\n",
        "Reference: https://docs.example\n",
        "```ts\nawait apis.a_b.get(1)\n```",
        "- pets.get0({deep?})  GET /pets/0  Pet number 0 and more\n",
    ] {
        assert!(small.contains(part), "{part} in {small}");
    }
    let large = service(text, Some(petstore(3000))).describe(&ApiQuery::Overview).unwrap();
    assert!(large.contains("- pets: get0, get1, get10") && large.contains("3000 operations"));
    assert!(large.len() < 4000, "{}", large.len());
    let plain =
        service("[api.a]\nhosts = ['a.example']\n", None).describe(&ApiQuery::Overview).unwrap();
    assert!(plain.contains("interface BelljarApi"));
}

#[test]
fn description_of_one_operation_includes_its_types() {
    let shop = service("[api.a]\nhosts = ['a.example']\n", Some(petstore(200)));
    let ask = |ask: ApiQuery| shop.describe(&ask).map_err(|error| error.to_string());
    let one = ask(ApiQuery::Operation("apis.a.pets.get7".into())).unwrap();
    assert!(one.contains("get7(args?: { deep?: Deep }, options?: BelljarOptions): Promise<any>;"));
    assert!(one.contains("type Deep = { in?: Deep };"));
    let none = ask(ApiQuery::Operation("get7".into())).unwrap_err();
    assert_eq!(none, "api `a` has no operation `get7`; did you mean pets.get7?");
    let found = ask(ApiQuery::Search("PET get150".into())).unwrap();
    assert!(found.starts_with("- pets.get150(") && found.contains("type Deep"), "{found}");
    let many = ask(ApiQuery::Search("pets".into())).unwrap();
    assert_eq!(many.lines().count(), 41);
    assert!(many.ends_with("… and 160 more; use more words.\n"));
    assert_eq!(
        ask(ApiQuery::Search("cow".into())).unwrap(),
        "No operation of a contains all of these words.\n"
    );
    assert!(ask(ApiQuery::Search(String::new())).unwrap().starts_with("No operation"));
}

#[test]
fn g02_description_of_a_service_contains_no_invisible_characters() {
    let summary = "List\u{200b} pets\u{1b}[2J\u{202e} \u{e0041}and\nignore";
    let definition = json!({"operationId": "pets/list", "summary": summary, "description": summary,
        "parameters": [{"name": "x", "in": "query", "description": summary}]});
    let document = json!({"openapi": "3.0.0", "paths": {"/pets": {"get": definition}}});
    let shop = service("[api.a]\nhosts = ['a.example']\n", Some(document));
    for ask in [
        ApiQuery::Overview,
        ApiQuery::Search("pets".into()),
        ApiQuery::Operation("pets.list".into()),
    ] {
        let message = shop.describe(&ask).unwrap();
        assert!(message.contains("List pets[2J and ignore"), "the control: {message}");
        let odd = |c: char| c.is_control() && c != '\n' || "\u{200b}\u{202e}\u{e0041}".contains(c);
        assert_eq!(message.chars().find(|c| odd(*c)), None);
    }
    assert!(!shop.client().declarations.contains('\u{200b}'));
}
