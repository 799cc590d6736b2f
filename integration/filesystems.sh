#!/bin/bash
# Bundles on other file systems than a disk's: FUSE (bindfs, squashfuse and fuse-overlayfs, mounted by the user) and an
# overlay. NFS is in nfs.sh. Root installs what is missing. usage: integration/filesystems.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
[ "$(id -u)" = 0 ] || skip_all "only root makes /dev/fuse usable and mounts an overlay"
if [ -z "${RT_FILESYSTEMS_INSIDE:-}" ]; then
	integration/packages bindfs squashfuse fuse-overlayfs squashfs-tools busybox-static
	RT_FILESYSTEMS_INSIDE=1 exec unshare --mount --propagation private "$0" "$rt"
fi
work=$(mktemp -d)
trap 'umount -l "$work"/on/* 2>/dev/null; rm -rf "$work"' EXIT
chmod 755 "$work"
uid=1 # fusermount wants a name for the user; this one has one everywhere
mkdir -p "$work"/{bin,home,upper,work,upper-ov,work-ov} "$work"/on/{bindfs,squashfuse,fuse-overlayfs,overlay} \
	"$work"/bundle/rootfs/{bin,data,tmp,proc,dev,sys,etc}
cp "$rt" "$work/bin/rt"
rt=$work/bin/rt bundle=$work/bundle
cp "$(command -v busybox)" "$bundle/rootfs/bin/busybox"
for applet in sh cat id ls mv sleep; do ln -s busybox "$bundle/rootfs/bin/$applet"; done
for n in 1 2 3; do echo $n >"$bundle/rootfs/data/$n"; done
(cd "$bundle" && "$rt" spec </dev/null)
chown -R $uid:$uid "$bundle" "$work"/{home,upper,work,upper-ov} "$work"/on/*
mksquashfs "$bundle" "$work/bundle.sqsh" -quiet -no-progress >/dev/null
chmod 644 "$work/bundle.sqsh"
if [ "$(stat -c %a /dev/fuse 2>/dev/null)" != 666 ] && mknod -m 666 "$work/fuse" c 10 229 2>/dev/null; then
	mount --bind "$work/fuse" /dev/fuse
fi
user() { setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" HOME="$work/home" "$@"; }
life() { # WHO BUNDLE: the program is another process than rt, and more come
	local state=$work/home/state-$1 status
	$1 "$rt" --root "$state" run -d -b "$2" c1 -- sleep 1000 && $1 "$rt" --root "$state" exec c1 cat /data/3
	status=$?
	$1 "$rt" --root "$state" delete --force c1
	rm -rf "$state"
	return $status
}
suite() { # NAME WHO REFUSED: bundle on $work/on/NAME; a layer there is refused with these words
	local dir=$work/on/$1 name=$1/$2
	check "$name/run" 0 "^3$" $2 "$rt" run "$dir" -- cat /data/3
	check "$name/mount-point" 0 "^/new/one$" $2 "$rt" run -v "$work/home:/new/one" "$dir" -- ls -d /new/one
	check "$name/writable" 0 "^1$" $2 "$rt" run --writable "$dir" -- \
		sh -c 'echo x >/data/new && mv /data/1 /data/moved && cat /data/moved'
	check "$name/image-stays" 0 "^1$" $2 cat "$dir/rootfs/data/1"
	check "$name/layer" 1 "$3" $2 "$rt" run --overlay "$dir/layer" "$dir" -- cat /data/3
	check "$name/layer-elsewhere" 0 "^3$" $2 "$rt" run --overlay "$work/home/layer-$1-$2" "$dir" -- cat /data/3
	check "$name/life" 0 "^3$" life $2 "$dir"
}
try() { # NAME WHO REFUSED COMMAND...: which mounts it
	local name=$1 who=$2 refused=$3
	shift 3
	if "$@" >/dev/null 2>&1; then
		suite "$name" "$who" "$refused"
	else
		skip "$name" "${1##*/} does not mount here"
	fi
}
fuse='it is on FUSE, which cannot hold the upper layer'
try bindfs user "$fuse" user bindfs --no-allow-other "$bundle" "$work/on/bindfs"
try squashfuse user 'layer: ' user squashfuse "$work/bundle.sqsh" "$work/on/squashfuse"
try fuse-overlayfs user "$fuse" user fuse-overlayfs -o "lowerdir=$bundle,upperdir=$work/upper,workdir=$work/work" \
	"$work/on/fuse-overlayfs"
for who in user env; do
	try overlay $who 'it is on an overlay, which cannot hold the upper layer' \
		mount -t overlay overlay -o "lowerdir=$bundle,upperdir=$work/upper-ov,workdir=$work/work-ov" "$work/on/overlay"
	umount -l "$work/on/overlay"
done
# A bundle on another user's file system, which may never answer: root asks it nothing.
check bindfs/root 1 "another user's file system is mounted there" "$rt" run "$work/on/bindfs" -- cat /data/3
done_testing
