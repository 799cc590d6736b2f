#!/bin/bash
# Runs podman, buildah, containerd and docker on rt: as a plain user without a line in /etc/subuid, as one with, and as
# root; on the machine's own cgroup layout and on pure version 2. Needs root, to play them all.
# usage: integration/clients.sh RT [SUITE...]   (SUITE: CLIENT/LAYOUT/USER, as in the lines that are printed)
set -uo pipefail
rt=$(realpath "${1:?the path of rt}")
cd "$(dirname "$0")"
suites=("${@:2}")
if [ ${#suites[@]} = 0 ]; then
	# In the order of what takes longest: two run at a time.
	suites=(
		podman/{v2,machine}/one podman/machine/many podman/{machine,v2}/root podman/v2/many
		docker/{machine,v2}/{one,root} docker/machine/many containerd/{machine,v2}/{one,root} buildah/machine/{one,many,root} buildah/v2/one
	)
fi
if [ "$(id -u)" != 0 ]; then
	echo "SKIP clients: only root can play all callers"
	echo "result: integration/clients: 0 passed, 0 failed, ${#suites[@]} skipped"
	exit 0
fi
./packages gcc libc6-dev busybox-static iproute2 podman buildah containerd docker.io runc conmon slirp4netns uidmap \
	catatonit netavark iptables rootlesskit python3-grpcio
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clients/image "$work/image.tar" || exit 1

# Each suite has a world of its own.
suite() {
	clients/world "$(cut -d/ -f2 <<<"$1")" "$rt" "$PWD/clients/suite" "$1" 3<"$work/image.tar" >"$work/${1//\//-}.log" 2>&1 </dev/null
	sed '/^result: /d' "$work/${1//\//-}.log"
}
for suite in "${suites[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
	suite "$suite" &
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
for program in podman buildah containerd ctr dockerd conmon; do
	command -v $program >/dev/null && echo "version: $($program --version | head -1)"
done
echo "result: integration/clients: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
