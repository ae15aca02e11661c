//! A small web service for tests of programs: pagination, cursors, rate limits, JSON errors, streams,
//! redirects, and one resource that needs authentication.
//!
//! A response depends only on the request, except for two routes that count requests per key. A program
//! that uses a unique key gets the same responses every time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::upstream::{Received, Reply};

/// The bearer token of the user `ada` of the test shop.
pub const SHOP_TOKEN: &str = "shop_live_4f9d2c7b1a8e6035d4c2";

/// Returns the request handler of a new test shop, a small HTTP API.
pub fn shop() -> impl Fn(&Received) -> Reply + Send + Sync + 'static {
    let counts = Arc::new(Mutex::new(HashMap::new()));
    move |received| {
        let request = ShopRequest::new(received);
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count: &mut u64 = counts.entry(request.path.to_owned()).or_default();
        *count += 1;
        request.answer(*count)
    }
}

/// A request to the test shop with its path and query parsed.
struct ShopRequest<'a> {
    received: &'a Received,
    path: &'a str,
    query: BTreeMap<String, String>,
}

impl<'a> ShopRequest<'a> {
    fn new(received: &'a Received) -> Self {
        let (path, query) = received.path.split_once('?').unwrap_or((&received.path, ""));
        Self { received, path, query: form(query) }
    }

