#!/bin/sh
# Installs Belljar from a release. It checks the signature and the hash of the tarball first.
#
#   sh install.sh [--from DIR|URL] [--prefix DIR] [--unsigned]
#
#   --from      the directory or the https address of the release (default: the directory of this script)
#   --prefix    install below this directory (default: /usr/local for root, else ~/.local)
#   --unsigned  accept a release without a signature; only the hash is checked
#
# To remove Belljar, delete the files that are listed in PREFIX/share/belljar/installed.
set -eu

# The public key of the signer, in the format of allowed_signers in ssh-keygen(1).
signer=''

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

usage() {
    echo "install.sh: $1; usage: sh install.sh [--from DIR|URL] [--prefix DIR] [--unsigned]" >&2
    exit 2
}

from=$(dirname "$0")
prefix=
unsigned=
while [ $# -gt 0 ]; do
    case $1 in
    --from | --prefix)
        [ $# -ge 2 ] || usage "$1 needs a value"
        if [ "$1" = --from ]; then from=$2; else prefix=$2; fi
        shift 2
        ;;
    --unsigned)
        unsigned=1
        shift
        ;;
    *) usage "unknown argument $1" ;;
    esac
done
if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi

[ "$(uname -s)" = Linux ] || fail "Belljar needs Linux; this is $(uname -s)"
machine=$(uname -m)
release=$(uname -r)
major=${release%%.*}
minor=${release#*.}
minor=${minor%%[!0-9]*}
if [ "$major" -lt 5 ] || { [ "$major" -eq 5 ] && [ "$minor" -lt 13 ]; }; then
    fail "Belljar needs Linux 5.13 or later; this is $release. Install a newer kernel"
fi
command -v sha256sum >/dev/null || fail "sha256sum is missing; install coreutils"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Copies or downloads a file of the release.
fetch() {
    case $from in
    https://*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --proto '=https' --output "$work/$1" "$from/$1"
        elif command -v wget >/dev/null; then
            wget --quiet --https-only --output-document="$work/$1" "$from/$1"
        else
            fail "curl or wget is needed to download from $from; install one, or use --from DIR"
        fi
        ;;
    *://*) fail "--from $from: only https addresses and directories are supported" ;;
    *) cp "$from/$1" "$work/$1" ;;
    esac
}

fetch SHA256SUMS || fail "$from has no SHA256SUMS; name the directory or the address of a release with --from"

if [ -n "$signer" ]; then
    command -v ssh-keygen >/dev/null || fail "ssh-keygen is missing, which checks the signature; install openssh-client"
    fetch SHA256SUMS.sig || fail "$from has no SHA256SUMS.sig: the release is not signed. Do not install it"
    printf '%s\n' "$signer" >"$work/signers"
    ssh-keygen -Y verify -f "$work/signers" -I belljar -n file -s "$work/SHA256SUMS.sig" <"$work/SHA256SUMS" >/dev/null 2>&1 ||
        fail "the signature of SHA256SUMS is wrong: the release was changed, or somebody else signed it. Do not install it"
elif [ -z "$unsigned" ]; then
    fail "this release is not signed; --unsigned installs it after a check of its hash"
fi

tarball=$(sed -n "s/^[0-9a-f]\{64\}  \(belljar-[0-9A-Za-z.+-]*-$machine-linux\.tar\.gz\)$/\1/p" "$work/SHA256SUMS")
[ -n "$tarball" ] || fail "the release has no tarball for $machine; build Belljar from its sources"
[ "$(printf '%s\n' "$tarball" | wc -l)" -eq 1 ] || fail "the release has several tarballs for $machine"
fetch "$tarball" || fail "cannot read $tarball from $from"
grep "  $tarball\$" "$work/SHA256SUMS" >"$work/sum"
(cd "$work" && sha256sum --check --status sum) ||
    fail "the hash of $tarball is wrong: the file is damaged or was changed. Download it again"

mkdir "$work/tree"
tar -xzf "$work/$tarball" -C "$work/tree" --strip-components=1 --no-same-owner
mkdir -p "$prefix" || fail "cannot create $prefix; choose another directory with --prefix"
[ -w "$prefix" ] || fail "cannot write to $prefix; choose another directory with --prefix, or run this as root"
(cd "$work/tree" && find . -type f | LC_ALL=C sort | sed 's|^\./||') >"$work/list"
while IFS= read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    # A rename replaces a program that is running.
    cp "$work/tree/$file" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
done <"$work/list"
mkdir -p "$prefix/share/belljar"
{
    while IFS= read -r file; do echo "$prefix/$file"; done <"$work/list"
    echo "$prefix/share/belljar/installed"
} >"$prefix/share/belljar/installed"

echo "installed $("$prefix/bin/belljar" --version) in $prefix"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) echo "add $prefix/bin to PATH" ;;
esac
if ! "$prefix/bin/belljar" doctor >"$work/doctor" 2>&1; then
    cat "$work/doctor"
    echo "this machine lacks a layer; see above"
fi
echo "next: belljar demo"
