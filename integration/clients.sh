#!/bin/bash
# Runs podman, buildah, containerd and docker on rt: as a plain user without a line in /etc/subuid, as one with, and as
# root; this machine's, on its own cgroup layout and on pure version 2, and those of Debian 13, on version 2. Needs root,
# to play them all, and for Debian 13 a mirror.
# usage: integration/clients.sh RT [SUITE...]   (SUITE: CLIENT/LAYOUT/USER, as in the lines that are printed)
set -uo pipefail
rt=$(realpath "${1:?the path of rt}")
cd "$(dirname "$0")"
suites=("${@:2}")
if [ ${#suites[@]} = 0 ]; then
	# In the order of what takes longest, Debian 13 last, whose root is being made meanwhile: two run at a time.
	suites=(
		podman/{v2,machine}/one podman/machine/many podman/{machine,v2}/root podman/v2/many
		docker/{machine,v2}/{one,root} docker/machine/many containerd/{machine,v2}/{one,root} buildah/machine/{one,many,root} buildah/v2/one
		podman/trixie/{one,many,root} docker/trixie/{one,many,root} containerd/trixie/{one,root} buildah/trixie/one
	)
fi
if [ "$(id -u)" != 0 ]; then
	echo "SKIP clients: only root can play all callers"
	echo "result: integration/clients: 0 passed, 0 failed, ${#suites[@]} skipped"
	exit 0
fi
clients=(podman buildah containerd docker.io runc conmon slirp4netns uidmap catatonit netavark iptables rootlesskit python3-grpcio)
./packages gcc libc6-dev busybox-static iproute2 mmdebstrap "${clients[@]}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clients/image "$work/image.tar" || exit 1

# The root with Debian 13's clients: made by who asks first, while the others wait.
trixie() {
	./debian clients-trixie trixie "${clients[@]}" docker-cli passt aardvark-dns nftables podman-compose distrobox podman-toolbox \
		busybox-static ca-certificates iproute2 mount procps python3
}

# Each suite has a world of its own.
suite() {
	local layout root=
	layout=$(cut -d/ -f2 <<<"$1")
	if [ "$layout" = trixie ]; then
		layout=v2
		if ! root=$(trixie 2>&1); then
			echo "SKIP $1: Debian 13 cannot be had: $root"
			echo "result: 0 0 1"
			return
		fi
	fi
	ROOT=$root clients/world "$layout" "$rt" "$PWD/clients/suite" "$1" 3<"$work/image.tar" </dev/null 2>&1
}
case " ${suites[*]}" in */trixie/*) trixie >/dev/null 2>&1 & ;; esac
for suite in "${suites[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
	(
		suite "$suite" >"$work/${suite//\//-}.log"
		sed '/^result: /d; /^version: /d' "$work/${suite//\//-}.log"
	) &
done
wait

passed=0 failed=0 skipped=0
for suite in "${suites[@]}"; do
	if read -r _ p f s < <(grep '^result: ' "$work/${suite//\//-}.log"); then
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	else
		echo "FAIL $suite: came to no end"
		failed=$((failed + 1))
	fi
done
grep -h '^version: ' "$work"/*.log | sort -u
echo "result: integration/clients: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
