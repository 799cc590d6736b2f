#!/bin/bash
# The commands of README.md and docs/*.md, block by block as they stand there: as a plain user on a machine on which
# `make install` has installed rt, with Docker Hub and ghcr.io played by Debian's docker-registry on loopback, and with a
# cluster of the installed Slurm for the blocks of jobs. A remark in front of a block says who runs it:
#   <!-- test: root -->            the administrator, in a checkout
#   <!-- test: slurm -->           the user, on a node that submits jobs; `slurm plugin` where Slurm has rt's plugin
#   <!-- test: before COMMAND -->  the user, after COMMAND
#   <!-- test: table -->           the user: each row of a table is the commands of a program, which may be another than rt
#   <!-- test: skip REASON -->     nobody
# usage: integration/pages.sh RT [PAGE...]   (rt's other programs beside it; root)
# TIMES=yes prints what each row of a table took. CAST=FILE draws the terminal of a user at his first commands, too.
set -uo pipefail
{ # read as a whole, so that it can be edited while it runs
cd "$(dirname "$0")/.."
. integration/tap
. integration/registries
rt=$(realpath "${1:-build/rt}")
shift $(($# > 0))
pages=("$@")
[ $# != 0 ] || pages=(README.md docs/*.md)

if [ "${INSIDE:-}" = "" ]; then
	[ "$(id -u)" = 0 ] || skip_all "root starts the registry, and becomes the user"
	integration/packages docker-registry skopeo umoci openssl python3 podman slirp4netns charliecloud munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins
	for program in docker-registry skopeo umoci python3 make; do
		command -v $program >/dev/null || skip_all "$program is not installed"
	done
	make --no-print-directory -C spank >/dev/null 2>&1 || note "Slurm's plugin cannot be built, and is left out"
	DEBIAN=$(integration/debian) || skip_all "no root for mmdebstrap, or no mirror to get packages from"
	JUPYTER=
	grep -ql quay.io/jupyter "${pages[@]}" && { JUPYTER=$(integration/pages/jupyter) || note "JupyterLab cannot be had from PyPI"; }
	WORK=$(mktemp -d /var/tmp/rt-pages.XXXXXX)
	chmod 755 "$WORK"
	export DEBIAN JUPYTER WORK INSIDE=yes
	# A mount namespace in which the machine's own files look as ever, and whatever is installed goes with the last process;
	# and a PID namespace, with which whatever somebody leaves running ends.
	unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$rt" "${pages[@]}"
	status=$?
	rm -rf "$WORK"
	exit $status
fi

work=$WORK
pids=
end() {
	[ ! -e "$CLUSTER_DIR/settings" ] || integration/slurm/cluster down
	[ -z "$pids" ] || kill $pids 2>/dev/null
}
export CLUSTER_DIR=$work/cluster PORT=16921 HOME=$work/root
trap end EXIT
mkdir -p "$work"/{layers,registry,root,checkout,home,tmp}
mount -t tmpfs none "$work/layers"
for dir in /etc /usr/local /opt /run; do
	layer=$work/layers/${dir//\//-}
	mkdir -p "$layer/upper" "$layer/work"
	mount -t overlay overlay -o "lowerdir=$dir,upperdir=$layer/upper,workdir=$layer/work" "$dir" || exit 1
done
mkdir -p /run/rt-slurm
chmod 1777 /run/rt-slurm
# Open to all, as udev's rules have them: for images that are files, and for podman's networks.
for device in /dev/fuse:229 /dev/net/tun:200; do
	[ ! -c "${device%:*}" ] || { mknod -m 666 "$work/${device#*:}" c 10 "${device#*:}" && mount --bind "$work/${device#*:}" "${device%:*}"; }
done

# --- the machine: a checkout in which `make` has been called, what it installs, and a user

tar c --exclude=./target --exclude=./build --exclude=./.git --exclude=./integration/work . | tar x -C "$work/checkout"
mkdir "$work/checkout/build"
for program in rt rt-pull rt-image rt-manual rt-hook-gpu rt-hook-mpi rt-hook-rdma; do
	cp "$(dirname "$rt")/$program" "$work/checkout/build/" || exit 1
done
make -C "$work/checkout" install >"$work/install.log" 2>&1 || {
	cat "$work/install.log"
	exit 1
}
# The machine may have a user of that name. /etc is this namespace's own.
! id jane >/dev/null 2>&1 || userdel jane || exit 1
useradd --no-create-home --home-dir /home/jane --shell /bin/bash jane || exit 1

# --- the registries

umoci init --layout "$work/layout"
umoci new --image "$work/layout:12"
umoci insert --image "$work/layout:12" "$DEBIAN" / >/dev/null
umoci config --image "$work/layout:12" --config.cmd bash --config.env LANG=C.UTF-8
registry "$work" plain
pids=$pid plain=$port tls=
mkdir -p /etc/containers
for name in docker.io ghcr.io quay.io; do
	printf '[[registry]]\nprefix = "%s"\nlocation = "127.0.0.1:%s/%s"\ninsecure = true\n' $name "$plain" $name
done >/etc/containers/registries.conf
# Charliecloud has no registries.conf, and speaks https alone. It has another registry on the same data, see `run`.
if command -v ch-image >/dev/null && openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout "$work/key" \
	-out "$work/crt" 2>/dev/null; then
	registry "$work" tls "tls: {certificate: $work/crt, key: $work/key}"
	pids="$pids $pid" tls=$port
fi
# The mirror of recipes.md, on the same data. The user's registries.conf there has no other way to docker.io.
sed "s|addr: .*}|addr: 127.0.0.1:5000}|" "$work/plain.yml" >"$work/mirror.yml"
docker-registry serve "$work/mirror.yml" >"$work/mirror.log" 2>&1 &
pids="$pids $!"
echo '127.0.0.1 mirror.site.example' >>/etc/hosts
# podman on rt, as it is described: crun refuses machines with a hybrid cgroup layout.
install -m 644 integration/podman/containers.conf /etc/containers/containers.conf
skopeo copy -q --insecure-policy --dest-tls-verify=false "oci:$work/layout:12" \
	"docker://127.0.0.1:$plain/docker.io/library/debian:12" || exit 1
skopeo copy -q --insecure-policy --dest-tls-verify=false "oci:$work/layout:12" "docker://127.0.0.1:$plain/library/debian:12" || exit 1
if [ -n "$JUPYTER" ]; then
	umoci new --image "$work/layout:jupyter"
	umoci insert --image "$work/layout:jupyter" "$JUPYTER" / >/dev/null
	umoci config --image "$work/layout:jupyter" --config.env PATH=/opt/jupyter/bin:/usr/bin:/bin
	skopeo copy -q --insecure-policy --dest-tls-verify=false "oci:$work/layout:jupyter" \
		"docker://127.0.0.1:$plain/quay.io/jupyter/base-notebook:latest" || exit 1
fi

# The checkout may lie below what is hidden here.
mkdir "$work/clone"
mount --bind . "$work/clone" && cd "$work/clone" || exit 1
# Directories of the disk, since an overlay holds no layer of another. What is called by its place in /tmp has been called.
chmod 1777 "$work/tmp"
mount --bind "$work/home" /home
mount --bind "$work/tmp" /tmp

# --- the cluster

plugin=/usr/local/lib/slurm/rt_spank.so
if [ -e spank/build/rt_spank.so ] && make -C "$work/checkout" install-spank >>"$work/install.log" 2>&1; then
	export SPANK="required $plugin"
else
	plugin=
fi

slurm=
export SLURM_CONF=$CLUSTER_DIR/etc/slurm.conf
cluster() { # starts it once, and says whether there is one
	if [ -z "$slurm" ]; then
		slurm=no
		if command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null; then
			integration/slurm/cluster up && slurm=yes
		fi
	fi
	[ $slurm = yes ]
}
# All jobs have ended, and well.
jobs_are_done() {
	timeout 120 bash -c 'while [ -n "$(squeue -h)" ]; do sleep 0.2; done' || return 1
	! scontrol show job | grep -oE 'JobId=[0-9]+|JobState=[A-Z]+' | grep JobState | grep -v COMPLETED
}

# --- the pages

check benches/chart 0 "" benches/chart --check
# A block goes on where the last one of its kind on the page has left directory and variables.
cat >"$work/run" <<'END'
ch-image() {
	case $* in
	"pull debian:12") command ch-image --no-cache --tls-no-verify pull "127.0.0.1:$TLS_PORT/docker.io/library/debian:12" debian:12 ;;
	*) command ch-image "$@" ;;
	esac
}
[ ! -e "$2" ] || . "$2"
set -eEo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND" >&2' ERR
. "$1"
{ export -p; printf 'cd %q\n' "$PWD"; } >"$2"
END
as_jane() {
	setpriv --reuid jane --regid "$(id -g jane)" --clear-groups env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/jane \
		USER=jane SHELL=/bin/bash SLURM_CONF="$SLURM_CONF" CH_IMAGE_STORAGE=/home/jane/.charliecloud TLS_PORT="$tls" timeout 300 "$@"
}
# The lines of the second file are in the first one, in this order; what `...` stands for is between them.
printed() {
	python3 -c '
import sys
lines, at, gap = open(sys.argv[1]).read().splitlines(), 0, True
for wanted in open(sys.argv[2]).read().splitlines():
    if wanted == "...":
        gap = True
        continue
    found = [n for n in range(at, len(lines)) if lines[n] == wanted][: 1]
    if not found or not gap and found[0] != at:
        sys.exit(f"the page has a line that is not printed there: {wanted}")
    at, gap = found[0] + 1, False
' "$@"
}
block() { # NAME USER
	local out=$work/block/output.$2 state=$work/block/state.$2
	case $2 in
	root) (cd "$work/checkout" && timeout 300 bash "$work/run" "$work/block/$1.sh" "$state") >"$out" 2>&1 ;;
	*) (cd /home/jane && as_jane bash "$work/run" "$work/block/$1.sh" "/home/jane/.pages-state") >"$out" 2>&1 ;;
	esac || {
		local got=$?
		cat "$out"
		return $got
	}
	[ ! -e "$work/block/$1.out" ] || printed "$out" "$work/block/$1.out" || {
		cat "$out"
		return 1
	}
}
for page in "${pages[@]}"; do
	rm -rf "$work/block" /home/jane /tmp/*
	mkdir -p "$work/block"
	chmod 755 "$work/block"
	install -d -o jane -g "$(id -g jane)" -m 755 /home/jane
	why=$(integration/pages/blocks "$page" "$work/block" 2>&1) || {
		fail "$page" "$why"
		continue
	}
	if grep -q '^slurm' "$work/block"/*.how 2>/dev/null && cluster; then
		# Where the administrator has set up containers, unless the page tells how. Both files are read at each step.
		rm -f "$CLUSTER_DIR/etc/oci.conf"
		echo "${SPANK:-}" >"$CLUSTER_DIR/etc/plugstack.conf"
		! grep -q 'plugstack\.conf' "$work/block"/*.sh || : >"$CLUSTER_DIR/etc/plugstack.conf"
		grep -q 'oci\.conf' "$work/block"/*.sh || install -m 644 integration/slurm/oci.conf "$CLUSTER_DIR/etc/oci.conf"
	fi
	for script in "$work/block"/*.sh; do
		[ -e "$script" ] || continue
		name=$(basename "$script" .sh)
		at=$(cat "$work/block/$name.at")
		read -r how rest <"$work/block/$name.how" || true
		case $how in
		skip) skip "$at" "$rest" ;;
		user | root) check "$at" 0 "" block "$name" "$how" ;;
		before)
			(cd /home/jane && as_jane bash -c "$rest") || note "$at: failed before: $rest"
			check "$at" 0 "" block "$name" user
			;;
		peer)
			case $rest in
			Charliecloud) program=ch-image ;;
			Apptainer | podman) program=${rest,,} ;;
			*) program=${rest%% *} ;;
			esac
			if [ "$program" = rt ] || command -v "$program" >/dev/null; then
				TIMEFORMAT="# TIME $at $rest: %R s; CPU %U + %S s"
				if [ -n "${TIMES:-}" ]; then
					time check "$at $rest" 0 "" block "$name" peer
				else
					check "$at $rest" 0 "" block "$name" peer
				fi
			else
				skip "$at $rest" "not installed"
			fi
			;;
		slurm)
			if [ "$rest" = plugin ] && [ -z "$plugin" ]; then
				skip "$at" "there is no plugin"
			elif cluster; then
				check "$at" 0 "" block "$name" slurm
				check "$at jobs" 0 "" jobs_are_done
			else
				skip "$at" "no Slurm is installed"
			fi
			;;
		*) fail "$at" "no such remark: $how" ;;
		esac
	done
done
# The terminal: the commands of pages/first-minutes, by the same user. FILE is there only if all of them have succeeded.
rm -rf /home/jane
install -d -o jane -g "$(id -g jane)" -m 755 /home/jane
if cluster; then
	install -m 644 integration/slurm/oci.conf "$CLUSTER_DIR/etc/oci.conf"
	cp integration/pages/{cast,first-minutes} "$work/"
	check first-minutes 0 "" bash -c "$(declare -f as_jane); cd /home/jane; tls=; as_jane python3 $work/cast $work/first-minutes cast.svg"
	[ -z "${CAST:-}" ] || [ ! -e /home/jane/cast.svg ] || cp /home/jane/cast.svg "$CAST"
else
	skip first-minutes "no Slurm is installed"
fi
done_testing
exit
}
