//! Attacks that leave a box over the network.

use crate::host::Listener;
use crate::lab::Lab;
use crate::trial::{Checks, Step, Trial};

const REFUSED: &str = "errno ECONNREFUSED";
const UNREACHABLE: &str = "errno ENETUNREACH";
const NO_FAMILY: &str = "errno EAFNOSUPPORT";

/// Tests that a box without network rules has no network, for each way to configure that.
pub(crate) fn a02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let listener = Listener::tcp()?;
    let dial = format!("connect-tcp {}", listener.at);
    let outside = lab.outside(&dial)?;
    checks.control(outside == "ok" && listener.more_than(0), format_args!("{dial}: {outside}"))?;
    let before = listener.times();

    let work_dir = lab.directory("a02")?;
    let config = work_dir.join("belljar.toml");
    let text = "[template.silent]\n[template.explicit]\nnet = \"none\"\n";
    std::fs::write(&config, text).map_err(crate::trial::fault)?;
    let with_config =
        |name| lab.boxed().option("--config").option(config.clone()).options(&["--template", name]);
    let ways = [
        ("default", lab.boxed()),
        ("--net none", lab.boxed().options(&["--net", "none"])),
        ("a template without `net`", with_config("silent")),
        ("a template with `net = \"none\"`", with_config("explicit")),
        ("--user 0", lab.boxed().user("0")),
    ];
    for (way, boxed) in ways {
        let acts = [dial.as_str(), "connect-tcp 192.0.2.1:443", "connect-tcp [2001:db8::1]:443"];
        let answers = boxed.acts(&acts)?;
        for (act, answer) in acts.iter().zip(&answers) {
            checks.one_of(format_args!("{way}: {act}"), answer, &[REFUSED, UNREACHABLE])?;
        }
        checks.exactly(way, &boxed.act("interfaces")?, "ok lo")?;
    }
    // With a broker, no rule allows the host.
    for mode in ["restricted", "full"] {
        let boxed = lab.boxed().options(&["--net", mode]);
        checks.exactly(format_args!("--net {mode}: {dial}"), &boxed.act(&dial)?, REFUSED)?;
        checks.exactly(mode, &boxed.act("interfaces")?, "ok lo")?;
    }
    checks.holds(listener.times() == before, "the host was reached from a box")?;
    checks.held()
}

/// Tests that a box cannot create sockets other than Unix, TCP and UDP sockets.
pub(crate) fn a18(lab: &Lab) -> Trial {
    const FAMILIES: &str = "unix inet ax25 ipx appletalk netrom bridge atmpvc x25 inet6 rose decnet key \
         netlink packet econet rds irda pppox llc ib mpls can tipc bluetooth iucv rxrpc isdn phonet \
         ieee802154 caif alg nfc vsock kcm qipcrtr smc xdp mctp";
    let mut checks = Checks::default();
    let mut refused = Vec::new();
    for family in FAMILIES.split_whitespace().filter(|family| *family != "unix") {
        for kind in ["stream", "dgram", "raw", "rdm", "seqpacket", "dccp", "packet"] {
            let needed = family.starts_with("inet") && ["stream", "dgram"].contains(&kind);
            if !needed {
                refused.push(format!("socket {family} {kind} 0"));
            }
        }
    }
    // Allowed families with other protocols: ICMP, SCTP, UDP-Lite, MPTCP, raw TCP, netlink.
    refused.extend(
        [
            "inet dgram 1",
            "inet raw 1",
            "inet stream 132",
            "inet dgram 136",
            "inet stream 262",
            "inet raw 6",
            "inet6 dgram 58",
            "inet6 raw 58",
            "netlink raw 0",
            "netlink raw 12",
        ]
        .map(|socket| format!("socket {socket}")),
    );
    let acts: Vec<&str> = refused.iter().map(String::as_str).collect();
    let outside = lab.all_outside(&acts)?;
    let granted = outside.iter().filter(|answer| *answer == "ok").count();
    checks.control(granted >= 2, format_args!("only {granted} of these sockets exist outside"))?;
    checks.note(format_args!("{granted} of {} exist outside", acts.len()));
    for user in ["1000", "0"] {
        let inside = lab.boxed().user(user).acts(&acts)?;
        for (act, answer) in acts.iter().zip(&inside) {
            checks.exactly(format_args!("{act} as uid {user}"), answer, NO_FAMILY)?;
        }
    }
    datagrams(lab, &mut checks)?;
    checks.held()
}

/// Checks that the socket types that a box can create do not reach the host.
fn datagrams(lab: &Lab, checks: &mut Checks) -> Step {
    let allowed = ["socket inet stream 0", "socket inet dgram 0", "socket inet6 stream 6"];
    for (act, answer) in allowed.iter().zip(lab.boxed().acts(&allowed)?) {
        checks.exactly(act, &answer, "ok")?;
    }
    let listener = Listener::udp()?;
    let send = format!("send-udp {}", listener.at);
    let outside = lab.outside(&send)?;
    checks.control(listener.more_than(0), format_args!("{send} outside: {outside}"))?;
    let before = listener.times();
    // The box's own loopback drops the datagram; other addresses have no route.
    let acts = [send.as_str(), "send-udp 192.0.2.1:53", "send-udp [2001:db8::1]:443"];
    let answers = lab.boxed().acts(&acts)?;
    for (act, answer) in acts.iter().zip(&answers) {
        let want = if act.contains("127.0.0.1") { "ok 13" } else { UNREACHABLE };
        checks.exactly(act, answer, want)?;
    }
    checks.holds(listener.times() == before, "a datagram from a box reached the host")
}

/// Tests that proxy variables neither leak into a box nor open its network.
pub(crate) fn a19(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let listener = Listener::tcp()?;
    let proxy = format!("http://{}", listener.at);
    let dial = format!("connect-tcp {}", listener.at);
    let outside = lab.outside(&dial)?;
    checks.control(outside == "ok" && listener.more_than(0), format_args!("{dial}: {outside}"))?;
    let before = listener.times();
    let plain = lab.boxed().operator_env("HTTPS_PROXY", &proxy).operator_env("all_proxy", &proxy);
    let seen = plain.act("environment")?;
    checks.holds(!seen.to_lowercase().contains("proxy"), format_args!("inherited: {seen}"))?;
    let ways = [
        plain,
        lab.boxed().options(&["--env", "NO_PROXY=*", "--env", "no_proxy=*"]),
        lab.boxed().option("--env").option(format!("HTTPS_PROXY={proxy}")),
    ];
    for boxed in ways {
        checks.exactly(&dial, &boxed.act(&dial)?, REFUSED)?;
        checks.exactly("a public address", &boxed.act("connect-tcp 192.0.2.1:80")?, UNREACHABLE)?;
    }
    checks.holds(listener.times() == before, "the proxy of the host was reached from a box")?;
    checks.held()
}
