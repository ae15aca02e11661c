//! Tests of the CA bundle and the name server of a box.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::fixture::{CA, Fixture, JKS, Output, net};

fn shell(fixture: &Fixture, script: &str) -> Output {
    let running = fixture.build(net(&[443], false), &["/bin/sh", "-c", script]).unwrap();
    fixture.run(running, "")
}

const BUNDLES: &str = "/etc/belljar/ca.pem /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem \
     /etc/ssl/ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt /etc/pki/tls/cert.pem \
     /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ca-certificates/extracted/tls-ca-bundle.pem";

#[test]
fn ca_bundle_is_found_at_the_path_of_every_distribution() {
    let fixture = Fixture::new();
    let output = shell(&fixture, &format!("cat {BUNDLES}"));
    assert_eq!((output.out + "\n", output.exit), (CA.repeat(8), Some(0)));
    let output = shell(&fixture, "ls /etc/ssl/certs; wc -c < /etc/ssl/certs/java/cacerts");
    let want = format!("ca-bundle.crt\nca-certificates.crt\njava\n{}", JKS.len());
    assert_eq!(output.out, want, "the host's authorities are absent");
}

#[test]
fn certificate_authorities_of_the_host_stay_trusted_for_passthrough_connections() {
    let fixture = Fixture::new();
    let mut with = net(&[443], false).unwrap();
    with.trust.trust_host_cas = true;
    let script = "head -n 3 /etc/ssl/cert.pem; grep -c BEGIN /etc/ssl/cert.pem";
    let running = fixture.build(Some(with), &["/bin/sh", "-c", script]).unwrap();
    let output = fixture.run(running, "");
    let count = output.out.strip_prefix(CA).expect("the CA of the box comes first");
    let hosts = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    assert_eq!(count.parse(), Ok(1 + hosts.matches("BEGIN").count()));
}

#[test]
fn variable_of_the_operator_overrides_a_ca_variable_of_the_box() {
    let mut fixture = Fixture::new();
    let output = shell(&fixture, "echo $SSL_CERT_FILE $PIP_CERT $JAVA_TOOL_OPTIONS");
    assert!(
        output.out.starts_with("/etc/belljar/ca.pem /etc/belljar/ca.pem -Djavax"),
        "{output:?}"
    );
    fixture.env.push(("PIP_CERT".to_owned(), "/mine.pem".to_owned()));
    let output = shell(&fixture, "echo $SSL_CERT_FILE $PIP_CERT; env | grep -c PIP_CERT");
    assert_eq!(output.out, "/etc/belljar/ca.pem /mine.pem\n1");
}

#[test]
fn box_without_a_network_gets_no_ca_variables() {
    let fixture = Fixture::new();
    let running =
        fixture.build(None, &["/bin/sh", "-c", "env | sort; cat /etc/resolv.conf"]).unwrap();
    let output = fixture.run(running, "");
    assert_eq!(output.out, "PATH=/usr/bin:/bin\nPWD=/home/user\n# this box has no name server");
}

#[test]
fn ca_bundle_covers_links_and_files_in_a_custom_rootfs() {
    let mut fixture = Fixture::new();
    let root = fixture.path().join("root");
    let outside = fixture.path().join("outside");
    for dir in ["etc/ssl", "etc/pki/tls/certs", "etc/pki/ca-trust", "bin"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("ca-certificates.crt"), "theirs").unwrap();
    // A directory and a file that are links out of the root, and a regular file.
    std::os::unix::fs::symlink(&outside, root.join("etc/ssl/certs")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("etc/ssl/cert.pem")).unwrap();
    fs::write(root.join("etc/pki/tls/certs/ca-bundle.crt"), "theirs").unwrap();
    fs::write(root.join("etc/pki/ca-trust/extracted"), "a file where a directory is").unwrap();
    fs::copy(fixture.path().join("probe"), root.join("bin/probe")).unwrap();
    make_accessible(&root);
    fixture.template.rootfs = Some(root.clone());
    let acts: Vec<String> = BUNDLES.split_whitespace().map(|path| format!("read {path}")).collect();
    let acts: Vec<&str> = acts.iter().map(String::as_str).collect();
    for answer in fixture.acts(net(&[443], false), &acts) {
        assert!(answer.contains("YmVsbGphcg=="), "{answer}");
    }
    let theirs = fs::read_to_string(outside.join("ca-certificates.crt")).unwrap();
    assert_eq!(theirs, "theirs", "files outside the root are unchanged");
    let theirs = fs::read_to_string(root.join("etc/pki/tls/certs/ca-bundle.crt")).unwrap();
    assert_eq!(theirs, "theirs", "the root on disk is unchanged");
}

fn make_accessible(root: &Path) {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn system_resolver_in_a_box_uses_the_name_server_of_the_box() {
    let fixture = Fixture::new();
    let output = shell(&fixture, "cat /etc/resolv.conf; getent hosts localhost");
    assert!(output.out.contains("nameserver 192.0.2.53\n"), "{output:?}");
    assert!(output.out.contains("localhost"), "{output:?}");
}
