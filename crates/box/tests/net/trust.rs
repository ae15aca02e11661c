//! Whom the programs of a box believe, and whom they ask for names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::room::{CA, JKS, Room, Said, net};

fn shell(room: &Room, script: &str) -> Said {
    let running = room.build(net(&[443], false), &["/bin/sh", "-c", script]).unwrap();
    room.run(running, "")
}

const BUNDLES: &str = "/etc/belljar/ca.pem /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem \
     /etc/ssl/ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt /etc/pki/tls/cert.pem \
     /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ca-certificates/extracted/tls-ca-bundle.pem";

#[test]
fn one_bundle_is_found_in_every_distributions_place() {
    let room = Room::new();
    let said = shell(&room, &format!("cat {BUNDLES}"));
    assert_eq!((said.out + "\n", said.exit), (CA.repeat(8), Some(0)));
    let said = shell(&room, "ls /etc/ssl/certs; wc -c < /etc/ssl/certs/java/cacerts");
    let want = format!("ca-bundle.crt\nca-certificates.crt\njava\n{}", JKS.len());
    assert_eq!(said.out, want, "and no authority of the host");
}

#[test]
fn authorities_of_the_host_stay_where_connections_are_passed_on() {
    let room = Room::new();
    let mut with = net(&[443], false).unwrap();
    with.trust.and_the_hosts = true;
    let script = "head -n 3 /etc/ssl/cert.pem; grep -c BEGIN /etc/ssl/cert.pem";
    let running = room.build(Some(with), &["/bin/sh", "-c", script]).unwrap();
    let said = room.run(running, "");
    let count = said.out.strip_prefix(CA).expect("ours comes first");
    let hosts = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    assert_eq!(count.parse(), Ok(1 + hosts.matches("BEGIN").count()));
}

#[test]
fn a_variable_of_the_operators_wins() {
    let mut room = Room::new();
    let said = shell(&room, "echo $SSL_CERT_FILE $PIP_CERT $JAVA_TOOL_OPTIONS");
    assert!(said.out.starts_with("/etc/belljar/ca.pem /etc/belljar/ca.pem -Djavax"), "{said:?}");
    room.env.push(("PIP_CERT".to_owned(), "/mine.pem".to_owned()));
    let said = shell(&room, "echo $SSL_CERT_FILE $PIP_CERT; env | grep -c PIP_CERT");
    assert_eq!(said.out, "/etc/belljar/ca.pem /mine.pem\n1");
}

#[test]
fn a_box_without_a_network_has_no_variable_of_it() {
    let room = Room::new();
    let running = room.build(None, &["/bin/sh", "-c", "env | sort; cat /etc/resolv.conf"]).unwrap();
    let said = room.run(running, "");
    assert_eq!(said.out, "PATH=/usr/bin:/bin\nPWD=/home/user\n# this box has no name server");
}

#[test]
fn the_bundle_reaches_a_root_of_the_users_own_whatever_is_in_the_way() {
    let mut room = Room::new();
    let root = room.path().join("root");
    let outside = room.path().join("outside");
    for dir in ["etc/ssl", "etc/pki/tls/certs", "etc/pki/ca-trust", "bin"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("ca-certificates.crt"), "theirs").unwrap();
    // A directory and a file that are links out, and a file in the way.
    std::os::unix::fs::symlink(&outside, root.join("etc/ssl/certs")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("etc/ssl/cert.pem")).unwrap();
    fs::write(root.join("etc/pki/tls/certs/ca-bundle.crt"), "theirs").unwrap();
    fs::write(root.join("etc/pki/ca-trust/extracted"), "a file where a directory is").unwrap();
    fs::copy(room.path().join("probe"), root.join("bin/probe")).unwrap();
    open_to_all(&root);
    room.template.rootfs = Some(root.clone());
    let acts: Vec<String> = BUNDLES.split_whitespace().map(|path| format!("read {path}")).collect();
    let acts: Vec<&str> = acts.iter().map(String::as_str).collect();
    for answer in room.acts(net(&[443], false), &acts) {
        assert!(answer.contains("YmVsbGphcg=="), "{answer}");
    }
    let theirs = fs::read_to_string(outside.join("ca-certificates.crt")).unwrap();
    assert_eq!(theirs, "theirs", "nothing outside was written");
    let theirs = fs::read_to_string(root.join("etc/pki/tls/certs/ca-bundle.crt")).unwrap();
    assert_eq!(theirs, "theirs", "nor the tree itself");
}

fn open_to_all(root: &Path) {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_resolver_of_the_system_asks_us() {
    let room = Room::new();
    let said = shell(&room, "cat /etc/resolv.conf; getent hosts localhost");
    assert!(said.out.contains("nameserver 192.0.2.53\n"), "{said:?}");
    assert!(said.out.contains("localhost"), "{said:?}");
}
