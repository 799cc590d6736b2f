#!/bin/bash
# The host's MPI in containers (rt run --mpi host), with Open MPI and MPICH of Debian 12 and 13: each as the image of a
# program that was built in it, and as the host. A host is a container of its root, in which mpirun of that root starts
# rt. The program says by MPI_Get_library_version which library runs. usage: integration/mpi.sh RT
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
whole=yes # expectations span lines
rt=$(realpath "${1:-build/rt}")
bin=$(dirname "$rt")
uid=23457

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap python3 >/dev/null; then
	skip_all "no root, mmdebstrap or python3"
fi
if ldd "$rt" 2>/dev/null | grep -q '=>'; then
	skip_all "$rt is not static: it would not run in another root"
fi
# What is bound here is unbound with this namespace.
if [ -z "${RT_MPI_INSIDE:-}" ]; then
	RT_MPI_INSIDE=1 exec unshare --mount --propagation private "$0" "$rt"
fi
work=$(mktemp -d)
clean() { # what is bound must not be removed with the rest
	local dir
	for dir in "$work"/images/*; do ! mountpoint -q "$dir" || umount "$dir" || return; done
	rm -rf "$work"
}
trap clean EXIT
chmod 755 "$work"
mkdir -p "$work"/{bin,images,bundles,programs,hosts,state}
cp "$rt" "$bin/rt-hook-mpi" "$work/bin/"
rt=$work/bin/rt

# The program, with all that changes between releases of an ABI: handles as addresses, and a function of MPI 4.
cat >"$work/programs/hello.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
	int rank, size, length, sum = 0;
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Get_library_version(version, &length);
	for (char *c = version; *c; c++)
		if (strchr("\n\t", *c)) *c = ' ';
	version[64] = 0;
#ifdef NEW
	MPI_Info info;
	MPI_Info_create_env(argc, argv, &info);
#endif
	printf("rank %d of %d sum %d: %s\n", rank, size, sum, version);
	MPI_Finalize();
	return 0;
}
C

# Each rank sends to the next one.
cat >"$work/programs/ring.c" <<'C'
#include "ring.h"
#include <stdio.h>
int main(int argc, char **argv) {
	int rank, size, wrong;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	wrong = ring(rank, size);
	printf("rank %d of %d: %d wrong bytes\n", rank, size, wrong);
	MPI_Finalize();
	return wrong != 0;
}
C

declare -A roots=()
image() { # NAME: a root with an MPI, and in it the program
	local name=$1 root flags
	root=$(integration/debian "mpi-$name") || return
	for flags in hello: new:-DNEW; do
		cp "$work/programs/hello.c" "$root/tmp/hello.c"
		chroot "$root" mpicc ${flags#*:} -o /tmp/hello /tmp/hello.c 2>/dev/null &&
			mv "$root/tmp/hello" "$work/programs/$name-${flags%:*}"
	done
	cp integration/ring.h "$root/tmp/"
	cp "$work/programs/ring.c" "$root/tmp/hello.c"
	chroot "$root" mpicc -o /tmp/hello /tmp/hello.c 2>/dev/null && mv "$root/tmp/hello" "$work/programs/$name-ring"
	rm -f "$root"/tmp/{hello.c,ring.h}
	mkdir -p "$root/program" "$root/rt"
	mkdir "$work/images/$name"
	# Another file system than that of the host of this name.
	mount -t overlay -o "ro,lowerdir=$root:$work/programs" overlay "$work/images/$name"
	roots[$name]=$root
	[ -x "$work/programs/$name-hello" ]
}
bundles() { # the configs of all images, as rt finds them on a host, and of all hosts
	local name
	for name in "${names[@]}"; do echo "$name ${roots[$name]}"; done | python3 -c "$(
		cat <<'P'
import json, os, sys
work, roots = sys.argv[1], dict(line.split() for line in sys.stdin)
def bind(source, destination, *options):
    return dict(destination=destination, source=source, type="bind", options=["rbind", *options])
def config(path, root, mounts, namespaces, args, annotations={}):
    os.makedirs(path, exist_ok=True)
    json.dump(dict(ociVersion="1.1.0", root=dict(path=root, readonly=True), mounts=mounts,
                   process=dict(cwd="/", user=dict(uid=0, gid=0), args=args, noNewPrivileges=True,
                                env=["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "UCX_LOG_LEVEL=fatal",
                                     "HWLOC_HIDE_ERRORS=2",
                                     # A program that no mpirun starts would start Open MPI's daemon, which is the host's.
                                     "OMPI_MCA_ess_singleton_isolated=1"]),
                   annotations={"rt.user": "caller", **annotations},
                   linux=dict(namespaces=[dict(type=t) for t in namespaces])), open(path + "/config.json", "w"))
for name, root in roots.items():
    # A container of a job: the node's processes, network and shared memory.
    inside = [bind(p, p) for p in ("/proc", "/dev", "/sys", "/tmp")] + [bind("/rt/programs", "/program", "ro")]
    config(f"{work}/bundles/{name}", f"/rt/images/{name}", inside,
           ["mount", "user"], ["/program/" + name + "-hello"])
    config(f"{work}/bundles/{name}-asks", f"/rt/images/{name}", inside,
           ["mount", "user"], ["/program/" + name + "-hello"], {"rt.mpi": "host"})
    config(f"{work}/hosts/{name}", root, [
        dict(destination="/proc", source="proc", type="proc"),
        dict(destination="/dev", source="tmpfs", type="tmpfs", options=["mode=755"]),
        dict(destination="/dev/pts", source="devpts", type="devpts", options=["newinstance", "ptmxmode=0666"]),
        dict(destination="/dev/shm", source="shm", type="tmpfs", options=["mode=1777"]),
        dict(destination="/tmp", source="tmpfs", type="tmpfs", options=["mode=1777"]),
        dict(destination="/run", source="tmpfs", type="tmpfs", options=["mode=755"]),
        bind("/sys", "/sys", "ro"), bind(work, "/rt", "ro")], ["mount", "pid", "ipc", "uts", "user"], ["sh"])
P
	)" "$work"
}
# What a rank is on the host: rt with the variables of the launcher. PMI_FD is the socket of MPICH's launcher.
cat >"$work/bin/rank" <<'SH'
#!/bin/bash
# usage: rank BUNDLE [FLAG...] -- [PROGRAM...]
bundle=$1
shift
# Ranks in containers of their own have other user namespaces, across which UCX 1.13 cannot share memory by /proc/PID/fd.
flags=(-e UCX_POSIX_USE_PROC_LINK=n -e 'PMI*' -e 'OMPI_*' -e 'OPAL_*' -e 'PRTE_*' -e 'MPIR_*' -e 'HYD*')
[ -z "${PMI_FD:-}" ] || flags+=(--preserve-fds $((PMI_FD - 2)))
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
exec /rt/bin/rt --root /tmp/state run "${flags[@]}" -b "/rt/bundles/$bundle" "c-$$" "$@"
SH
chmod 755 "$work/bin/rank"
cat >"$work/bin/direct" <<'SH'
#!/bin/bash
# usage: direct BUNDLE [-- PROGRAM...]
bundle=$1
shift
exec /rt/bin/rt --root /tmp/state run -e 'PMI*' -e 'OMPI_*' -e 'OPAL_*' -e 'PRTE_*' -e 'HYD*' \
	${PMI_FD:+--preserve-fds $((PMI_FD - 2))} -v /dev/shm:/dev/shm "/rt/bundles/$bundle" "$@"
SH
chmod 755 "$work/bin/direct"
user() { setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" "$@"; }
on() { # HOST COMMAND...: a command on that host, as a plain user
	local host=$1
	shift
	user timeout 120 "$rt" --root "$work/state" run -b "$work/hosts/$host" "h-$host-$RANDOM" -- "$@"
}
chown $uid:$uid "$work/state"

declare -A versions=([bookworm-openmpi]="Open MPI v4.1.4" [trixie-openmpi]="Open MPI v5.0.7"
	[bookworm-mpich]="MPICH Version:[ ]*4.0.2" [trixie-mpich]="MPICH Version:[ ]*4.2.1")
names=()
for mpi in openmpi mpich; do
	for suite in bookworm trixie; do
		if image $suite-$mpi; then names+=($suite-$mpi); else skip "$suite-$mpi" "no root of $suite with $mpi"; fi
	done
done
[ ${#names[@]} != 0 ] || { done_testing; exit; }
bundles

launch() { # HOST: how two ranks are started there
	case $1 in
	bookworm-openmpi) echo "mpirun --oversubscribe --mca btl self,vader --mca btl_vader_single_copy_mechanism none -n 2" ;;
	trixie-openmpi) echo "mpirun --oversubscribe --mca btl self,sm -n 2" ;;
	*) echo "mpirun -n 2" ;;
	esac
}
launch_plain() { # HOST: the same as a user types it
	case $1 in *-openmpi) echo "mpirun --oversubscribe -n 2" ;; *) echo "mpirun -n 2" ;; esac
}
two() { # LIBRARY
	echo "rank 0 of 2 sum 1: $1.*rank 1 of 2 sum 1: $1|rank 1 of 2 sum 1: $1.*rank 0 of 2 sum 1: $1"
}
for host in "${names[@]}"; do
	check "host/$host" 0 "$(two "${versions[$host]}")" on $host $(launch $host) /rt/programs/$host-hello
	for image in "${names[@]}"; do
		name=$image-on-$host
		case $name in
		*-openmpi-on-*-mpich | *-mpich-on-*-openmpi)
			check "abi/$name" 1 "has (Open MPI|MPICH) .lib.*, and the host has (Open MPI|MPICH) .lib.*: another binary interface" \
				on $host /rt/bin/rank $image --mpi host ;;
		bookworm-*-on-trixie-*)
			check "glibc/$name" 1 "needs GLIBC_2.3[0-9] of libc.so.6, and the container's has GLIBC_2.36" \
				on $host /rt/bin/rank $image --mpi host ;;
		*)
			check "alone/$name" 0 "rank 0 of 1 sum 0: ${versions[$host]}" on $host /rt/bin/rank $image --mpi host
			check "two/$name" 0 "$(two "${versions[$host]}")" on $host $(launch $host) /rt/bin/rank $image --mpi host ;;
		esac
	done
done


# Ranks of each launcher share a container.
for image in "${names[@]}"; do
	check "shared/$image" 0 "^(mnt:[^ ]*).\1.$" \
		on $image $(launch_plain $image) /rt/bin/direct $image -- sh -c 'readlink /proc/self/ns/mnt; sleep 1'
done

# With the image's own library and messages of 4 MB. Ranks in one container read each other's memory, and no variable keeps
# them from it. In containers of their own they may not, by none of the ways of Open MPI and UCX, and none hangs.
for image in "${names[@]}"; do
	for by in '' "OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any"; do
		case $image:$by in *-mpich:?*) continue ;; esac
		for share in auto never; do
			check "large/$image${by:+-ucx}-$share" 0 "rank [01] of 2: 0 wrong bytes.*rank [01] of 2: 0 wrong bytes" \
				on $image env RT_SHARE=$share $by $(launch_plain $image) /rt/bin/direct $image -- /program/$image-ring
		done
	done
done

# Who asks, and what is looked at.
host=bookworm-openmpi image=trixie-openmpi
if [[ " ${names[*]} " == *" $host "* && " ${names[*]} " == *" $image "* ]]; then
	hosts="rank 0 of 1 sum 0: ${versions[$host]}" own="rank 0 of 1 sum 0: ${versions[$image]}"
	run() { on $host /rt/bin/rank "$@"; } # BUNDLE [FLAG...] -- [PROGRAM...]
	check asked/nobody 0 "$own" run $image
	check asked/variable 0 "$hosts" run $image -e RT_MPI=host
	check asked/environment 0 "$hosts" on $host env RT_MPI=host /rt/bin/rank $image
	check asked/annotation 0 "$hosts" run $image-asks
	check asked/image-after-all 0 "$own" run $image-asks --mpi image
	check asked/nonsense 1 "--mpi or RT_MPI: MPI .hots. is neither host nor image" run $image --mpi hots
	check symbols/function 1 "/program/$image-new needs MPI_Info_create_env, which the host's libmpi.so.40.30.4 .the image's is libmpi.so.40.40.7. lacks" \
		run $image --mpi host -- /program/$image-new
	check symbols/script 1 "lacks MPI_[A-Za-z_]*; /usr/bin/sh does not show whether that matters.*RT_MPI_PROGRAMS=FILE" \
		run $image --mpi host -- sh -c /program/$image-hello
	check symbols/named 0 "$hosts" run $image --mpi host -e RT_MPI_PROGRAMS=/program/$image-hello -- sh -c /program/$image-hello
	check symbols/named-new 1 "needs MPI_Info_create_env" \
		run $image --mpi host -e RT_MPI_PROGRAMS=/program/$image-hello:/program/$image-new -- sh -c /program/$image-hello
	# A superset: nothing needs to be known of the program.
	check symbols/same-release 0 "$hosts" run $host --mpi host -- sh -c /program/$host-hello
	check files/settings 0 "btl_base_warn_component_unused=0.*mca_ess_pmi.so" run $image --mpi host -e \
		RT_MPI_PROGRAMS=/program/$image-hello -- sh -c 'cat /etc/openmpi/openmpi-mca-params.conf; ls /usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3'
	# By the image's own path, which is not that of the loader.
	check files/path 0 "$hosts" run $image --mpi host -e LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu
fi
host=bookworm-openmpi image=bookworm-mpich
if [[ " ${names[*]} " == *" $host "* && " ${names[*]} " == *" $image "* ]]; then
	check place/library 0 "rank 0 of 1 sum 0: ${versions[$image]}" on $host env \
		RT_MPI_LIBRARY=/rt/images/$image/usr/lib/x86_64-linux-gnu /rt/bin/rank $image --mpi host
	check place/module 0 "rank 0 of 1 sum 0: ${versions[$image]}" on $host env \
		LD_LIBRARY_PATH=/rt/images/$image/usr/lib/x86_64-linux-gnu /rt/bin/rank $image --mpi host
	# With its own parts, which are beside it, and an older release of which the host's loader finds.
	check place/newer 1 "needs GLIBC_2.38 of libc.so.6, and the container's has GLIBC_2.36" on $host env \
		RT_MPI_LIBRARY=/rt/images/trixie-openmpi/usr/lib/x86_64-linux-gnu /rt/bin/rank $host --mpi host
	check place/openmpi 0 "rank 0 of 1 sum 0: ${versions[trixie-openmpi]}" on $host env \
		RT_MPI_LIBRARY=/rt/images/trixie-openmpi/usr/lib/x86_64-linux-gnu /rt/bin/rank trixie-openmpi --mpi host
	check place/nothing 1 "RT_MPI_LIBRARY=/usr/share: no MPI library of this machine is there" on $host env \
		RT_MPI_LIBRARY=/usr/share /rt/bin/rank $image --mpi host
fi

done_testing
