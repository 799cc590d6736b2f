#!/bin/bash
# The Containerfiles of buildah's conformance cases, by rt build as a user who has one id and by buildah as root. What came of each is
# held against containerfiles/expected.tsv. Needs root, buildah, busybox-static and buildah's sources: a directory that
# BUILDAH_SOURCES names, else they are fetched.
# usage: integration/containerfiles.sh RT
set -uo pipefail
rt=$(realpath "${1:?the path of rt}")
cd "$(dirname "$0")"
skip() {
	echo "SKIP containerfiles: $1"
	echo "result: integration/containerfiles: 0 passed, 0 failed, 1 skipped"
	exit 0
}
[ "$(id -u)" = 0 ] || skip "only root can play both callers"
./packages buildah busybox-static git
commit=5b1b18eeb
sources=${BUILDAH_SOURCES:-work/buildah}
if [ ! -d "$sources/tests/conformance" ]; then
	git clone -q https://github.com/containers/buildah "$sources" && git -C "$sources" checkout -q "$commit" || skip "no sources of buildah"
fi
uid=23460
work=$(mktemp -d -p /var/tmp)
trap 'buildah rmi -f case >/dev/null 2>&1; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/{bin,user,base/{bin,etc,tmp,usr/bin,root,var/log,home}}
cp "$rt" "$(dirname "$rt")"/rt-{pull,image} "$work/bin/"
# A stand-in for all images of registries.
cp "$(command -v busybox)" "$work/base/bin/busybox"
for name in $("$work/base/bin/busybox" --list); do
	[ "$name" = busybox ] || ln -s busybox "$work/base/bin/$name"
done
chmod 1777 "$work/base/tmp"
cp /etc/passwd /etc/group "$work/base/etc/"
printf 'FROM scratch\nCOPY . /\nCMD ["sh"]\n' >"$work/Base"
chown -R "$uid:$uid" "$work/user"
names=(busybox alpine quay.io/libpod/busybox mirror.gcr.io/busybox mirror.gcr.io/alpine quay.io/libpod/centos:7 centos:7)
tags() { printf -- '-t\n%s\n' "${names[@]}"; }
setpriv --reuid $uid --regid $uid --clear-groups env -i PATH=/usr/bin:/bin HOME="$work/user" RT_BUILD_DIR="$work/user/build" RT_IMAGES="$work/user/images" \
	RT_CACHE="$work/user/cache" "$work/bin/rt" build -q $(tags) -f "$work/Base" "$work/base" >/dev/null || exit 1
# Names without a registry are looked for on docker.io by both.
printf 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "permissive"\n' >"$work/registries.conf"
export CONTAINERS_REGISTRIES_CONF=$work/registries.conf WORK=$work
full=()
for name in "${names[@]}"; do case $name in *.*/*) full+=(-t "$name") ;; *) full+=(-t "docker.io/library/$name") ;; esac; done
buildah bud -q --isolation chroot "${full[@]}" -f "$work/Base" "$work/base" >/dev/null || exit 1
containerfiles/run "$sources" "$work/bin/rt" $uid >"$work/got.tsv"
cp "$work/got.tsv" work/containerfiles.tsv
cut -f1 "$work/got.tsv" | sort | uniq -c
if changed=$(diff <(cut -f1,2 containerfiles/expected.tsv) <(cut -f1,2 "$work/got.tsv")); then
	echo "result: integration/containerfiles: $(wc -l <"$work/got.tsv") passed, 0 failed"
else
	echo "$changed"
	echo "result: integration/containerfiles: $(diff <(cut -f1,2 containerfiles/expected.tsv) <(cut -f1,2 "$work/got.tsv") | grep -c '^>') failed"
	exit 1
fi
