#!/bin/bash
# Makes the tarball and the packages, and installs and removes each in fresh roots of Debian 12 and 13: a plain user runs
# a container there, and nothing is left afterwards. Runs `make` and `make install` in a root that has git and make alone.
# usage: integration/dist.sh RT [--all]   (root; RT as `make` built it)
# With --all the executables are built twice from two clones, for each machine, and compared, and `make demo` builds them in
# the root with git and make: half an hour.
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
all=${2:-}
[ "$(id -u)" = 0 ] && integration/packages mmdebstrap rpm lintian python3
for program in mmdebstrap rpmbuild python3; do
	command -v "$program" >/dev/null || missing="${missing:-} $program"
done
[ "$(id -u)" = 0 ] || missing="${missing:-} root"
[ "$rt" = "$PWD/build/rt" ] || missing="${missing:-} make's-own-build"
[ -d "$(rustc --print sysroot)/lib/rustlib/$(uname -m)-unknown-linux-musl" ] || missing="${missing:-} musl-target"
twelve=$(integration/debian dist-bookworm) || missing="${missing:-} a-Debian-mirror"
thirteen=$(integration/debian dist-trixie) || missing="${missing:-} a-Debian-mirror"
if [ -n "${missing:-}" ]; then
	skip_all "not there:$missing"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
uid=23464
version=$(packaging/commit --version)
machine=$(uname -m)

# in_root ROOT SCRIPT [ARGUMENT...]: bash as root in a copy of ROOT, whose changes are in memory and end with it. /src has
# these sources and /dist what is to be installed. `user` in the script runs a command as a plain user without passwd entry.
# A pivot_root(2), since the kernel makes no user namespaces for a process behind chroot(2).
in_root() {
	unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash -euc '
		root=$1 src=$2 dist=$3 uid=$4
		shift 4
		mount -t tmpfs -o mode=755 tmpfs /mnt
		mkdir /mnt/{upper,work,root}
		mount -t overlay -o "lowerdir=$root,upperdir=/mnt/upper,workdir=/mnt/work" overlay /mnt/root
		cd /mnt/root
		mkdir src dist
		mount --bind "$src" src
		mount --bind "$dist" dist
		for dir in proc sys dev; do mount --rbind /$dir $dir; done
		for dir in tmp run; do mount -t tmpfs -o mode=1777 tmpfs $dir; done
		cp /etc/resolv.conf etc/
		# What this machine trusts: a proxy of its own, maybe.
		install -D /etc/ssl/certs/ca-certificates.crt tmp/ca.crt 2>/dev/null || true
		pivot_root . .
		umount -l .
		cd /
		export -n OLDPWD
		exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root UID_OF_USER=$uid DEBIAN_FRONTEND=noninteractive \
			CARGO_HTTP_CAINFO=/tmp/ca.crt bash -uo pipefail -c "$@"
	' in_root "$1" "$PWD" "$work/dist" "$uid" "$prelude$2" "${@:3}"
}

prelude='
user() {
	mkdir -p /tmp/user && chown $UID_OF_USER:$UID_OF_USER /tmp/user || return
	(cd /tmp/user && exec setpriv --reuid $UID_OF_USER --regid $UID_OF_USER --clear-groups env -i PATH="$PATH" HOME=/tmp/user "$@")
}
# What is in the root, but for what package managers write of themselves.
listing() {
	find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/rpm \) -prune \
		-o \( -type f -o -type l -o -type d \) -printf "%p %y %s %m\n" | sed "s/ d [0-9]* / d /" | sort
}
# works RT: it says its commit, runs a container of this root as a plain user, and the doctor finds no problem.
works() {
	"$1" --version | grep -qx "commit: $(cat /dist/commit)" || { "$1" --version; return 1; }
	user "$1" spec --host -b demo </dev/null && user "$1" run ./demo -- grep VERSION_CODENAME /etc/os-release &&
		user "$1" doctor >/tmp/doctor || { cat /tmp/doctor; return 1; }
	rm -rf /tmp/user
}
'

mkdir "$work/dist"
packaging/commit >"$work/dist/commit"

# --- what is given to others

check "the tarball and the packages are made" 0 "rt-.*$machine\\.tar\\.gz" packaging/dist "$machine" "$work/dist"
mkdir "$work/again"
check "once more, elsewhere and otherwise" 0 "rt_.*\\.deb" env TZ=Asia/Tokyo LANG=C.UTF-8 TMPDIR="$work/again" \
	bash -c 'umask 077; packaging/dist "$@"' - "$machine" "$work/again"