    fn number(&self, name: &str, default: usize) -> usize {
        self.query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    fn body(&self) -> Value {
        serde_json::from_slice(&self.received.body).unwrap_or(Value::Null)
    }

    fn answer(&self, count: u64) -> Reply {
        let parts: Vec<&str> = self.path.split('/').skip(1).collect();
        match (self.received.method.as_str(), parts.as_slice()) {
            ("GET", ["products"]) => self.page(),
            ("POST", ["products"]) => self.create(),
            (method, ["products", id]) => self.product(method, id),
            ("GET", ["orders"]) => self.orders(),
            ("GET", ["users"]) => json_reply(200, &Value::from_iter(USERS.map(user))),
            ("GET", ["users", id]) => self.user(id),
            ("GET", ["limited", _]) if count < 3 => {
                json_reply(429, &json!({ "error": "slow down", "attempt": count }))
                    .header("retry-after", "0")
                    .header("x-ratelimit-remaining", "0")
            }
            ("GET", ["limited", _]) => json_reply(200, &json!({ "ok": true, "attempts": count })),
            ("GET", ["flaky", fails, _]) if count <= fails.parse().unwrap_or(0) => {
                json_reply(503, &json!({ "error": "unavailable" }))
            }
            ("GET", ["flaky", ..]) => json_reply(200, &json!({ "ok": true, "attempts": count })),
            ("GET", ["me"]) => self.me(),
            ("GET", ["events"]) => events(),
            ("GET", ["feed"]) => feed(),
            ("GET", ["slow"]) => slow(),
            ("GET", ["old"]) => redirect(301, "/new?from=old"),
            ("GET", ["new"]) => json_reply(200, &json!({ "moved": true, "query": self.query })),
            (_, ["move", status]) => redirect(status.parse().unwrap_or(302), "/echo"),
            ("GET", ["loop"]) => redirect(302, "/loop"),
            ("GET", ["away"]) => redirect(302, "https://cdn.shop.test/text"),
            ("POST", ["form"]) => {
                json_reply(200, &json!(form(&String::from_utf8_lossy(&self.received.body))))
            }
            (_, ["echo"]) => self.echo(),
            ("GET", ["csv"]) => Reply::new(200, CSV).header("content-type", "text/csv"),
            ("GET", ["text"]) => {
                Reply::new(200, "grüße aus dem laden\n").header("content-type", "text/plain")
            }
            ("GET", ["html"]) => Reply::new(200, HTML).header("content-type", "text/html"),
            ("GET", ["bytes"]) => Reply::new(200, (0..=255_u8).collect::<Vec<u8>>())
                .header("content-type", "application/octet-stream"),
            ("GET", ["broken"]) => {
                Reply::new(200, "{\"items\": [1, 2, ").header("content-type", "application/json")
            }
            ("POST", ["graphql"]) => self.graphql(),
            (_, ["status", code]) => {
                let code = code.parse().unwrap_or(500);
                json_reply(code, &json!({ "status": code }))
            }
            ("GET", ["lib.js"]) => {
                Reply::new(200, LIBRARY).header("content-type", "text/javascript")
            }
            _ => error_reply(404, "not_found", &format!("no route {}", self.path)),
        }
    }

    fn page(&self) -> Reply {
        let (page, size) =
            (self.number("page", 1).max(1), self.number("per_page", 10).clamp(1, 20));
        let wanted = |it: &Value| {
            let category = self.query.get("category");
            category.is_none_or(|wanted| at(it, "/category") == wanted.as_str())
        };
        let all: Vec<Value> = (1..=PRODUCTS).map(product).filter(wanted).collect();
        let pages = all.len().div_ceil(size);
        let items: Vec<&Value> = all.iter().skip((page - 1) * size).take(size).collect();
        let total = all.len();
        let reply = json_reply(
            200,
            &json!({ "items": items, "page": page, "per_page": size, "total": total, "total_pages": pages }),
        )
        .header("x-total-count", &total.to_string());
        let link = |page: usize, rel: &str| {
            format!("<https://api.shop.test/products?page={page}&per_page={size}>; rel=\"{rel}\"")
        };
        if page < pages {
            let links = format!("{}, {}", link(page + 1, "next"), link(pages, "last"));
            return reply.header("link", &links);
        }
        reply.header("link", &link(1, "first"))
    }

    fn create(&self) -> Reply {
        let body = self.body();
        let mut errors = Vec::new();
        if at(&body, "/name").as_str().is_none_or(str::is_empty) {
            errors.push(json!({ "field": "name", "message": "is required" }));
        }
        if at(&body, "/price").as_f64().is_none_or(|price| price <= 0.0) {
            errors.push(json!({ "field": "price", "message": "must be positive" }));
        }
        if !errors.is_empty() {
            return json_reply(422, &json!({ "errors": errors }));
        }
        let mut made = body;
        if let Some(fields) = made.as_object_mut() {
            fields.insert("id".to_owned(), json!(101));
        }
        json_reply(201, &made).header("location", "/products/101")
    }

    fn product(&self, method: &str, id: &str) -> Reply {
        let found = id.parse().ok().filter(|id| (1..=PRODUCTS).contains(id)).map(product);
        let Some(mut found) = found else {
            return error_reply(404, "not_found", &format!("no product {id}"));
        };
        match method {
            "DELETE" => Reply { chunks: Vec::new(), ..Reply::new(204, "") },
            "PUT" | "PATCH" => {
                if let (Value::Object(changes), Some(kept)) = (self.body(), found.as_object_mut()) {
                    kept.extend(changes);
                }
                json_reply(200, &found)
            }
            _ => json_reply(200, &found).header("etag", &format!("\"p{id}\"")),
        }
    }

    fn orders(&self) -> Reply {
        let after = self.query.get("cursor").and_then(|it| it.strip_prefix("after_")?.parse().ok());
        let (after, size) = (after.unwrap_or(0), self.number("limit", 7).clamp(1, 25));
        let data: Vec<Value> = (after + 1..=ORDERS).take(size).map(order).collect();
        let last = after + data.len();
        let next = (last < ORDERS).then(|| format!("after_{last}"));
        json_reply(200, &json!({ "data": data, "next_cursor": next, "has_more": last < ORDERS }))
    }

    fn user(&self, id: &str) -> Reply {
        let found = USERS.into_iter().find(|it| it.0.to_string() == id);
        found.map_or_else(
            || error_reply(404, "not_found", &format!("no user {id}")),
            |found| json_reply(200, &user(found)),
        )
    }

    fn me(&self) -> Reply {
        let token = self.received.header("authorization").and_then(|it| it.strip_prefix("Bearer "));
        match token {
            Some(SHOP_TOKEN) => {
                json_reply(200, &json!({ "login": "ada", "scopes": ["read", "write"] }))
            }
            _ => error_reply(401, "unauthorized", "who are you?"),
        }
    }

    fn echo(&self) -> Reply {
        let ours = |(name, _): &&(String, String)| {
            name.starts_with("x-") || matches!(name.as_str(), "accept" | "content-type")
        };
        let mut headers = BTreeMap::<&str, String>::new();
        for (name, value) in self.received.headers.iter().filter(ours) {
            let kept = headers.entry(name).or_default();
            let gap = if kept.is_empty() { "" } else { ", " };
            kept.extend([gap, value]);
        }
        json_reply(
            200,
            &json!({
                "method": self.received.method,
                "query": self.query,
                "headers": headers,
                "body": String::from_utf8_lossy(&self.received.body),
            }),
        )
    }

    fn graphql(&self) -> Reply {
        let body = self.body();
        let known = USERS.into_iter().find(|it| *at(&body, "/variables/id") == it.0);
        let answer = match known {
            Some(known) => json!({ "data": { "user": user(known) } }),
            None => {
                json!({ "data": null, "errors": [{ "message": "User not found", "path": ["user"] }] })
            }
        };
        json_reply(200, &answer)
    }
}

const PRODUCTS: usize = 47;
const ORDERS: usize = 30;
const CSV: &str = "id,name,qty,price\n1,\"Bolt, large\",10,0.25\n2,Nut,200,0.05\n3,\"Screw \"\"M4\"\"\",75,0.10\n";
const HTML: &str = "<!doctype html><title>Shop</title><ul><li><a href=\"/p/1\">One</a></li>\
                    <li><a href='/p/2'>Two &amp; more</a></li></ul>";
const LIBRARY: &str = "export const double = (x) => x * 2;\nexport default 'a library';\n";
const USERS: [(u64, &str, &str); 4] = [
    (1, "Ada", "admin"),
    (2, "Grace", "editor"),
    (3, "Linus", "viewer"),
    (4, "Margaret", "editor"),
];

fn user((id, name, role): (u64, &str, &str)) -> Value {
    let email = format!("{}@example.com", name.to_lowercase());
    json!({ "id": id, "name": name, "role": role, "email": email })
}

fn product(id: usize) -> Value {
    let category = ["tools", "garden", "kitchen"].get(id % 3).copied();
    let cents = (id * 137) % 5000 + 99;
    let price = f64::from(u32::try_from(cents).unwrap_or(0)) / 100.0;
    json!({ "id": id, "name": format!("Product {id}"), "category": category, "price": price, "stock": (id * 7) % 11 })
}

fn order(id: usize) -> Value {
    let status = ["paid", "open", "shipped", "cancelled"].get(id % 4).copied();
    let day = id % 28 + 1;
    let created = format!("2026-0{}-{day:02}T{:02}:30:00Z", id % 3 + 1, id % 24);
    json!({ "id": id, "user_id": id % 4 + 1, "status": status, "total": id * 10, "created_at": created })
}

/// Returns a response of JSON lines in chunks that split lines and UTF-8 characters.
fn events() -> Reply {
    let all: Vec<u8> = (1..=6)
        .flat_map(|at| format!("{}\n", json!({ "seq": at, "type": "ü".repeat(at) })).into_bytes())
        .collect();
    let chunks = all.chunks(17).map(<[u8]>::to_vec).collect();
    Reply { chunks, pause: Duration::from_millis(2), ..Reply::new(200, "") }
        .header("content-type", "application/x-ndjson")
}

/// Returns a response of server-sent events.
fn feed() -> Reply {
    let parts = [
        "event: greeting\ndata: hello\n\n",
        "id: 7\ndata: one\nda",
        "ta: two\n\n: a comment\n\n",
        "data: [DONE]\n\n",
    ];
    let chunks = parts.map(|part| part.as_bytes().to_vec()).to_vec();
    Reply { chunks, pause: Duration::from_millis(2), ..Reply::new(200, "") }
        .header("content-type", "text/event-stream")
}

/// Returns a response whose body ends only after 20 seconds.
fn slow() -> Reply {
    let chunks = vec![b"{\"slow\":".to_vec(), b"true}".to_vec()];
    Reply { chunks, pause: Duration::from_secs(20), ..Reply::new(200, "") }
        .header("content-type", "application/json")
}

/// Returns the part of `value` at a JSON pointer, or null.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn redirect(status: u16, to: &str) -> Reply {
    Reply::new(status, "").header("location", to)
}

fn json_reply(status: u16, value: &Value) -> Reply {
    Reply::new(status, value.to_string()).header("content-type", "application/json")
}

fn error_reply(status: u16, code: &str, message: &str) -> Reply {
    json_reply(status, &json!({ "error": { "code": code, "message": message } }))
}

/// Parses a form body or the query of a URL.
fn form(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|it| !it.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
}
