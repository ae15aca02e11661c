# Runs as root in a new root file system of Debian: installs, uses and removes the package.

# Lists all files but those that dpkg and users keep.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /root -o -path /home \
        -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o -print | sort
}

files >/tmp/before
dpkg --install /release/belljar_*.deb
for file in /usr/share/man/man1/belljar.1.gz /usr/share/man/man1/belljar-run.1.gz \
    /usr/share/bash-completion/completions/belljar; do
    test -s "$file"
done
belljar doctor
belljar demo
. /use.sh
dpkg --remove belljar
files >/tmp/after
diff /tmp/before /tmp/after
test -d /home/plain/.local/state/belljar # the state of the user stays
