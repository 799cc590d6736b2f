#!/bin/bash
# Images that are files: those that mksquashfs writes of a Debian root in every compression, compared with the root and with
# unsquashfs; containers of them, as a plain user and as root; images of apptainer, where that is installed.
# usage: integration/images.sh RT   (root: makes a Debian root with mmdebstrap, and a /dev/fuse that all may open)
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
work=$(mktemp -d)
uid=23457
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work"/{bin,mnt,user,dev}
chmod 777 "$work/user" "$work/mnt"
cp "$rt" "$(dirname "$rt")"/{rt-image,rt-pull} "$work/bin" || exit 1

[ "$(id -u)" = 0 ] || skip_all "root makes the images"
integration/packages squashfs-tools attr mmdebstrap busybox-static >/dev/null
command -v mksquashfs >/dev/null || skip_all "mksquashfs is not installed"

# A mount namespace of its own, in which everybody may open /dev/fuse, as hosts have it.
in_world() {
	unshare -m bash -c 'mount -t tmpfs none "$0/dev" && mknod -m 666 "$0/dev/fuse" c 10 229 &&
		mount --bind "$0/dev/fuse" /dev/fuse && exec "$@"' "$work" "$@"
}
user() { in_world setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$work/bin:$PATH" HOME="$work/user" "$@"; }
root() { in_world env -i PATH="$work/bin:$PATH" HOME="$work/user" "$@"; }
in_world sh -c ': <>/dev/fuse' 2>/dev/null || skip_all "the kernel has no FUSE"

debian=$(integration/debian) || skip_all "no root for mmdebstrap, or no mirror to get packages from"

# All that stat(2) shows, but sizes of directories, which are each file system's own.
list='cd "$0" && find . -type d -printf "%P %y %#m %Ts %n\n" -o -printf "%P %y %#m %s %Ts %n %l\n" | LC_ALL=C sort'
sums='cd "$0" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | sha256sum'
sh -c "$list" "$debian" >"$work/list"
sh -c "$sums" "$debian" >"$work/sums"
note "images: $(wc -l <"$work/list") files, $(du -sm "$debian" | cut -f1) MB"

form() { # NAME FLAGS...: an image, and whether all of it is as in the root
	local name=$1 image=$work/$1.sqsh
	mksquashfs "$debian" "$image" -noappend -quiet -no-progress "${@:2}" >/dev/null
	check "$name/list" 0 "" user rt mount "$image" "$work/mnt" -- sh -c "($list) | cmp - $work/list" "$work/mnt"
	check "$name/contents" 0 "" user rt mount "$image" "$work/mnt" -- sh -c "($sums) | cmp - $work/sums" "$work/mnt"
	check "$name/run" 0 "^ID=debian\$" user rt run "$image" -- cat /etc/os-release
}
form gzip -comp gzip
form enroot -comp lzo -noD
form lzo -comp lzo -Xcompression-level 1
form lz4 -comp lz4 -b 256K
form zstd -comp zstd -Xcompression-level 3 -b 1M
# Without -always-use-fragments, with which mksquashfs 4.5 now and then writes damaged fragments that unsquashfs refuses too.
form zstd-small -comp zstd -Xcompression-level 1 -b 16K
form xz -comp xz -Xbcj x86
form lzma -comp lzma
form stored -noI -noD -noF -noX
image=$work/zstd.sqsh

# unsquashfs is another reader.
unsquashfs -quiet -no-progress -dest "$work/unsquashed" "$image" >/dev/null
check unsquashfs/same 0 "" sh -c "($list) | cmp - $work/list" "$work/unsquashed"
rm -rf "$work/unsquashed"

# Containers.
check run/id 0 "uid=$uid" user rt run "$image" -- id
check run/dpkg 0 "^([6-9][0-9]|[0-9]{3,})\$" user rt run "$image" -- sh -c 'dpkg -l | grep -c ^ii'
check run/perl 0 "^4\$" user rt run "$image" -- perl -e 'print 2 + 2, "\n"'
check run/read-only 1 "Read-only" user rt run "$image" -- touch /x
check run/root 0 "uid=0" root rt run "$image" -- id
check run/as-root 0 "^apt 2" user rt run --as-root "$image" -- apt-get --version
check run/writable 0 "^Hello" user rt run --writable "$image" -- sh -c 'echo Hello >/etc/hello && cat /etc/hello'
check run/overlay 0 "" user rt run --overlay "$work/user/layer" "$image" -- sh -c 'rm /bin/ls; echo kept >/opt/kept'
check run/overlay-again 0 "^kept\$" user rt run --overlay "$work/user/layer" "$image" -- cat /opt/kept
check run/volume 0 "^ID=debian\$" user rt run -v "$work/lz4.sqsh:/lz4" "$image" -- cat /lz4/etc/os-release
check run/many 0 "^20\$" user bash -c "for i in \$(seq 20); do rt run $image -- echo x & done | wc -l"
check run/at-once 0 "^1\$" user rt run "$image" -- bash -c \
	'for i in $(seq 8); do cat /usr/bin/* 2>/dev/null | md5sum & done | sort -u | wc -l'
check run/extract 0 "^ID=debian\$" user rt run --extract "$image" -- cat /etc/os-release
check extract/list 0 "" user rt mount --extract "$image" "$work/mnt" -- bash -c \
	"($list) | grep -v '^dev/' | cmp - <(grep -v '^dev/' $work/list)" "$work/mnt"

# A program of one file, made of an image by its name. It is static, and runs where besides it there is only what the kernel
# has, /proc, /sys and /dev: no rt, no library, no shell, and neither /run nor /tmp.
mkdir -p "$work"/small/rootfs/bin "$work/alone/rootfs"
cp "$(command -v busybox)" "$work/small/rootfs/bin"
ln -s busybox "$work/small/rootfs/bin/sh"
"$rt" spec -b "$work/small" && chmod -R a+rX "$work/small"
check runfile/layout 0 "^sha256:" user rt save --quiet "$work/small" "oci:$work/user/layout:1"
check runfile/save 0 "^$work/user/app\$" user rt save "oci:$work/user/layout:1" --runfile "$work/user/app"
check runfile/there 1 "exists" user rt save "oci:$work/user/layout:1" --runfile "$work/user/app"
check runfile/static 1 "not a dynamic executable" ldd "$work/user/app"
cp "$work/user/app" "$work/alone/rootfs" && chmod 755 "$work/alone/rootfs" "$work/alone/rootfs/app"
cat >"$work/alone/config.json" <<'CONFIG'
{
	"ociVersion": "1.2.0",
	"root": { "path": "rootfs", "readonly": true },
	"process": { "args": ["/app"], "env": [], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "noNewPrivileges": true },
	"mounts": [
		{ "destination": "/proc", "type": "proc", "source": "proc" },
		{ "destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"] },
		{ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"] },
		{ "destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["mode=1777"] },
		{ "destination": "/dev/fuse", "type": "bind", "source": "/dev/fuse", "options": ["bind"] }
	],
	"linux": { "namespaces": [{ "type": "pid" }, { "type": "mount" }] },
	"annotations": { "rt.user": "caller" }
}
CONFIG
alone() { user rt run "$work/alone" -- /app "$@"; }
check runfile/alone 0 "^app dev proc sys\$" alone --rt-volume=/:/host --rt-shell -c 'echo $(busybox ls /host)'
check runfile/runs 0 "^of the image\$" alone --rt-shell -c 'echo of the image'
check runfile/mounted 0 "fuse.squashfs ro," alone --rt-shell -c 'busybox grep " / " /proc/mounts'
check runfile/status 7 "^\$" alone --rt-shell -c 'exit 7'
check runfile/help 0 "^Usage: app " alone --rt-help
check runfile/extract 0 "^rt-image / tmpfs ro," alone --rt-extract --rt-shell -c 'busybox grep " / " /proc/mounts'

# What others write.
if command -v apptainer >/dev/null; then
	check apptainer/build 0 "" apptainer build "$work/x.sif" "$debian"
	check apptainer/run 0 "^ID=debian\$" user rt run "$work/x.sif" -- cat /etc/os-release
else
	skip apptainer "not installed"
fi

left=$(pgrep -f "rt-image serve.*$work" || true)
for _ in $(seq 50); do
	[ -n "$left" ] || break
	sleep 0.1
	left=$(pgrep -f "rt-image serve.*$work" || true)
done
check nothing-left 0 "^\$" echo "$left"
check no-mounts 1 "^0\$" grep -c "$work" /proc/self/mounts
done_testing
