#!/bin/bash
# rt on the kernels of other Debian releases, in QEMU: one below what it needs, the oldest and a later one that sites
# have, and one whose / is rootfs, as on nodes without a disk. Needs a mirror and, to install QEMU, root.
# usage: integration/kernels.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
rt=$(realpath "${1:-build/rt}")
skip() {
	echo "SKIP kernels: $1"
	echo "result: integration/kernels: 0 passed, 0 failed, 1 skipped"
	exit 0
}
[ "$(uname -m)" = x86_64 ] || skip "the guests are x86_64"
if [ "$(id -u)" = 0 ]; then integration/packages qemu-system-x86 cpio kmod busybox-static xz-utils zstd; fi
for tool in qemu-system-x86_64 cpio busybox; do command -v $tool >/dev/null || skip "no $tool"; done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
integration/kernels/tree "$tree" x86_64 "$(dirname "$rt")"

passed=0 failed=0 skipped=0
run() { # NAME SUITE PATTERN WORD...
	local name=$1 kernel=integration/work/kernels/x86_64-${1%-rootfs} log
	if ! integration/kernels/kernel "$kernel" "$2" "$3"; then
		echo "SKIP kernels/$name: no kernel of $2"
		skipped=$((skipped + 1))
		return
	fi
	shift 3
	log=$(integration/kernels/boot "$kernel" "$tree" "$@")
	grep -vE '^result: ' <<<"$log"
	local p f
	if read -r p f < <(sed -n 's/^result: guest: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<<"$log") && [ -n "$f" ]; then
		passed=$((passed + p)) failed=$((failed + f))
	else
		echo "FAIL kernels/$name: the guest came to no end"
		failed=$((failed + 1))
	fi
}
run 5.10 bullseye 'linux-image-5\.10\.[0-9-]*-cloud-amd64-unsigned'
run 6.1 bookworm 'linux-image-6\.1\.[0-9-]*-cloud-amd64-unsigned'
run 6.1-rootfs bookworm 'linux-image-6\.1\.[0-9-]*-cloud-amd64-unsigned' rootfs
run 6.12 bookworm-backports 'linux-image-6\.12\.[^-]*-cloud-amd64-unsigned'
echo "result: integration/kernels: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
