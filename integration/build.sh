#!/bin/bash
# Image builds that install packages, by podman and buildah on rt, for a user who has one id: no line in /etc/subuid and no
# passwd entry. Needs root to make the image and to become that user, a Debian mirror, and this machine's network.
# usage: integration/build.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
[ "$(id -u)" = 0 ] && integration/packages podman buildah uidmap squashfs-tools libcap2-bin
for program in podman buildah; do
	command -v "$program" >/dev/null || missing="${missing:-} $program"
done
[ "$(id -u)" = 0 ] || missing="${missing:-} root"
debian=$(integration/debian) || missing="${missing:-} a-Debian-mirror"
if [ -n "${missing:-}" ]; then
	skip_all "not there:$missing"
fi
uid=23459
work=$(mktemp -d)
clean() {
	user podman unshare rm -rf "$work/home/.local" 2>/dev/null
	# A user's podman keeps his namespaces by a process.
	kill "$(cat "$work/run/libpod/tmp/pause.pid" 2>/dev/null)" 2>/dev/null
	rm -rf "$work"
}
trap clean EXIT
chmod 755 "$work"
mkdir -p "$work"/{bin,run,tmp,context} "$work/home/.config/containers"
cp "$rt" "$work/bin/rt"
for file in containers storage; do
	sed "s#^rt = .*#rt = [\"$work/bin/rt\"]#" "integration/podman/$file.conf" >"$work/home/.config/containers/$file.conf"
done
tar -C "$debian" --one-file-system -cf "$work/debian.tar" .
cat >"$work/context/Containerfile" <<'FILE'
FROM localhost/debian
RUN apt-get update && apt-get install -y --no-install-recommends tzdata openssh-client man-db
RUN groupadd -g 70 own && useradd -u 70 -g 70 own && mkdir /srv/own && chown own:own /srv/own
USER own
RUN id -u >/tmp/id && ssh -V
FILE
chown -R $uid:$uid "$work"

# user [NAME=VALUE...] COMMAND...: with a login's environment and nothing else, and without podman's warnings about one id
user() {
	(cd "$work" && exec setpriv --reuid $uid --regid $uid --clear-groups env -i HOME="$work/home" USER=jane \
		TMPDIR="$work/tmp" XDG_RUNTIME_DIR="$work/run" PATH="$work/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@")
}
build() { user "${@:2}" $1 --isolation oci --runtime "$work/bin/rt" --network host -t built context; }
run() { user podman --log-level fatal run --rm --network none "$@"; }

check image 0 "sha256:" user podman import -q debian.tar localhost/debian
check off-by-default 100 "setgroups|Could not switch|not permitted" build "podman build"
check podman/build 0 "tagged localhost/built" build "podman build" RT_EMULATE_ROOT=1
check podman/built 0 "^OpenSSH" run --user 0 built ssh -V
check podman/user-of-the-image 0 "^0\$" run --user 0 built cat /tmp/id
check podman/packages 0 "^ii *man-db" run --user 0 built dpkg -l man-db
check podman/image-is-as-it-was 0 "^0\$" run --user 0 built sh -c 'ls /etc/apt/apt.conf.d | grep -c zz-one-user; true'
# For all containers of the user, by podman's own configuration.
conf=$work/home/.config/containers/containers.conf
sed -i 's/^\[engine\]$/&\nenv = ["RT_EMULATE_ROOT=1"]/' "$conf"
check configured/build 0 "tagged localhost/built" build "podman build --no-cache"
sed -i '/^env = /d' "$conf"
check run/off-by-default 1 "nvalid argument" run --user 0 built chown 7:7 /etc/hostname
check run/annotation 0 "^done\$" run --user 0 --annotation rt.user=root built sh -c 'chown 7:7 /etc/passwd && echo done'
check run/other-user 126 "does not exist in this user namespace" run --annotation rt.user=root --user 70 built id -u
check run/filter-stays 0 "^Seccomp:[[:space:]]*2\$" run --user 0 --annotation rt.user=root built grep Seccomp: /proc/self/status
check run/filter-refuses 0 "1\$" run --user 0 --annotation rt.user=root built perl -e 'print syscall(321) < 0 ? $! + 0 : 0, "\n"'
# buildah itself wants a line in passwd(5); podman does not.
named() (
	export -f user build
	export work uid
	unshare -m bash -c '{ cat /etc/passwd; echo "jane:x:$uid:$uid::$work/home:/bin/sh"; } >"$work/passwd" &&
		mount --bind "$work/passwd" /etc/passwd && "$@"' - "$@"
)
check buildah/bud 0 "tagged localhost/built" named build "buildah bud --no-cache" RT_EMULATE_ROOT=1
# Owners, modes and capabilities as root gives them: packages that make users, by rt build and in a chroot of root's.
packages="openssh-server dbus redis-server iputils-ping man-db cron"
special="mknod /null c 1 3 && ln -s null /link && chown -h 33:34 /link && mkfifo /pipe && chown 5:6 /pipe"
install="apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages"
mkdir "$work/owned" "$work/real"
cp "$work/debian.tar" "$work/owned/"
printf 'FROM scratch\nADD debian.tar /\nRUN %s\nRUN %s\n' "$install" "$special" >"$work/owned/Containerfile"
chown -R $uid:$uid "$work/owned"
cp "$(dirname "$rt")"/rt-{pull,image} "$work/bin/"
tar -C "$work/real" -xpf "$work/debian.tar"
cp /etc/resolv.conf "$work/real/etc/"
# tree DIR: each entry with its kind, mode and owner, but for what differs between two runs of apt, and what pulls prepare for mounts
tree() {
	(cd "$1" && find . -path ./proc -prune -o -path ./sys -prune -o -path ./dev -prune -o -path ./run -prune -o \
		-path ./var/cache -prune -o -path ./var/lib/apt -prune -o -path ./etc/localtime -prune -o -printf '%P %y %m %U:%G\n' | sort)
}
check owners/build 0 "^sha256:" user rt build -q -t owned -o owned.sqsh owned
check owners/real 0 "cron" unshare --mount --pid --fork chroot "$work/real" sh -c "mount -t proc proc /proc && ($install; $special)"
check owners/unpacked 0 "" unsquashfs -no-progress -d "$work/unpacked" "$work/owned.sqsh"
check owners/shadow 0 "^shadow f 640 0:42\$" sh -c "cd $work/unpacked/etc && find . -name shadow -printf '%P %y %m %U:%G\n'"
check owners/device 0 "^1:3\$" stat -c %Hr:%Lr "$work/unpacked/null"
check owners/capability 0 "cap_net_raw=ep" getcap "$work/unpacked/usr/bin/ping"
check owners/same-as-roots 0 "^\$" comm -23 <(tree "$work/real") <(tree "$work/unpacked")
done_testing
