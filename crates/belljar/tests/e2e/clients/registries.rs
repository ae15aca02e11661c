//! Clients of package registries. The registries have their real host names, and the presets of
//! Belljar allow the clients to reach them. A new client needs a [`Registry`] and a test.

use super::file_server::FileServer;
use super::{ClientCase, client_lab, declare_secret, upstream};

/// A package registry, its rules and the scripts of its client.
struct Registry {
    preset: Option<&'static str>,
    preset_hosts: &'static [&'static str],
    own_hosts: &'static [&'static str],
    /// The hosts that require the secret.
    guarded: &'static [&'static str],
    /// A bash script that creates the files that the hosts serve.
    files: &'static str,
    /// See [`ClientCase`].
    script: &'static str,
    denied_script: &'static str,
}

impl Registry {
    #[track_caller]
    fn check(&self) {
        let (lab, authority, canary) = client_lab();
        let files = FileServer::create(&lab, &canary, self.files);
        let hosts = [self.preset_hosts, self.own_hosts].concat();
        let serve = move |received: &_| files.serve(received);
        let upstream = upstream(&authority, &hosts, self.guarded, &canary, serve);
        let case = ClientCase {
            secret: "api",
            declared: &declare_secret(self.guarded),
            presets: self.preset.as_slice(),
            preset_hosts: self.preset_hosts,
            own_hosts: self.own_hosts,
            script: self.script,
            denied_script: self.denied_script,
        };
        case.check(&lab, &authority, &canary, &upstream);
    }
}

/// A script that creates a yanked wheel, because pip and uv print only the reason of a yank.
const PYPI: &str = r#"
mkdir -p pypi.org/simple/demo files.pythonhosted.org/packages demo-1.0.dist-info
echo 'print("got it")' > demo.py
printf 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n' > demo-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > demo-1.0.dist-info/WHEEL
touch demo-1.0.dist-info/RECORD
wheel=demo-1.0-py3-none-any.whl
zip -qr files.pythonhosted.org/packages/$wheel demo.py demo-1.0.dist-info
cat > pypi.org/simple/demo/index.html <<END
<!DOCTYPE html><html><body>
<a href="https://files.pythonhosted.org/packages/$wheel" data-yanked="$ECHO">$wheel</a>
</body></html>
END
"#;

const PIP: Registry = Registry {
    preset: Some("pypi"),
    preset_hosts: &["pypi.org", "files.pythonhosted.org"],
    own_hosts: &[],
    guarded: &["pypi.org"],
    files: PYPI,
    script: r#"
python3 -m pip install --target got --index-url "https://me:$API_TOKEN@pypi.org/simple" demo==1.0 2>&1
PYTHONPATH=got python3 -c 'import demo'
"#,
    denied_script: "python3 -m pip install --retries 0 --target got --index-url https://nobody.example.net/simple demo",
};

const UV: Registry = Registry {
    script: r#"
uv=/opt/clients/python/bin/uv
$uv pip install --python /usr/bin/python3 --target got --index-url "https://me:$API_TOKEN@pypi.org/simple" demo==1.0 2>&1
PYTHONPATH=got python3 -c 'import demo'
"#,
    denied_script: r#"
export UV_HTTP_RETRIES=0
/opt/clients/python/bin/uv pip install --python /usr/bin/python3 --target got --index-url https://nobody.example.net/simple demo
"#,
    ..PIP
};

const NPM: Registry = Registry {
    preset: Some("npm"),
    preset_hosts: &["registry.npmjs.org"],
    own_hosts: &[],
    guarded: &["registry.npmjs.org"],
    files: r#"
mkdir -p registry.npmjs.org/demo/- package
echo 'module.exports = "got it";' > package/index.js
echo '{ "name": "demo", "version": "1.0.0" }' > package/package.json
tar czf registry.npmjs.org/demo/-/demo-1.0.0.tgz package
cat > registry.npmjs.org/demo/index.json <<END
{ "name": "demo", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": {
  "name": "demo", "version": "1.0.0", "description": "$ECHO",
  "dist": { "tarball": "https://registry.npmjs.org/demo/-/demo-1.0.0.tgz" } } } }
