#!/bin/bash
# Runs podman, buildah, containerd and docker on rt: as a plain user without a line in /etc/subuid, as one with, and as
# root; this machine's, on its own cgroup layout and on pure version 2, and those of Debian 13, on version 2. Needs root,
# to play them all, and for Debian 13 a mirror.
# usage: integration/clients.sh RT [SUITE...]   (SUITE: CLIENT/LAYOUT/USER, as in the lines that are printed)
set -uo pipefail
rt=$(realpath "${1:?the path of rt}")
cd "$(dirname "$0")"
. ./tap
suites=("${@:2}")
if [ ${#suites[@]} = 0 ]; then
	# In the order of what takes longest, Debian 13 last, whose root is being made meanwhile: two run at a time.
	suites=(
		podman/{v2,machine}/one podman/machine/many podman/{machine,v2}/root podman/v2/many
		docker/{machine,v2}/{one,root} docker/machine/many containerd/{machine,v2}/{one,root} buildah/machine/{one,many,root} buildah/v2/one
		podman/trixie/{one,many,root} docker/trixie/{one,many,root} containerd/trixie/{one,root} buildah/trixie/one
	)
fi
[ "$(id -u)" = 0 ] || skip_all "only root can play all callers"
./packages gcc libc6-dev busybox-static iproute2 mmdebstrap podman buildah containerd docker.io runc conmon slirp4netns uidmap catatonit \
	netavark iptables rootlesskit python3-grpcio
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clients/image "$work/image.tar" || exit 1

# Each suite has a world of its own.
suite() {
	local layout root=
	layout=$(cut -d/ -f2 <<<"$1")
	if [ "$layout" = trixie ]; then
		layout=v2
		if ! root=$(./debian clients-trixie 2>&1); then
			echo "1..0 # SKIP Debian 13 cannot be had: $root"
			return
		fi
	fi
	ROOT=$root clients/world "$layout" "$rt" "$PWD/clients/suite" "$1" 3<"$work/image.tar" </dev/null 2>&1
}
case " ${suites[*]}" in */trixie/*) ./debian clients-trixie >/dev/null 2>&1 & ;; esac
for suite in "${suites[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
	suite "$suite" >"$work/${suite//\//-}.log" &
done
wait
for suite in "${suites[@]}"; do include "$suite" cat "$work/${suite//\//-}.log"; done
done_testing
