#!/bin/bash
# The hooks with real libraries: NVIDIA's driver 535 and rdma-core of Debian's mirror, unpacked into a stand-in node,
# injected into a Debian and into a busybox container, under rt, crun, runc and podman. usage: integration/hooks.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/check
whole=yes # expectations span lines
rt=$(realpath "${1:-build/rt}")
bin=$(dirname "$rt")
keep=$PWD/integration/work
mkdir -p "$keep"
work=$(mktemp -d)
uid=23456
chmod 755 "$work"

skip() { echo "SKIP hooks: $*"; }
if [ "$(id -u)" != 0 ] || ! command -v dpkg mmdebstrap >/dev/null; then
	skip "no root, dpkg or mmdebstrap"
	exit 0
fi
# A cgroup2 view of our own: crun refuses hybrid hosts.
if [ "${1:-}" != inside ] && [ -z "${RT_HOOKS_INSIDE:-}" ]; then
	RT_HOOKS_INSIDE=1 exec unshare --mount --propagation private "$0" "$rt"
fi
stat -fc %T /sys/fs/cgroup | grep -q cgroup2fs || mount -t cgroup2 cgroup2 /sys/fs/cgroup
clean() { # what is bound must not be removed with the rest
	local dir
	for dir in "$work/node" "$work/root"; do
		! mountpoint -q "$dir" || umount -l "$dir" || return
	done
	rm -rf "$work"
}
trap clean EXIT

