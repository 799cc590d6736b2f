#!/bin/bash
# Installs packages in bundles that `rt pull` made of Debian 12 and 13, as root inside of a plain user without passwd entry
# and without subordinate ids: apt, dpkg, rpm and dnf, with the files of the host in place.
# usage: integration/install.sh RT [--all]   (rt-pull beside it; root: makes the Debian roots with mmdebstrap)
# With --all about 1500 packages are installed in each, which takes a quarter of an hour and 8 GB.
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
rt=$(realpath "${1:-build/rt}")
all=${2:-}
for program in mmdebstrap skopeo; do
	command -v "$program" >/dev/null || missing="${missing:-} $program"
done
[ "$(id -u)" = 0 ] || missing="${missing:-} root"
if [ -n "${missing:-}" ]; then
	skip_all "not there:$missing"
fi
uid=23458
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/bin" "$work/user"
cp "$rt" "$(dirname "$rt")/rt-pull" "$work/bin/" || exit 1
cp integration/install/rpms "$work/rpms"
chown $uid:$uid "$work/user"

few="tzdata sudo openssh-server man-db cron dbus systemd locales ca-certificates"
# What is not in a release is left out and counted.
many="$few postgresql mariadb-server slurmd slurmctld munge npm jupyter nginx apache2 rsyslog build-essential gfortran
	libopenmpi-dev python3-scipy python3-matplotlib texlive-latex-base emacs-nox vim git subversion cmake r-base
	default-jdk-headless ruby php redis-server memcached exim4 rpcbind nfs-common sssd ldap-utils slapd bind9 chrony avahi-daemon
	cups polkitd network-manager iputils-ping tcpdump wireshark-common fuse3 uuid-runtime xauth console-setup kbd snmpd"

