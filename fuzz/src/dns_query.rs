//! Checks the DNS server: no message makes it panic, and every answer is one that the rules allow.

use std::sync::LazyLock;
use std::time::Instant;

use belljar_broker::dns::{Decided, Pool, answer};
use belljar_broker::rules::Rules;
use belljar_model::net::{Budget, Policy, Rule};
use belljar_model::{AskTimeout, Net};
use hickory_proto::op::{Message, ResponseCode};

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let allow = ["api.example.com", "*.below.example", "host-port:5432"];
    Rules::new(&Policy {
        net: Net::Restricted,
        allow: allow.iter().map(|text| Rule::allow(text).expect("a rule")).collect(),
        deny: Vec::new(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: Vec::new(),
        budget: Budget::default(),
        proxy: None,
    })
});

pub fn check(bytes: &[u8]) {
    let answer = answer(bytes, &RULES, &mut Pool::new(true), Instant::now());
    let Some(reply) = answer.reply else { return };
    assert!(reply.len() <= 512 && reply[..2] == bytes[..2]);
    let reply = Message::from_vec(&reply).expect("another DNS library can parse the reply");
    match answer.decided {
        Decided::Allowed { name, .. } => {
            let name = name.as_str();
            let allowed = name == "api.example.com"
                || name == "host.belljar.internal"
                || name.ends_with(".below.example");
            assert!(allowed, "{name}");
        }
        Decided::Denied { .. } | Decided::NoHostName { .. } => {
            assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
            assert!(reply.answers.is_empty());
        }
        Decided::Local => assert!(reply.answers.len() <= 1),
        Decided::Malformed => assert!(reply.answers.is_empty()),
    }
    // If another DNS library can parse the query, it finds the same question.
    if let (Ok(query), Some(question)) = (Message::from_vec(bytes), reply.queries.first()) {
        assert_eq!(query.queries.first(), Some(question));
    }
}
