#!/bin/bash
# rt on the kernels of other Debian releases, in QEMU: one below what it needs, the oldest and a later one that sites
# have, and one whose / is rootfs, as on nodes without a disk. Before that, on this kernel, without the calls that RHEL 8
# and RHEL 9 lack. Needs a mirror and, to install QEMU, root.
# usage: integration/kernels.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
rt=$(realpath "${1:-build/rt}")
. integration/tap
[ "$(uname -m)" = x86_64 ] || skip_all "the guests are x86_64"
if [ "$(id -u)" = 0 ]; then integration/packages qemu-system-x86 cpio kmod busybox-static xz-utils zstd; fi
for tool in qemu-system-x86_64 cpio busybox; do command -v $tool >/dev/null || skip_all "no $tool"; done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
integration/kernels/tree "$tree" x86_64 "$(dirname "$rt")"

# Debian has no package of 4.18 and 5.14, so this kernel is made to lack what they lack (older.c).
seems() { # CALLER VERSION ARGUMENT...: rt there
	local who=$1 version=$2 own=()
	shift 2
	[ "$who" != user ] || own=(setpriv --reuid 23456 --regid 23457 --clear-groups)
	# A version below 5.14 must be what uname says, too: --uname-2.6 makes it 2.6.
	[ "$version" != 4.18 ] || own=(setarch --uname-2.6 "${own[@]}")
	"$tree/older" "$version" "${own[@]}" env -i PATH="$PATH" HOME=/ "$tree/usr/bin/rt" "$@"
}
lives() { # CALLER: with 5.14's calls
	local b=$tree/bundle-$1
	seems "$1" 5.14 run -d -b "$b" calls-5.14 -- sleep 1000 >/dev/null 2>&1 && seems "$1" 5.14 exec calls-5.14 id &&
		seems "$1" 5.14 delete --force calls-5.14 && seems "$1" 5.14 run --writable "$b" -- sh -c 'echo y >/bin/y && cat /bin/y' &&
		seems "$1" 5.14 run --overlay "$b/layer" "$b" -- id && [ ! -e "$b/rootfs/bin/y" ]
}
if [ "$(id -u)" != 0 ] || ! gcc -O1 -o "$tree/older" integration/kernels/older.c; then
	skip calls "wants root, and gcc"
else
	for who in root user; do
		b=$tree/bundle-$who
		mkdir -p "$b/rootfs/bin" && cp "$tree/bin/busybox" "$b/rootfs/bin/"
		for applet in sh cat id sleep; do ln -s busybox "$b/rootfs/bin/$applet"; done
		(cd "$b" && "$tree/usr/bin/rt" spec </dev/null)
		[ $who = root ] || chown -R 23456:23457 "$b"
		check "4.18-calls/$who/run" 1 "needs Linux 5.14, this is 2.6" seems $who 4.18 run "$b" -- id
		check "4.18-calls/$who/create" 1 "needs Linux 5.14, this is 2.6" seems $who 4.18 create -b "$b" calls-4.18
		# Twice, since what the first one left behind would have this id.
		check "4.18-calls/$who/create-again" 1 "needs Linux 5.14, this is 2.6" seems $who 4.18 create -b "$b" calls-4.18
		check "4.18-calls/$who/list" 0 "^ID" seems $who 4.18 list
		check "4.18-calls/$who/doctor" 1 "lacks pidfd_open.*, openat2.*, mount_setattr" seems $who 4.18 doctor
		check "5.14-calls/$who" 0 "uid=0" lives $who
	done
	rm -rf "$tree"/bundle-* "$tree/older"
fi

run() { # NAME SUITE PATTERN WORD...
	local name=$1 kernel=integration/work/kernels/x86_64-${1%-rootfs}
	if ! integration/kernels/kernel "$kernel" "$2" "$3"; then
		skip "$name" "no kernel of $2"
		return
	fi
	shift 3
	include "$name" integration/kernels/boot "$kernel" "$tree" "$@"
}
run 5.10 bullseye 'linux-image-5\.10\.[0-9-]*-cloud-amd64-unsigned'
run 6.1 bookworm 'linux-image-6\.1\.[0-9-]*-cloud-amd64-unsigned'
run 6.1-rootfs bookworm 'linux-image-6\.1\.[0-9-]*-cloud-amd64-unsigned' rootfs
run 6.12 bookworm-backports 'linux-image-6\.12\.[^-]*-cloud-amd64-unsigned'
done_testing