# Packages, once.
mirror=http://deb.debian.org/debian
node=$keep/node
fetch() { # COMPONENT PACKAGE...
	local component=$1 package file
	shift
	local index=$keep/Packages-${component//\//-}
	[ -s "$index" ] || curl -sf "$mirror/dists/bookworm/$component/binary-amd64/Packages.xz" | xz -d >"$index" || return 1
	for package in "$@"; do
		file=$(awk -v RS= -v p="$package" '$2 == p' "$index" | awk '/^Filename:/ {print $2; exit}')
		[ -n "$file" ] && curl -sf -o "$keep/package.deb" "$mirror/$file" && dpkg -x "$keep/package.deb" "$node" || return 1
	done
}
if [ ! -e "$node/ready" ]; then
	rm -rf "$node"
	mkdir "$node"
	fetch non-free libcuda1 libnvidia-ml1 nvidia-smi libnvidia-ptxjitcompiler1 &&
		fetch main libibverbs1 ibverbs-providers librdmacm1 libnl-3-200 libnl-route-3-200 libfabric1 &&
		touch "$node/ready"
fi
if [ ! -e "$node/ready" ]; then
	skip "no mirror to get drivers from"
	exit 0
fi
debian=$keep/debian
[ -e "$debian/usr/bin/dpkg" ] || mmdebstrap --quiet --variant=minbase --mode=root bookworm "$debian" >/dev/null 2>&1
if [ ! -e "$debian/usr/bin/perl" ]; then
	skip "no Debian root"
	exit 0
fi

# The plain user must get at both wherever the repository lies.
mkdir "$work/node" "$work/root" "$work/image" "$work/scratch"
touch "$debian/tmp/open.pl" # a mount point: runc and crun would make it
mount --bind "$node" "$work/node"
mount --bind "$debian" "$work/root"
version=$(basename "$(ls "$work"/node/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.*.*)" | cut -d. -f3-)
proc=$work/node/proc/driver/nvidia
mkdir -p "$proc/gpus/0000:07:00.0" "$work/node/dev/infiniband" "$work"/bin
printf 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  now\n' "$version" >"$proc/version"
printf 'ModifyDeviceFiles: 1\n' >"$proc/params"
printf 'Model: \t A100\nGPU UUID: \t GPU-1\nDevice Minor: \t 0\n' >"$proc/gpus/0000:07:00.0/information"
for name in nvidiactl nvidia0 nvidia-uvm infiniband/uverbs0 infiniband/rdma_cm; do
	[ -e "$work/node/dev/$name" ] || mknod -m 666 "$work/node/dev/$name" c 1 3
done
device=$work/node/sys/devices/pci0000:3a/0000:3b:00.0
mkdir -p "$device/infiniband_verbs/uverbs0" "$device/infiniband/mlx5_0" "$work"/node/sys/class/infiniband{,_verbs} \
	"$work/node/sys/bus/pci/drivers/mlx5_core"
echo mlx5_0 >"$device/infiniband_verbs/uverbs0/ibdev"
ln -sfn ../../../bus/pci/drivers/mlx5_core "$device/driver"
for entry in infiniband_verbs/uverbs0 infiniband/mlx5_0; do
	ln -sfn ../.. "$device/$entry/device"
	ln -sfn "../../devices/pci0000:3a/0000:3b:00.0/$entry" "$work/node/sys/class/$entry"
done
ldconfig -r "$work/node" /usr/lib/x86_64-linux-gnu/nvidia/current 2>/dev/null

cp "$rt" "$bin/rt-hook-gpu" "$bin/rt-hook-rdma" "$work/bin/"
rt=$work/bin/rt
mkdir "$work/hooks.d"
for hook in gpu rdma; do
	cat >"$work/hooks.d/$hook.json" <<-END
		{"version": "1.0.0", "when": {"always": true}, "stages": ["precreate", "createRuntime"],
		 "hook": {"path": "$work/bin/rt-hook-$hook", "args": ["rt-hook-$hook", "--root", "$work/node"]}}
	END
done
sed -i 's/"precreate", //' "$work/hooks.d/rdma.json"

# dlopen without a compiler in the container.
cat >"$work/open.pl" <<'END'
use DynaLoader;
for (@ARGV) {
	my $library = DynaLoader::dl_load_file($_) or die "$_: ", DynaLoader::dl_error(), "\n";
	print "opened $_\n";
}
my $symbol = DynaLoader::dl_find_symbol(DynaLoader::dl_load_file($ARGV[0]), $ARGV[0] =~ /cuda/ ? "cuInit" : "ibv_get_device_list");
print $symbol ? "symbol found\n" : "no symbol\n";
END
libraries='libcuda.so.1 libcuda.so libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1'
inside="ldconfig -p | grep -E 'libcuda|libibverbs'; nvidia-smi; perl /tmp/open.pl $libraries && perl /tmp/open.pl libibverbs.so.1 librdmacm.so.1 libmlx5-rdmav34.so; ls -C /dev/infiniband /dev/nvidia0; cat /proc/driver/nvidia/params /etc/libibverbs.d/mlx5.driver"
wanted='libibverbs.so.1 \(libc6,x86-64\) => /run/rt/rdma.*libcuda.so.1 \(libc6,x86-64\) => /run/rt/gpu/lib/libcuda.so.1.*Failed to initialize NVML.*opened libnvidia-ptx.*symbol found.*opened libmlx5-rdmav34.so.*symbol found.*/dev/nvidia0.*uverbs0.*ModifyDeviceFiles: 0.*driver /run/rt/rdma/lib/libmlx5'
bundle() { # NAME ROOTFS HOOKS(yes|no) COMMAND...
	local dir=$work/$1 root=$2 hooks=$3
	shift 3
	mkdir "$dir"
	(cd / && "$rt" spec -b "$dir" </dev/null) || return 1
	python3 - "$dir/config.json" "$root" "$hooks" "$work" "$@" <<-'END'
		import json, sys
		path, root, hooks, work, *args = sys.argv[1:]
		config = json.load(open(path))
		config["ociVersion"] = "1.0.2"  # as old runtimes know it
		config["root"]["path"] = root
		config["process"]["args"] = args
		config["process"]["env"] += ["NVIDIA_VISIBLE_DEVICES=all", "RT_RDMA_DEVICES=all"]
		config["mounts"].append({"destination": "/tmp/open.pl", "type": "bind", "source": work + "/open.pl",
		                         "options": ["bind", "ro"]})
		if hooks == "yes":
		    config["hooks"] = {"createRuntime": [
		        {"path": f"{work}/bin/rt-hook-{name}", "args": [f"rt-hook-{name}", "--root", work + "/node"]}
		        for name in ("gpu", "rdma")]}
		json.dump(config, open(path, "w"))
	END
}
bundle debian "$work/root" yes sh -c "$inside"
bundle plain "$work/root" no sh -c "$inside"
find "$debian" -xdev | sort >"$work/before"
user() { setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" "$@"; }
mkdir "$work/state"
check rt/root "$wanted" 0 "$rt" --root "$work/state/rt" run "$work/debian"
mkdir "$work/user"
cp -r "$work/plain" "$work/user/plain"
chown -R $uid:$uid "$work/user"
check rt/user "$wanted" 0 user "$rt" run --hooks-dir "$work/hooks.d" "$work/user/plain"
[ ! -x "$(command -v runc)" ] || check runc "$wanted" 0 runc --root "$work/state/runc" run -b "$work/debian" hooks-runc
[ ! -x "$(command -v crun)" ] || check crun "$wanted" 0 crun --root "$work/state/crun" --cgroup-manager=disabled run -b "$work/debian" hooks-crun
if command -v podman >/dev/null; then
	cat >"$work/containers.conf" <<-END
		[containers]
		default_ulimits = []
		[engine]
		runtime_supports_nocgroup = ["rt", "crun"]
		[engine.runtimes]
		rt = ["$rt"]
	END
	for runtime in rt crun; do
		check podman/$runtime "$wanted" 0 env CONTAINERS_CONF="$work/containers.conf" podman --root "$work/podman" \
			--runroot "$work/podman-run" --cgroup-manager cgroupfs --runtime $runtime --hooks-dir "$work/hooks.d" run --rm \
			--cgroups=disabled --network=none --ulimit host -v "$work/open.pl:/tmp/open.pl:ro" \
			-e NVIDIA_VISIBLE_DEVICES=all -e RT_RDMA_DEVICES=all --rootfs "$work/root:O" sh -c "$inside"
	done
else
	skip "podman: not installed"
fi
check nothing-in-the-image "" 0 bash -c "find '$debian' -xdev | sort | diff '$work/before' -"

# A container without a loader: devices come, libraries do no harm.
if busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1; then
	mkdir -p "$work"/image/{bin,dev,etc,proc,run,sys,tmp}
	cp "$busybox" "$work/image/bin/sh"
	bundle busybox "$work/image" yes sh -c 'ls /dev/nvidia0 /run/rt/gpu/lib'
	check busybox "/dev/nvidia0.*libcuda.so.1" 0 "$rt" --root "$work/state/rt" run "$work/busybox"
fi

# ldconfig of the container agrees with what was written: same names, same order of a name.
check ldconfig "same" 0 "$rt" --root "$work/state/rt" run -v "$work/scratch:/mnt" "$work/debian" -- sh -c \
	'ldconfig -p | grep "=>" | grep -v /run/rt >/mnt/ours; ldconfig -C /mnt/cache && ldconfig -C /mnt/cache -p | grep "=>" >/mnt/theirs; grep -c x86-64 /mnt/ours && diff /mnt/ours /mnt/theirs && echo same'
check dry-run '"name": "libcuda.so.1"' 0 "$bin/rt-hook-gpu" --dry-run --bundle "$work/debian" --root "$work/node"
check cdi '"kind": "nvidia.com/gpu"' 0 "$bin/rt-hook-gpu" cdi --root "$work/node"

# What that describes, an engine gives to a container by name, and so does rt.
made=
[ -d /run/cdi ] || made=yes
mkdir -p /run/cdi
mount -t tmpfs cdi /run/cdi
"$bin/rt-hook-gpu" cdi --root "$work/node" >/run/cdi/nvidia.json
asked="ls /dev/nvidia0 /dev/nvidiactl; ldconfig -p | grep libcuda; perl /tmp/open.pl libcuda.so.1"
given="/dev/nvidia0.*/dev/nvidiactl.*libcuda.so.1 .libc6,x86-64.*symbol found"
check device/root "$given" 0 "$rt" --root "$work/state/rt" run --device nvidia.com/gpu=0 "$work/plain" -- sh -c "$asked"
check device/user "$given" 0 user "$rt" run --device nvidia.com/gpu=all "$work/user/plain" -- sh -c "$asked"
check device/unknown "nvidia.com/gpu=7" 1 user "$rt" run --device nvidia.com/gpu=7 "$work/user/plain" -- true
if command -v podman >/dev/null; then
	for runtime in rt crun; do
		check cdi/podman/$runtime "$given" 0 env CONTAINERS_CONF="$work/containers.conf" podman --root "$work/podman" \
			--runroot "$work/podman-run" --cgroup-manager cgroupfs --runtime $runtime run --rm --cgroups=disabled \
			--network=none --ulimit host -v "$work/open.pl:/tmp/open.pl:ro" --device nvidia.com/gpu=0 --rootfs "$work/root:O" sh -c "$asked"
	done
fi
umount /run/cdi
[ -z "$made" ] || rmdir /run/cdi

echo "result: integration/hooks: $passed passed; $failed failed"
[ $failed = 0 ]