check "the same commit gives the same bytes" 0 "^$" diff -r --exclude=commit "$work/dist" "$work/again"
check "no path of this machine is in the executables" 1 "^$" grep -rlE "$PWD|${CARGO_HOME:-$HOME/.cargo}" build
tar -C "$work" -xzf "$work/dist/rt-$version-$machine.tar.gz"
check "the licences of what is linked come along" 0 "ring 0.*ISC" grep "^ring" "$work/rt-$version-$machine/share/doc/rt/THIRD-PARTY"
if command -v lintian >/dev/null; then
	check "lintian has no complaint" 0 "^$" lintian --allow-root --fail-on error,warning "$work"/dist/*.deb
fi

# --- Debian's packages, by apt: on 12 without AppArmor, and on 13 with the profile, which its parser understands

deb='
	listing >/tmp/before
	apt-get install -y -qq --no-install-recommends /dist/*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
	works rt || exit 1
	if [ -e /etc/apparmor.d/abi/4.0 ]; then
		apparmor_parser --skip-kernel-load --skip-cache /etc/apparmor.d/rt 2>/tmp/log || { cat /tmp/log; exit 1; }
		echo "profile: ok"
	elif [ -e /etc/apparmor.d/rt ]; then
		echo "a profile that nothing reads" && exit 1
	fi
	# Once more, as an upgrade does it.
	dpkg -i /dist/*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
	apt-get remove -y -qq rt >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
	listing >/tmp/after
	diff /tmp/before /tmp/after && [ -z "$(dpkg-query -W -f "\${Status}" rt 2>/dev/null)" ] && echo removed
'
whole=yes check "Debian 12: apt installs and removes it" 0 "VERSION_CODENAME=bookworm.removed" in_root "$twelve" "$deb"
whole=yes check "Debian 13: apt installs and removes it" 0 "VERSION_CODENAME=trixie.profile: ok.removed" in_root "$thirteen" "$deb"

# --- the tarball, which needs neither make nor cargo

tarball='
	listing >/tmp/before
	cd /tmp && tar -xzf /dist/*.tar.gz && PREFIX=/opt/rt rt-*/install.sh --hooks || exit 1
	works /opt/rt/bin/rt || exit 1
	grep -q "\"/opt/rt/bin/rt-hook-gpu\"" /etc/rt/hooks.d/rt-hook-gpu.json || exit 1
	grep -q "exec /opt/rt/bin/rt " /opt/rt/share/rt/slurm/oci.conf || exit 1
	PREFIX=/opt/rt /tmp/rt-*/install.sh --uninstall || exit 1
	listing >/tmp/after
	diff /tmp/before /tmp/after && echo removed
'
whole=yes check "Debian 12: the tarball" 0 "VERSION_CODENAME=bookworm.removed" in_root "$twelve" "$tarball"
whole=yes check "Debian 13: the tarball" 0 "VERSION_CODENAME=trixie.removed" in_root "$thirteen" "$tarball"

# --- the rpm, by this machine's rpm, whose library is newer or older than that of the root

rpms='
	listing >/tmp/before
	rpm -i --force-debian --nodeps --dbpath /tmp/rpmdb /dist/*.rpm && works rt && test -s /usr/share/doc/rt/LICENSE || exit 1
	rpm -e --force-debian --dbpath /tmp/rpmdb rt || exit 1
	listing >/tmp/after
	diff /tmp/before /tmp/after && echo removed
'
rpm_root=$(integration/debian dist-rpm)
whole=yes check "rpm installs and removes it" 0 "VERSION_CODENAME=bookworm.removed" in_root "$rpm_root" "$rpms"

# --- a machine that has git and make alone

bare='
	cd /src
	for target in demo test check; do
		user make --no-print-directory -C /src $target 2>&1 | grep -v "^make" | tee /tmp/said
		[ "$(wc -l </tmp/said)" = 1 ] || exit 1
	done
	cd /src && make install && works rt && make uninstall || exit 1
	[ ! -e /usr/local/bin/rt ] && [ ! -e /usr/local/share/rt ] && echo "installed and removed"
'
missing="packaging/toolchain: missing: a C compiler \(cc\) [^:]*: sudo apt-get install [^:]*://sh.rustup.rs \| sh -s -- -y."
whole=yes check "a user without a compiler is told in one line" 0 "^($missing){3}VERSION_CODENAME=bookworm.installed and removed" in_root "$twelve" "$bare"
check "root gets a compiler and Rust" 0 "^cargo 1\\." in_root "$twelve" '
	PATH=$(/src/packaging/toolchain) && cc --version >/dev/null && cargo --version'

if [ "$all" = --all ]; then
	for machine in x86_64 aarch64; do
		for copy in a b; do
			git clone -q . "$work/$copy"
			(cd "$work/$copy" && packaging/dist $machine "$work/all-$copy") >"$work/log" 2>&1 || tail -5 "$work/log"
			rm -rf "${work:?}/$copy"
		done
		check "$machine: the same bytes from two clones" 0 "\\.rpm" bash -c 'diff -r "$1" "$2" && ls "$1"' - "$work"/all-{a,b}
	done
	git clone -q . "$work/dist/clone"
	check "make demo builds rt where git and make are alone" 0 "Left behind: nothing" in_root "$twelve" 'cd /dist/clone && make demo'
fi
done_testing
