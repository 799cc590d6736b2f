#!/bin/bash
# The hooks with real libraries: NVIDIA's driver 535, rdma-core, libfabric, UCX and ROCm 5.2 of Debian's mirror, unpacked
# into a stand-in node, injected into a Debian and into a busybox container, under rt, crun, runc and podman; and into
# trees of other releases and layouts, whose own loaders and ldconfig say what they find. usage: integration/hooks.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
whole=yes # expectations span lines
rt=$(realpath "${1:-build/rt}")
bin=$(dirname "$rt")
keep=$PWD/integration/work
mkdir -p "$keep"
work=$(mktemp -d)
uid=23456
chmod 755 "$work"

if [ "$(id -u)" != 0 ] || ! command -v dpkg mmdebstrap >/dev/null; then
	skip_all "no root, dpkg or mmdebstrap"
fi
# A cgroup2 view of our own: crun refuses hybrid hosts.
if [ "${1:-}" != inside ] && [ -z "${RT_HOOKS_INSIDE:-}" ]; then
	RT_HOOKS_INSIDE=1 exec unshare --mount --propagation private "$0" "$rt"
fi
stat -fc %T /sys/fs/cgroup | grep -q cgroup2fs || mount -t cgroup2 cgroup2 /sys/fs/cgroup
clean() { # what is bound must not be removed with the rest
	local dir
	for dir in "$work/node" "$work/root" "$work"/trees/*; do
		! mountpoint -q "$dir" || umount -l "$dir" || return
	done
	rm -rf "$work"
}
trap clean EXIT

# Packages, once.
mirror=http://deb.debian.org/debian
node=$keep/node
fetch() { # TREE MIRROR SUITE COMPONENT PACKAGE...
	local tree=$1 mirror=$2 suite=$3 component=$4 package file
	shift 4
	local index=$keep/Packages-$suite-$component
	[ -s "$index" ] || curl -sf "$mirror/dists/$suite/$component/binary-amd64/Packages.xz" | xz -d >"$index" || return 1
	for package in "$@"; do
		file=$(awk -v RS= -v p="$package" '$2 == p' "$index" | awk '/^Filename:/ {print $2; exit}')
		[ -n "$file" ] && curl -sf -o "$keep/package.deb" "$mirror/$file" &&
			dpkg-deb --fsys-tarfile "$keep/package.deb" | tar -xC "$tree" --keep-directory-symlink || return 1
	done
}
packages=(libibverbs1 ibverbs-providers librdmacm1 libnl-3-200 libnl-route-3-200 libfabric1 libfabric-bin libpsm2-2
	libpsm-infinipath1 libuuid1 libatomic1 libnuma1 libucx0 ucx-utils # what comes below is ROCm's, but for LLVM
	libhsa-runtime64-1 libhsakmt1 libelf1 zlib1g libdrm-amdgpu1 libdrm2 libgcc-s1 libstdc++6 librocm-smi64-1 libamdhip64-5
	libamd-comgr2)
if [ "$(cat "$node/ready" 2>/dev/null)" != "${packages[*]}" ]; then
	rm -rf "$node"
	mkdir "$node"
	fetch "$node" $mirror bookworm non-free libcuda1 libnvidia-ml1 nvidia-smi libnvidia-ptxjitcompiler1 &&
		fetch "$node" $mirror bookworm main "${packages[@]}" &&
		ln -s ../libpsm1/libpsm_infinipath.so.1.16 "$node/usr/lib/x86_64-linux-gnu/libpsm_infinipath.so.1" && # as its postinst
		echo "${packages[*]}" >"$node/ready"
fi
if [ ! -s "$node/ready" ]; then
	skip_all "no mirror to get drivers from"
fi
if ! debian=$(integration/debian); then
	skip_all "no Debian root"
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
hca() { # NAME DRIVER PCI-ADDRESS UVERBS
	local device=$work/node/sys/devices/pci0000:3a/$3 entry
	mkdir -p "$device/infiniband_verbs/$4" "$device/infiniband/$1" "$work"/node/sys/class/infiniband{,_verbs} \
		"$work/node/sys/bus/pci/drivers/$2"
	echo "$1" >"$device/infiniband_verbs/$4/ibdev"
	ln -sfn "../../../bus/pci/drivers/$2" "$device/driver"
	for entry in "infiniband_verbs/$4" "infiniband/$1"; do
		ln -sfn ../.. "$device/$entry/device"
		ln -sfn "../../devices/pci0000:3a/$3/$entry" "$work/node/sys/class/$entry"
	done
}
hca mlx5_0 mlx5_core 0000:3b:00.0 uverbs0
hca hfi1_0 hfi1 0000:3c:00.0 uverbs1
kfd=$work/node/sys/class/kfd/kfd/topology/nodes/1
mkdir -p "$kfd" "$work/node/dev/dri"
echo 4711 >"$kfd/gpu_id"
printf 'location_id 49408\ndomain 0\ndrm_render_minor 128\nunique_id 5\n' >"$kfd/properties"
for name in hfi1_0 infiniband/uverbs1 kfd dri/renderD128; do
	[ -e "$work/node/dev/$name" ] || mknod -m 666 "$work/node/dev/$name" c 1 3
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
my %symbols = (cuda => "cuInit", ibverbs => "ibv_get_device_list", fabric => "fi_getinfo", ucp => "ucp_init_version",
	hsa => "hsa_init", smi => "rsmi_init");
my ($name) = map { $symbols{$_} } grep { $ARGV[0] =~ $_ } keys %symbols;
my $symbol = DynaLoader::dl_find_symbol(DynaLoader::dl_load_file($ARGV[0]), $name);
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
		import json, os, sys
		path, root, hooks, work, *args = sys.argv[1:]
		config = json.load(open(path))
		config["ociVersion"] = "1.0.2"  # as old runtimes know it
		config["root"]["path"] = root
		config["process"]["args"] = args
		config["process"]["env"] += os.environ.get("ASK", "NVIDIA_VISIBLE_DEVICES=all RT_RDMA_DEVICES=all").split()
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
check rt/root 0 "$wanted" "$rt" --root "$work/state/rt" run "$work/debian"
mkdir "$work/user"
cp -r "$work/plain" "$work/user/plain"
chown -R $uid:$uid "$work/user"
check rt/user 0 "$wanted" user "$rt" run --hooks-dir "$work/hooks.d" "$work/user/plain"
[ ! -x "$(command -v runc)" ] || check runc 0 "$wanted" runc --root "$work/state/runc" run -b "$work/debian" hooks-runc
[ ! -x "$(command -v crun)" ] || check crun 0 "$wanted" crun --root "$work/state/crun" --cgroup-manager=disabled run -b "$work/debian" hooks-crun
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
		check podman/$runtime 0 "$wanted" env CONTAINERS_CONF="$work/containers.conf" podman --root "$work/podman" \
			--runroot "$work/podman-run" --cgroup-manager cgroupfs --runtime $runtime --hooks-dir "$work/hooks.d" run --rm \
			--cgroups=disabled --network=none --ulimit host -v "$work/open.pl:/tmp/open.pl:ro" \
			-e NVIDIA_VISIBLE_DEVICES=all -e RT_RDMA_DEVICES=all --rootfs "$work/root:O" sh -c "$inside"
	done
else
	skip podman "not installed"
fi
# The sets that a container asks for, or that a device needs: they load, and the programs of their packages use them.
more() { # NAME VARIABLES EXPECTED COMMAND
	ASK=$2 bundle "$1" "$work/root" yes sh -c "$4"
	check "$1" 0 "$3" "$rt" --log-level warning --root "$work/state/rt" run -v "$work/node/usr/bin:/mnt:ro" "$work/$1"
}
more libfabric "RT_RDMA_DEVICES=hfi1_0" "libfabric.so.1 .libc6,x86-64. => /run/rt/rdma.*opened libpsm2.so.2.*symbol found.*psm2:[[:space:]]*version: 117.*/dev/hfi1_0" \
	"ldconfig -p | grep libfabric; perl /tmp/open.pl libfabric.so.1 libpsm2.so.2; /mnt/fi_info -l; ls /dev/hfi1_0"
check libfabric/says 0 '"fabric: psm2"' "$bin/rt-hook-rdma" --dry-run --bundle "$work/libfabric" --root "$work/node"
more ucx "RT_RDMA_DEVICES=mlx5_0 RT_RDMA_LIBRARIES=verbs,ucx" "opened libucp.so.0.*symbol found.*Transport: cma" \
	"perl /tmp/open.pl libucp.so.0 libuct.so.0 && /mnt/ucx_info -d | grep Transport"
more rocm "AMD_VISIBLE_DEVICES=all RT_AMD_LIBRARIES=hsa,smi" "opened libhsa-runtime64.so.1.*opened librocm_smi64.so.*symbol found.*/dev/kfd" \
	"perl /tmp/open.pl libhsa-runtime64.so.1 \$(cd /run/rt/gpu/lib; echo librocm_smi64.so.*); ls /dev/kfd"
ASK="AMD_VISIBLE_DEVICES=all RT_AMD_LIBRARIES=hip" bundle hip "$work/root" no true
check rocm/incomplete 0 'hip is not added: neither container nor host has libLLVM-15.so.1, which libamd_comgr.so.2 needs' \
	"$bin/rt-hook-gpu" --dry-run --bundle "$work/hip" --root "$work/node"
check nothing-in-the-image 0 "" bash -c "find '$debian' -xdev | sort | diff '$work/before' -"

# A container without a loader: devices come, libraries do no harm.
if busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1; then
	mkdir -p "$work"/image/{bin,dev,etc,proc,run,sys,tmp}
	cp "$busybox" "$work/image/bin/sh"
	bundle busybox "$work/image" yes sh -c 'ls /dev/nvidia0 /run/rt/gpu/lib'
	check busybox 0 "/dev/nvidia0.*libcuda.so.1" "$rt" --root "$work/state/rt" run "$work/busybox"
fi

# ldconfig of the container agrees with what was written: same names, same order of a name.
check ldconfig 0 "same" "$rt" --root "$work/state/rt" run -v "$work/scratch:/mnt" "$work/debian" -- sh -c \
	'ldconfig -p | grep "=>" | grep -v /run/rt >/mnt/ours; ldconfig -C /mnt/cache && ldconfig -C /mnt/cache -p | grep "=>" >/mnt/theirs; grep -c x86-64 /mnt/ours && diff /mnt/ours /mnt/theirs && echo same'
check dry-run 0 '"name": "libcuda.so.1"' "$bin/rt-hook-gpu" --dry-run --bundle "$work/debian" --root "$work/node"
check cdi 0 '"kind": "nvidia.com/gpu"' "$bin/rt-hook-gpu" cdi --root "$work/node"

# Other releases and layouts. Their own ldconfig must list what their own packages have as before, and ours first; their
# own loader must open the libraries; what needs a newer C library is refused.
tree() { # NAME MIRROR SUITE
	local tree=$keep/trees/$1 dir
	[ ! -e "$tree/ready" ] || return 0
	rm -rf "$tree"
	mkdir -p "$tree"/usr/{bin,sbin,lib,lib64} "$tree"/{dev,etc,proc,run,sys,tmp,mnt,var/cache/ldconfig}
	for dir in bin sbin lib lib64; do ln -s usr/$dir "$tree/$dir"; done
	fetch "$tree" "$2" "$3" main libc6 libc-bin libcrypt1 perl-base dash &&
		ln -sf dash "$tree/bin/sh" && touch "$tree/tmp/open.pl" && chroot "$tree" /sbin/ldconfig && touch "$tree/ready"
}
# As RHEL has it: nothing in directories that Debian's loader knows by itself.
lib64() {
	local tree=$keep/trees/lib64 from=$keep/trees/jammy
	[ ! -e "$tree/ready" ] || return 0
	rm -rf "$tree"
	cp -a "$from" "$tree" && rm "$tree/ready" &&
		find "$tree/usr/lib/x86_64-linux-gnu" -maxdepth 1 -name '*.so*' -exec mv -t "$tree/usr/lib64" {} + &&
		rm -rf "$tree"/etc/ld.so.conf.d/* && echo /usr/lib64 >"$tree/etc/ld.so.conf.d/lib64.conf" &&
		chroot "$tree" /sbin/ldconfig.real && touch "$tree/ready" # ldconfig is a script there, whose shell needs it
}
ubuntu=http://archive.ubuntu.com/ubuntu
same_lists() { # what ldconfig says, less what was added
	diff <(grep '=>' "$1/ours" | grep -v /run/rt) <(grep '=>' "$1/theirs") && grep -c /run/rt "$1/ours"
}
asked='ldconfig -p >/mnt/ours; ldconfig -X -C /mnt/cache; ldconfig -C /mnt/cache -p >/mnt/theirs; perl /tmp/open.pl libcuda.so.1 libcuda.so libnvidia-ml.so.1'
loader() { # NAME VERBS
	local name=$1 tree=$work/trees/$1
	mkdir -p "$tree" "$work/lists/$name"
	mount --bind "$keep/trees/$name" "$tree"
	bundle "loader-$name" "$tree" yes sh -c "$asked"
	check "loader/$name" 0 "opened libcuda.so.1.*opened libnvidia-ml.so.1.*symbol found" \
		"$rt" --root "$work/state/rt" run -v "$work/lists/$name:/mnt" "$work/loader-$name"
	check "loader/$name/ldconfig" 0 '^[1-9][0-9]*.$' same_lists "$work/lists/$name"
	check "loader/$name/verbs" 0 "$2" "$bin/rt-hook-rdma" --dry-run --bundle "$work/loader-$name" --root "$work/node"
}
fits='"fabric: verbs, psm2"'
refused='"fabric: tcp".*needs GLIBC_2.3[0-9] of libc.so.6, and the container.s has GLIBC_2.3[01]'
for each in "bullseye $mirror $refused" "trixie $mirror $fits" "focal $ubuntu $refused" "jammy $ubuntu $fits" "noble $ubuntu $fits"; do
	read -r name from verbs <<<"$each"
	if tree $name $from $name; then loader $name "$verbs"; else skip "loader/$name" "$from is not to be reached"; fi
done
if [ -e "$keep/trees/jammy/ready" ] && lib64; then loader lib64 "$fits"; else skip loader/lib64 "no tree"; fi

# As Alpine has it: Debian's musl, and a driver that is linked to it.
musl=$keep/trees/musl
if command -v musl-gcc >/dev/null && { [ -e "$musl/lib/ld-musl-x86_64.so.1" ] ||
	{ mkdir -p "$musl"/{dev,etc,proc,run,sys,tmp} && fetch "$musl" $mirror bookworm main musl; }; }; then
	mkdir -p "$work/musl-node/usr/lib" "$work/trees/musl"
	cp -r "$work/node/proc" "$work/node/dev" "$work/musl-node/"
	for name in libcuda libnvidia-ml; do
		echo "int ${name#lib}_here(void) { return 7; }" | sed 's/-/_/' |
			musl-gcc -shared -fPIC -x c - -o "$work/musl-node/usr/lib/$name.so.$version" -Wl,-soname,$name.so.1
	done
	musl-gcc -x c - -o "$musl/open" <<-'END'
		#include <dlfcn.h>
		#include <stdio.h>
		int main(int count, char **names) {
			for (int n = 1; n < count; n++) {
				void *library = dlopen(names[n], RTLD_NOW);
				puts(library ? "opened" : dlerror());
			}
			int (*here)(void) = (int (*)(void))dlsym(dlopen(names[1], RTLD_NOW), "cuda_here");
			printf("%d\n", here ? here() : 0);
		}
	END
	mount --bind "$musl" "$work/trees/musl"
	ASK=NVIDIA_VISIBLE_DEVICES=all bundle loader-musl "$work/trees/musl" yes /open libcuda.so.1 libnvidia-ml.so.1
	sed -i "s|$work/node|$work/musl-node|g" "$work/loader-musl/config.json"
	check loader/musl 0 "^opened.opened.7.$" "$rt" --root "$work/state/rt" run "$work/loader-musl"
	bundle loader-musl-plain "$work/trees/musl" no /open libcuda.so.1
	check loader/musl/without 0 "Error loading shared library libcuda.so.1.*0.$" "$rt" --root "$work/state/rt" run "$work/loader-musl-plain"
else
	skip loader/musl "no musl-gcc, or no package"
fi

# What that describes, an engine gives to a container by name, and so does rt.
made=
[ -d /run/cdi ] || made=yes
mkdir -p /run/cdi
mount -t tmpfs cdi /run/cdi
"$bin/rt-hook-gpu" cdi --root "$work/node" >/run/cdi/nvidia.json
asked="ls /dev/nvidia0 /dev/nvidiactl; ldconfig -p | grep libcuda; perl /tmp/open.pl libcuda.so.1"
given="/dev/nvidia0.*/dev/nvidiactl.*libcuda.so.1 .libc6,x86-64.*symbol found"
check device/root 0 "$given" "$rt" --root "$work/state/rt" run --device nvidia.com/gpu=0 "$work/plain" -- sh -c "$asked"
check device/user 0 "$given" user "$rt" run --device nvidia.com/gpu=all "$work/user/plain" -- sh -c "$asked"
check device/unknown 1 "nvidia.com/gpu=7" user "$rt" run --device nvidia.com/gpu=7 "$work/user/plain" -- true
if command -v podman >/dev/null; then
	for runtime in rt crun; do
		check cdi/podman/$runtime 0 "$given" env CONTAINERS_CONF="$work/containers.conf" podman --root "$work/podman" \
			--runroot "$work/podman-run" --cgroup-manager cgroupfs --runtime $runtime run --rm --cgroups=disabled \
			--network=none --ulimit host -v "$work/open.pl:/tmp/open.pl:ro" --device nvidia.com/gpu=0 --rootfs "$work/root:O" sh -c "$asked"
	done
fi
umount /run/cdi
[ -z "$made" ] || rmdir /run/cdi

done_testing
