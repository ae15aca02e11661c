//! Converts ledger events to JSON, for `--json` and `belljar ledger export`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_ledger::{Body, Digest, Entry, Value};
use serde_json::{Map, Value as Json, json};

use crate::moment;

/// Returns a ledger event with all its fields as JSON. Timestamps in nanoseconds are strings, because
/// JavaScript would round the numbers.
pub fn event(index: u64, hash: &Digest, entry: &Entry) -> Json {
    let fields: Map<String, Json> = entry
        .fields
        .iter()
        .map(|(name, value)| (name.to_owned(), field(&entry.kind, name, value)))
        .collect();
    json!({
        "index": index,
        "hash": hash,
        "run": entry.run.map(|run| run.to_string()),
        "sequence": entry.sequence,
        "previous": entry.previous,
        "kind": entry.kind,
        "actor": entry.actor.name(),
        "cause": entry.cause,
        "time": moment::rfc3339(entry.moment.time),
        "time_unix_nano": entry.moment.time.to_string(),
        "uptime_nano": entry.moment.uptime.to_string(),
        "boot": hex::encode(entry.moment.boot),
        "fields": fields,
    })
}

/// Returns the reference to a body as JSON: hash, size, and whether the ledger keeps the content.
pub fn body(body: &Body) -> Json {
    json!({ "hash": body.hash(), "size": body.size(), "kept": body.is_kept() })
}

/// Returns bytes as a JSON object with their base64 encoding, since they may not be UTF-8.
pub fn bytes(bytes: &[u8]) -> Json {
    json!({ "base64": STANDARD.encode(bytes) })
}

fn field(kind: &str, name: &str, value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Bytes(content) => bytes(content),
        Value::Number(number) => json!(number),
        Value::Truth(truth) => json!(truth),
        // The ledger format stores a list of hashes as a list of byte strings.
        Value::List(items) if (kind, name) == ("ledger.redacted", "bodies") => {
            items.iter().map(|item| json!(hex::encode(item))).collect()
        }
        Value::List(items) => items.iter().map(|item| text_or_bytes(item)).collect(),
        Value::Hash(hash) => json!(hash),
        Value::Body(reference) => body(reference),
    }
}

fn text_or_bytes(item: &[u8]) -> Json {
    std::str::from_utf8(item).map_or_else(|_| bytes(item), |text| json!(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_ledger::{Actor, Fields, Moment};

    #[test]
    fn event_json_encodes_every_type_of_value() {
        let mut fields = Fields::default();
        let hash = Digest::of(&[b"x"]);
        let content = Body::hash_of(b"content").unwrap();
        fields.set("text", Value::Text("a\u{2028}\0".to_owned()));
        fields.set("bytes", Value::Bytes(b"\xff\0".to_vec()));
        fields.set("number", Value::Number(u64::MAX));
        fields.set("truth", Value::Truth(false));
        fields.set("list", Value::List(vec![b"text".to_vec(), b"\xff".to_vec()]));
        fields.set("hash", Value::Hash(hash));
        fields.set("body", Value::Body(content.clone()));
        let moment = Moment { time: 1, uptime: 2, boot: [0xab; 16] };
        let entry = Entry {
            kind: "of.the_future".to_owned(),
            run: Some("0000000000000001".parse().unwrap()),
            sequence: 3,
            previous: Some(hash),
            actor: Actor::Broker,
            cause: Some(7),
            moment,
            fields,
        };
        let expect = json!({
            "index": 9, "hash": hash, "run": "0000000000000001", "sequence": 3, "previous": hash,
            "kind": "of.the_future", "actor": "broker", "cause": 7,
            "time": "1970-01-01T00:00:00.000000001Z", "time_unix_nano": "1", "uptime_nano": "2",
            "boot": "ab".repeat(16),
            "fields": {
                "text": "a\u{2028}\0", "bytes": {"base64": "/wA="}, "number": u64::MAX,
                "truth": false, "list": ["text", {"base64": "/w=="}], "hash": hash,
                "body": {"hash": content.hash(), "size": 7, "kept": false},
            },
        });
        assert_eq!(event(9, &hash, &entry), expect);
    }

    #[test]
    fn hashes_of_redacted_bodies_are_written_in_hexadecimal() {
        let value = Value::List(vec![[b'a'; 32].to_vec()]);
        assert_eq!(field("ledger.redacted", "bodies", &value), json!(["61".repeat(32)]));
        assert_eq!(field("run.layers", "in_force", &value), json!(["a".repeat(32)]));
    }
}