END
"#,
    script: r#"
echo "//registry.npmjs.org/:_authToken=$API_TOKEN" > .npmrc
npm install demo
node -p 'require("demo")'
npm view demo description
"#,
    denied_script: "npm install --fetch-retries 0 --registry https://nobody.example.net demo",
};

const PNPM: Registry = Registry {
    script: r#"
pnpm=/opt/clients/npm/node_modules/.bin/pnpm
echo "//registry.npmjs.org/:_authToken=$API_TOKEN" > "$HOME/.npmrc"
echo '{}' > package.json
$pnpm add demo
node -p 'require("demo")'
$pnpm view demo description
"#,
    denied_script: r#"
export pnpm_config_fetch_retries=0
echo '{}' > package.json
/opt/clients/npm/node_modules/.bin/pnpm add --registry https://nobody.example.net demo
"#,
    ..NPM
};

/// The cargo client with a crate of crates.io and a crate of a registry that requires a token.
const CARGO: Registry = Registry {
    preset: Some("crates"),
    preset_hosts: &["index.crates.io", "static.crates.io"],
    own_hosts: &["cargo.example.com"],
    guarded: &["cargo.example.com"],
    files: r#"
add() { # NAME CRATE-FILE INDEX-FILE
    mkdir -p "$1-1.0.0/src" "${2%/*}" "${3%/*}"
    printf '[package]\nname = "%s"\nversion = "1.0.0"\nedition = "2021"\n' "$1" > "$1-1.0.0/Cargo.toml"
    echo "// $1: got it" > "$1-1.0.0/src/lib.rs"
    tar czf "$2" "$1-1.0.0"
    sum=$(sha256sum < "$2")
    printf '{"name":"%s","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}\n' "$1" "${sum%% *}" > "$3"
}
add demo static.crates.io/crates/demo/1.0.0/download index.crates.io/de/mo/demo
add inner cargo.example.com/dl/inner/1.0.0/download cargo.example.com/index/in/ne/inner
echo '{ "dl": "https://static.crates.io/crates", "api": "https://crates.io" }' > index.crates.io/config.json
echo '{ "dl": "https://cargo.example.com/dl", "api": "https://cargo.example.com", "auth-required": true }' > cargo.example.com/index/config.json
mkdir -p cargo.example.com/api/v1/crates
cat > cargo.example.com/api/v1/crates/index.json <<END
{ "crates": [ { "name": "inner", "max_version": "1.0.0", "description": "$ECHO" } ], "meta": { "total": 1 } }
END
"#,
    script: r#"
export PATH=/opt/clients/rust/bin:$PATH
export CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS=cargo:token
export CARGO_REGISTRIES_ACME_INDEX=sparse+https://cargo.example.com/index/ CARGO_REGISTRIES_ACME_TOKEN=$API_TOKEN
mkdir -p mine/src; touch mine/src/lib.rs; cd mine
cat > Cargo.toml <<END
[package]
name = "mine"
[dependencies]
demo = "1"
inner = { version = "1", registry = "acme" }
END
cargo fetch
cat "$HOME"/.cargo/registry/src/*/*-1.0.0/src/lib.rs
cargo search --registry acme inner
"#,
    denied_script: r#"
export PATH=/opt/clients/rust/bin:$PATH CARGO_NET_RETRY=0
CARGO_REGISTRIES_ACME_INDEX=sparse+https://nobody.example.net/ cargo search --registry acme inner
"#,
};

const APT: Registry = Registry {
    preset: Some("debian"),
    preset_hosts: &["deb.debian.org"],
    own_hosts: &[],
    guarded: &["deb.debian.org"],
    files: r#"
mkdir -p demo/DEBIAN deb.debian.org/debian/pool deb.debian.org/debian/dists/stable/main/binary-all
printf 'Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: got it\n' > demo/DEBIAN/control
cd deb.debian.org/debian
dpkg-deb --build --root-owner-group "$OLDPWD/demo" pool/demo_1.0_all.deb
sum() { sum=$(sha256sum < "$1"); printf '%s' "${sum%% *}"; }
size() { stat -c %s "$1"; }
list=main/binary-all/Packages
{
    dpkg-deb --field pool/demo_1.0_all.deb
    printf 'Filename: pool/demo_1.0_all.deb\nSize: %s\nSHA256: %s\n' "$(size pool/demo_1.0_all.deb)" "$(sum pool/demo_1.0_all.deb)"
} > dists/stable/$list
cd dists/stable
cat > Release <<END
Suite: stable
Codename: stable
Architectures: all
Components: main
Description: $ECHO
Date: $(date -Ru)
SHA256:
 $(sum $list) $(size $list) $list
END
"#,
    script: r#"
echo "machine deb.debian.org login me password $API_TOKEN" > auth.conf
echo 'deb [trusted=yes arch=all] https://deb.debian.org/debian stable main' > sources.list
mkdir -p state/lists/partial cache/archives/partial
options="-o Dir::Etc::netrc=$PWD/auth.conf -o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=-
    -o Dir::State=$PWD/state -o Dir::State::status=/dev/null -o Dir::Cache=$PWD/cache"
apt-get $options update
apt-get $options download demo
dpkg-deb --field demo_1.0_all.deb Description
cat state/lists/*_Release
"#,
    denied_script: r#"
echo 'deb [trusted=yes arch=all] https://nobody.example.net/debian stable main' > sources.list
mkdir -p state/lists/partial cache/archives/partial
apt-get -o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=- -o Acquire::Retries=0 \
    -o APT::Update::Error-Mode=any -o Dir::State=$PWD/state -o Dir::State::status=/dev/null -o Dir::Cache=$PWD/cache update
"#,
};

const GO: Registry = Registry {
    preset: None,
    preset_hosts: &[],
    own_hosts: &["proxy.golang.org"],
    guarded: &["proxy.golang.org"],
    files: r#"
versions=proxy.golang.org/example.com/demo/@v
mkdir -p $versions example.com/demo@v1.0.0
printf 'module example.com/demo\n' | tee $versions/v1.0.0.mod > example.com/demo@v1.0.0/go.mod
printf '// got it\npackage demo\n' > example.com/demo@v1.0.0/demo.go
zip -qrD $versions/v1.0.0.zip example.com
echo v1.0.0 > $versions/list
echo '{ "Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z" }' > $versions/v1.0.0.info
"#,
    script: r#"
echo "machine proxy.golang.org login me password $API_TOKEN" > "$HOME/.netrc"
export GOPROXY=https://proxy.golang.org GONOSUMDB='*' GOSUMDB=off GOTOOLCHAIN=local
mkdir mine; cd mine; go mod init mine
go get example.com/demo@v1.0.0
cat "$HOME"/go/pkg/mod/example.com/demo@v1.0.0/demo.go
! go get example.com/other@v1.0.0 2>&1
"#,
    denied_script: r#"
mkdir mine; cd mine; go mod init mine
GOPROXY=https://nobody.example.net GOSUMDB=off go get example.com/demo@v1.0.0
"#,
};

#[test]
fn pip_installs_a_package_through_the_broker_with_a_placeholder() {
    PIP.check();
}

#[test]
fn uv_installs_a_package_through_the_broker_with_a_placeholder() {
    UV.check();
}

#[test]
fn npm_installs_a_package_through_the_broker_with_a_placeholder() {
    NPM.check();
}

#[test]
fn pnpm_installs_a_package_through_the_broker_with_a_placeholder() {
    PNPM.check();
}

#[test]
fn cargo_fetches_crates_through_the_broker_with_a_placeholder() {
    CARGO.check();
}

#[test]
fn apt_downloads_a_package_through_the_broker_with_a_placeholder() {
    APT.check();
}

#[test]
fn go_fetches_a_module_through_the_broker_with_a_placeholder() {
    GO.check();
}
