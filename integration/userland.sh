#!/bin/bash
# Runs busybox, a Debian userland and `rt spec --host` as a plain user without passwd entry, on the machine's
# own cgroup layout. usage: integration/userland.sh RT   (root: makes a Debian root with mmdebstrap)
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
work=$(mktemp -d)
uid=23456
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp "$rt" "$work/rt"

user() { # as the plain user, with nothing of root's environment
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" TMPDIR=/tmp "$@"
	else
		"$@"
	fi
}
rt() { user "$work/rt" "$@"; }
[ "$(id -u)" = 0 ] || uid=$(id -u)

bundle() { # NAME ROOTFS: a bundle of rt's own config, root read-only
	mkdir -p "$work/$1"
	[ "$(id -u)" != 0 ] || chown $uid:$uid "$work/$1"
	(cd / && rt spec -b "$work/$1") || return 1
	sed -i "s|\"path\": *\"rootfs\"|\"path\": \"$2\"|" "$work/$1/config.json"
}

note "cgroups: $(stat -fc %T /sys/fs/cgroup), $(grep -c ' cgroup ' /proc/self/mounts) of version 1, $(grep -c ' cgroup2 ' /proc/self/mounts) of version 2"

# The host's own userland.
mkdir "$work/host"
[ "$(id -u)" != 0 ] || chown $uid:$uid "$work/host"
(cd / && rt spec --host -b "$work/host")
b=$work/host
check host/os-release 0 "^ID=$(. /etc/os-release && echo "$ID")\$" rt run "$b" -- cat /etc/os-release
check host/id 0 "uid=$uid" rt run "$b" -- id
check host/uid-map 0 "^ +$uid +$uid +1\$" rt run "$b" -- cat /proc/self/uid_map
check host/ls 0 "^python3|^ls\$" rt run "$b" -- ls /usr/bin
check host/read-only 1 "Read-only file system" rt run "$b" -- touch /usr/x
check host/private-tmp 0 "^0\$" rt run "$b" -- sh -c 'touch /tmp/a && rm /tmp/a && ls /tmp | wc -l'
check host/exit-code 42 "" rt run "$b" -- sh -c 'exit 42'
check host/not-found 1 "no such file" rt run "$b" -- /no/such/program
check host/processes 0 "^2\$" rt run "$b" -- sh -c 'echo $$'
check host/devices 0 "^c" rt run "$b" -- ls -l /dev/null
check host/stdin 0 "^through\$" bash -c "echo through | \"\$@\"" - setpriv --reuid $uid --regid $uid --clear-groups "$work/rt" run "$b" -- cat
check host/command 0 "[0-9]+" rt run "$b" -- sh -c 'dpkg -l 2>/dev/null | wc -l'

# busybox: a root with one file in it.
if busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1; then
	mkdir -p "$work"/busybox-root/{bin,dev,etc,proc,sys,tmp}
	cp "$busybox" "$work/busybox-root/bin/busybox"
	for applet in sh ls id cat mount touch sleep; do ln -s busybox "$work/busybox-root/bin/$applet"; done
	bundle busybox "$work/busybox-root"
	b=$work/busybox
	check busybox/id 0 "uid=0" rt run "$b" -- id
	check busybox/uid-map 0 "^ +0 +$uid +1\$" rt run "$b" -- cat /proc/self/uid_map
	check busybox/mounts 0 " on /proc type proc" rt run "$b" -- mount
	check busybox/read-only 1 "Read-only" rt run "$b" -- touch /x
	check busybox/many 0 "^20\$" bash -c 'for i in $(seq 20); do "$@" & done | wc -l' - \
		setpriv --reuid $uid --regid $uid --clear-groups "$work/rt" run "$b" -- sh -c 'echo x'
	# created, started, seen, entered, stopped, removed
	check busybox/create 0 "" bash -c '"$@" &>/dev/null' - setpriv --reuid $uid --regid $uid --clear-groups "$work/rt" run --detach -b "$b" life -- sleep 60
	check busybox/state 0 '"status": *"running"' rt state life
	check busybox/exec 0 "uid=0" rt exec life id
	check busybox/kill 0 "" rt kill life KILL
	check busybox/delete 0 "" rt delete --force life
else
	skip busybox "no static busybox"
fi

# Debian.
if debian=$(integration/debian); then
	# the plain user must get at it wherever the repository lies
	mkdir "$work/debian-root"
	if [ "$(id -u)" != 0 ] || ! mount --bind "$debian" "$work/debian-root"; then
		rmdir "$work/debian-root"
		ln -s "$debian" "$work/debian-root"
	else
		trap 'umount "$work/debian-root"; rm -rf "$work"' EXIT
	fi
	bundle debian "$work/debian-root"
	b=$work/debian
	check debian/os-release 0 "^ID=debian\$" rt run "$b" -- cat /etc/os-release
	check debian/id 0 "uid=0\(root\) gid=0\(root\)" rt run "$b" -- id
	check debian/dpkg 0 "^([6-9][0-9]|[0-9]{3,})\$" rt run "$b" -- sh -c 'dpkg -l | grep -c ^ii'
	check debian/ls 0 "^bin .*etc.* usr " rt run "$b" -- sh -c 'echo $(ls /)'
	check debian/apt 0 "^apt 2" rt run "$b" -- apt-get --version
	check debian/perl 0 "^4\$" rt run "$b" -- perl -e 'print 2 + 2, "\n"'
	check debian/missing-mount-point 0 "debian-root" rt run -v "$work:/not/there:ro" "$b" -- ls /not/there
	check debian/nothing-made-in-it 1 "" test -e "$debian/not"
	check debian/read-only 1 "Read-only" rt run "$b" -- touch /x
	check debian/signal 7 "" user timeout --preserve-status -s TERM 1 "$work/rt" run "$b" -- \
		perl -e '$SIG{TERM} = sub { exit 7 }; sleep 20'
else
	skip debian "no root for mmdebstrap, or no mirror to get packages from"
fi

left=$(rt list -q)
check nothing-left 0 "^\$" echo "$left"
done_testing