user() { # as the plain user, with nothing of root's environment
	(cd "$work/user" && exec setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$work/bin:$PATH" \
		HOME="$work/user" RT_CACHE="$work/user/cache" "$@")
}
inside() { # BUNDLE COMMAND...: as root inside
	local bundle=$1
	shift
	user rt run --user-map root -e DEBIAN_FRONTEND=noninteractive "./$bundle" -- "$@"
}

archive() { # NAME: a Debian root with the policy-rc.d of images, as docker-archive NAME.tar
	local root id policy dir=$work/archive
	root=$(integration/debian "$1") || return 1
	mkdir -p "$dir/policy/usr/sbin"
	printf '#!/bin/sh\nexit 101\n' >"$dir/policy/usr/sbin/policy-rc.d"
	chmod 755 "$dir/policy/usr/sbin/policy-rc.d"
	tar -C "$root" --numeric-owner --exclude=./.made-of -cf "$dir/root.tar" . &&
		tar -C "$dir/policy" --numeric-owner --owner=0 --group=0 -cf "$dir/policy.tar" . || return 1
	read -r id _ < <(sha256sum "$dir/root.tar")
	read -r policy _ < <(sha256sum "$dir/policy.tar")
	cat >"$dir/config.json" <<-JSON
		{ "architecture": "$(dpkg --print-architecture)", "os": "linux",
		  "config": { "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["bash"] },
		  "rootfs": { "type": "layers", "diff_ids": ["sha256:$id", "sha256:$policy"] } }
	JSON
	echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$1:latest\"], \"Layers\": [\"root.tar\", \"policy.tar\"]}]" \
		>"$dir/manifest.json"
	tar -C "$dir" -cf "$work/$1.tar" manifest.json config.json root.tar policy.tar && rm -r "$dir"
}

install='
	apt-get update -qq || exit 1
	names=
	for name in "$@"; do
		if apt-get install -s "$name" >/dev/null 2>&1; then names="$names $name"; else echo "left out: $name"; fi
	done
	apt-get install -y $names'
state='
	echo "audit: $(dpkg --audit | wc -c) bytes"
	echo "not installed: $(dpkg -l | awk "NR > 5 && \$1 != \"ii\"" | wc -l)"
	dpkg -l | grep -c ^ii'

debian() { # NAME IMAGE
	local name=$1 image=$2 start=$SECONDS
	archive "$name" || {
		skip "$name" "no mirror to get packages from"
		return
	}
	if [[ $image == oci-archive:* ]]; then
		skopeo copy -q --insecure-policy "docker-archive:$work/$name.tar" "oci-archive:$work/$name.oci:$name" && rm "$work/$name.tar"
	fi
	chmod 644 "$work/$name".*
	check "$name/pull" 0 "^$work/user/$name\$" user rt pull -q --writable "$image" "$name"
	check "$name/no-passwd-entry" 2 "" getent passwd $uid
	check "$name/root-has-capabilities" 0 "^CapEff:\s*0*1f+\$" inside "$name" grep CapEff /proc/self/status
	if [ "$all" = --all ]; then
		check "$name/apt" 0 "Setting up openssh-server" inside "$name" bash -c "$install" - $many
	else
		check "$name/apt" 0 "Setting up openssh-server" inside "$name" bash -c "$install" - --no-install-recommends $few
	fi
	whole=1 check "$name/configured" 0 "audit: 0 bytes.not installed: 0.[0-9]+" inside "$name" bash -c "$state"
	note "$name: $(inside "$name" sh -c 'dpkg -l | grep -c ^ii') packages, $((SECONDS - start)) s"
	check "$name/setuid" 0 "^4755 root\$" inside "$name" stat -c '%a %U' /usr/bin/sudo
	check "$name/no-mounts-on-files" 1 "^0\$" inside "$name" grep -c ' /etc/' /proc/self/mounts
	# A zone that is set inside stays; a file that nobody has changed is the host's again.
	check "$name/set-zone" 0 "" inside "$name" sh -c 'ln -sf /usr/share/zoneinfo/Asia/Tokyo /etc/localtime && rm /etc/hosts'
	check "$name/keep-zone" 0 "JST" inside "$name" date
	check "$name/hosts" 0 "" inside "$name" test -s /etc/hosts
	check "$name/as-caller" 0 "^uid=$uid" user rt run "./$name" -- id
	check "$name/reinstall" 0 "Setting up tzdata" inside "$name" apt-get install -y --reinstall tzdata
	check "$name/purge" 0 "Purging configuration files for cron" inside "$name" apt-get purge -y cron
	# In a user namespace that a client made, where other users' namespaces have taken the usual names for the state; and
	# in another user's hands.
	check "$name/nested" 0 "^uid=0" user unshare -r rt run "./$name" -- id
	check "$name/nested-dpkg" 0 "Current default time zone" user unshare -r rt run --user-map root "./$name" -- \
		dpkg-reconfigure --frontend noninteractive tzdata
	check "$name/third-user" 0 "^uid=$((uid + 1))" setpriv --reuid $((uid + 1)) --regid $((uid + 1)) --clear-groups \
		env -i PATH="$PATH" "$work/bin/rt" run "$work/user/$name" -- id
}

taken=()
mkdir /tmp/rt-0 2>/dev/null && taken+=(/tmp/rt-0)
trap 'rm -rf "$work"; [ ${#taken[@]} = 0 ] || rmdir "${taken[@]}"' EXIT
debian debian "docker-archive:$work/debian.tar"
debian debian-13 "oci-archive:$work/debian-13.oci:debian-13"

# A layer over a bundle that stays as it was pulled.
if [ -e "$work/debian.tar" ]; then
	check layer/pull 0 "" user rt pull -q "docker-archive:$work/debian.tar" image
	before=$(user find image -printf '%p %T@ %s\n' | sort | sha256sum)
	layered() { user rt run --as-root --overlay layer -e DEBIAN_FRONTEND=noninteractive ./image -- "$@"; }
	check layer/apt 0 "Setting up sudo" layered bash -c "$install" - --no-install-recommends sudo tzdata cron
	whole=1 check layer/configured 0 "audit: 0 bytes.not installed: 0.[0-9]+" layered bash -c "$state"
	check layer/reinstall 0 "Setting up tzdata" layered apt-get install -y --reinstall tzdata
	check layer/image-unchanged 0 "^$before\$" sh -c "cd '$work/user' && find image -printf '%p %T@ %s\n' | sort | sha256sum"
fi

# rpm and dnf, from Debian's packages.
if [ -d "$work/user/debian/rootfs" ]; then
	check rpm/apt 0 "Setting up dnf" inside debian bash -c "$install" - --no-install-recommends rpm dnf createrepo-c libcap2-bin busybox-static file
	rpms() { user rt run --user-map root -v "$work/rpms:/rpms:ro" ./debian -- bash /rpms; }
	rpms >"$work/rpms.out" 2>&1 </dev/null
	check rpm/end 0 "^removed\$" cat "$work/rpms.out"
	check rpm/dnf 0 "^dnf: base-1-1.* daemon-1-1" cat "$work/rpms.out"
	check rpm/setuid 0 "^-rwsr-xr-x /usr/bin/as-root" cat "$work/rpms.out"
	check rpm/setgid-directory 0 "^drwxr-s--- /var/lib/daemon" cat "$work/rpms.out"
	check rpm/file-capability 0 "^/usr/bin/with-cap cap_net_raw=ep" cat "$work/rpms.out"
	check rpm/useradd 0 "^daemonuser:" cat "$work/rpms.out"
	check rpm/script 0 "^more\$" cat "$work/rpms.out"
	check rpm/owners-only 0 "^differs: S?.*U" cat "$work/rpms.out"
	check rpm/rpm 0 "^rpm: daemon-1-1" cat "$work/rpms.out"
fi

done_testing
