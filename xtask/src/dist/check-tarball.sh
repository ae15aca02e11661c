# Runs as root in a new root file system without Belljar: installs, uses and removes the tarball.

files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /root -o -path /home \) \
        -prune -o -type f -print | sort
}

files >/tmp/before
sh /release/install.sh
belljar doctor
belljar demo
. /use.sh
xargs rm </usr/local/share/belljar/installed
files >/tmp/after
diff /tmp/before /tmp/after
