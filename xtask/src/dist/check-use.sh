# Runs a sealed command as a plain user: the home directory of root is not visible, and changes are held back.
echo 'plain:x:4242:4242::/home/plain:/bin/sh' >>/etc/passwd
mkdir -p /home/plain/project
echo kept >/home/plain/project/notes.txt
chown -R 4242:4242 /home/plain
as_plain_user() {
    (cd /home/plain/project && setpriv --reuid=4242 --regid=4242 --clear-groups env HOME=/home/plain "$@")
}
test "$(as_plain_user belljar run -- sh -c 'rm notes.txt; ls /root 2>/dev/null; echo sealed')" = sealed
test "$(cat /home/plain/project/notes.txt)" = kept
as_plain_user belljar ledger verify
sed -i '/^plain:/d' /etc/passwd
