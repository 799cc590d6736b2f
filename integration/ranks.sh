#!/bin/bash
# The ranks of a node in one container (rt run --share), by the launchers of this machine: Open MPI, MPICH and torchrun of Debian.
# The image is the host's own userland. LOOPS=200 ends so many runs of 16 ranks at random times, 12 by default; SEED repeats them.
# usage: integration/ranks.sh RT   (root: installs the launchers, becomes a user without a passwd entry)
set -uo pipefail
cd "$(dirname "$0")/.."
. integration/tap
whole=yes # expectations span lines
rt=$(realpath "${1:-build/rt}")
uid=23458 loops=${LOOPS:-12} seed=${SEED:-$RANDOM}
RANDOM=$seed

if [ "$(id -u)" != 0 ]; then
	skip_all "only root can become a user without a passwd entry"
fi
integration/packages gcc libc6-dev openmpi-bin libopenmpi-dev mpich libmpich-dev python3-torch iproute2 strace squashfs-tools busybox-static
work=$(mktemp -d)
clean() { # the namespaces of the nodes must not be removed with the rest
	umount "$work"/node[12].* 2>/dev/null
	rm -rf "$work"
}
trap clean EXIT
chmod 755 "$work"
mkdir -p "$work"/{home,state}
install -m 755 "$rt" "${rt%/*}/rt-image" "$work/"
rt=$work/rt
chown $uid:$uid "$work"/{home,state}
user() { (cd "$work/home" && exec setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" HOME="$work/home" XDG_RUNTIME_DIR= "$@"); }
run() { user timeout 60 "$@"; }
run "$rt" spec --host -b "$work/home/app"
# As of `rt pull`: the node's processes and shared memory.
app=("$rt" --root "$work/state" run --home --pid host --ipc host --init=false -w "$work/home" ./app)

# Each rank sends to the next one, and says in which container it is, and which variables keep its libraries from reading another
# rank's memory.
cat >"$work/ring.c" <<'C'
#define _GNU_SOURCE
#include "ring.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
	int rank, size, wrong, kept = 0;
	char own[64] = {0}, all[16][64];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	wrong = ring(rank, size);
	for (char **v = environ; *v; v++)
		kept += strstr(*v, "single_copy") || !strncmp(*v, "UCX_", 4) || strstr(*v, "CMA");
	if (readlink("/proc/self/ns/mnt", own, 63) < 0) return 2;
	MPI_Gather(own, 64, MPI_CHAR, all, 64, MPI_CHAR, 0, MPI_COMM_WORLD);
	int places = 0;
	for (int i = 0, j; rank == 0 && i < size; i++) {
		for (j = 0; j < i && strcmp(all[i], all[j]); j++);
		places += j == i;
	}
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) printf("%d ranks in %d containers, %d wrong bytes, %d variables\n", size, places, wrong, kept);
	MPI_Finalize();
	return wrong != 0;
}
C

processes() { ps -o pid= -U $uid 2>/dev/null; }
nothing_left() { # waits for processes that end by themselves
	local n
	for n in {1..100}; do [ -n "$(processes)" ] || break; sleep 0.1; done
	[ -z "$(processes)" ] || { ps -f -U $uid; return 1; }
	[ -z "$(run "$rt" --root "$work/state" list -q)" ] || { run "$rt" --root "$work/state" list; return 1; }
	# Images that are files are mounted on a directory of the store, which stays.
	[ -z "$(ls -AI .mounted "$work/state")" ] || { ls -lA "$work/state"; return 1; }
	! grep "$work" /proc/self/mountinfo
}
large() { grep -cE 'process_vm_.*= [0-9]{6,}$' "$work/home/trace"; } # copies from one rank to another
by_cma() { # COMMAND...: how many such copies there are
	run strace -f -qq -e trace=process_vm_readv,process_vm_writev -o trace "$@" >/dev/null 2>&1
	large
}

places='readlink /proc/self/ns/mnt; sleep 1'
counted() { sort | uniq -c | awk '{ print $1 }' | xargs; } # how many ranks are in each container
mkdir -p "$work"/image/{bin,proc,dev,sys,tmp,etc}
cp "$(command -v busybox)" "$work/image/bin/busybox"
for name in sh readlink sleep; do ln -s busybox "$work/image/bin/$name"; done
mksquashfs "$work/image" "$work/home/app.sqsh" -noappend -quiet >/dev/null

for mpi in openmpi mpich; do
	mpirun=mpirun.$mpi mpicc=mpicc.$mpi
	if ! command -v $mpirun $mpicc >/dev/null || ! $mpicc -Iintegration -o "$work/home/ring-$mpi" "$work/ring.c"; then
		skip $mpi "not installed"
		continue
	fi
	start=("$mpirun")
	[ $mpi != openmpi ] || start+=(--oversubscribe)
	ring=("${app[@]}" -- ./ring-$mpi)
	check $mpi/one-container 0 "4 ranks in 1 containers, 0 wrong bytes, 0 variables" run "${start[@]}" -n 4 "${ring[@]}"
	check $mpi/none-left 0 "^.$" nothing_left
	check $mpi/by-a-script 0 "4 ranks in 1 containers, 0 wrong bytes" \
		run "${start[@]}" -n 4 sh -c '"$@"; exit $?' - "${ring[@]}"
	# One rank's memory is read by another as often as without a container.
	check $mpi/memory-is-read 0 "^([1-9][0-9]*) \1.$" \
		echo "$(by_cma "${start[@]}" -n 2 "${ring[@]}") $(by_cma "${start[@]}" -n 2 ./ring-$mpi)"
	in_turns() { # each has ended before the next one comes
		run "${start[@]}" -n 3 sh -c 'sleep ${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@"' - "${app[@]}" -- readlink /proc/self/ns/mnt
	}
	check $mpi/in-turns 0 "^3.$" echo "$(in_turns | counted)"
	two() {
		run "${start[@]}" -n 2 "${app[@]}" -- sh -c "$places" &
		run "${start[@]}" -n 2 "${app[@]}" -- sh -c "$places"
		wait
	}
	check $mpi/never 0 "^1 1 1 1.$" \
		echo "$(run env RT_SHARE=never "${start[@]}" -n 4 "${app[@]}" -- sh -c "$places" | counted)"
	check $mpi/image-file 0 "^4.$" \
		echo "$(run "${start[@]}" -n 4 "${app[@]:0:${#app[@]}-1}" --extract ./app.sqsh sh -c "$places" | counted)"
	check $mpi/two-at-once 0 "^2 2.$" echo "$(two | counted)"
	if [ $mpi = mpich ]; then # Open MPI's mpirun does not start in a rank
		check $mpi/nested 0 "^2 2.$" echo "$(run mpirun.mpich -n 2 mpirun.mpich -n 2 "${app[@]}" -- sh -c "$places" | counted)"
	fi
	twice() { # one call after the other, and at once
		run "${start[@]}" -n 2 sh -c '"$@" & "$@"; wait' - "${app[@]}" -- sh -c "$places"
	}
	check $mpi/twice-in-a-rank 0 "^4.$" echo "$(twice | counted)"
	inside() { # by the run's name and a rank
		run "${start[@]}" -n 2 "${app[@]}" -- sleep 3 &
		local id n
		for n in {1..100}; do id=$(run "$rt" --root "$work/state" list -q); [ -n "$id" ] && break; sleep 0.05; done
		sleep 0.3
		run "$rt" --root "$work/state" exec "${id%-*}.1" sh -c 'echo "rank $OMPI_COMM_WORLD_RANK$PMI_RANK"'
		wait
	}
	check $mpi/exec 0 "rank 1" inside
	check $mpi/exit-code 7 "" run "${start[@]}" -n 4 "${app[@]}" -- sh -c "exit 7"
	check $mpi/none-left-after 0 "^.$" nothing_left

	# Runs that end by themselves, that lose a rank, or their launcher, or all at once. The code is the launcher's without a container.
	ends() { # HOW TENTHS COMMAND...: the exit code
		local how=$1 after=$2 launcher
		shift 2
		(cd "$work/home" && exec setpriv --reuid $uid --regid $uid --clear-groups env -i PATH="$PATH" HOME="$work/home" \
			"${start[@]}" -n 16 "$@" >/dev/null 2>&1) &
		launcher=$!
		sleep 0.$after
		case $how in
		rank) kill -9 "$(pgrep -n -U $uid -x sleep)" 2>/dev/null ;;
		launcher) kill -9 $launcher ;;
		all) processes | xargs -r kill -9 2>/dev/null ;;
		esac
		wait $launcher 2>/dev/null
		echo $?
	}
	wrong=0
	for ((loop = 0; loop < loops; loop++)); do
		hows=(none rank launcher all)
		how=${hows[RANDOM % 4]} after=$((RANDOM % 10))
		got=$(ends $how $after "${app[@]}" -- sleep 1)
		case $how in
		none) expected=0 ;;
		rank) expected="0|9|137" ;; # 0: none was there yet
		*) expected=137 ;;
		esac
		left=$(nothing_left)
		if ! grep -qxE "$expected" <<<"$got" || [ -n "$left" ]; then
			wrong=$((wrong + 1))
			note "$mpi loop $loop of seed $seed: $how after 0.$after s: code $got; $left"
		fi
	done
	check "$mpi/$loops-runs-with-kills" 0 "^0 wrong" echo "$wrong wrong"
done

# What holds the container for ranks to come executes its program late: the last rank ends it all the same.
cat >"$work/home/late" <<'S'
export PMIX_NAMESPACE=77 OMPI_COMM_WORLD_LOCAL_SIZE=2
rank() { # becomes the rank, whose launcher is the parent
	export PMIX_RANK=$1 OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_LOCAL_RANK=$1
	shift
	exec "$@"
}
mkfifo begun
rank 0 strace -D -f -qq -e trace=execveat -e inject=execveat:delay_enter=700000 -o held "$@" sh -c 'echo >begun; sleep 0.4' &
read -r _ <begun
(rank 1 "$@" true) || exit
wait $!
sleep 1
echo "$(grep -c 'execveat(' held) held, $(pgrep -cfx -U "$(id -u)" rt-holder) left"
S
check late-holder 0 "1 held, 0 left" run sh ./late "${app[@]}" --

# Two nodes, which are network namespaces: the ranks of each share a container, and reach those of the other. The name of a node is
# its address, since nothing here knows names.
cat >"$work/home/sum.py" <<'P'
import os
import torch
import torch.distributed as group
group.init_process_group("gloo")
rank, size = group.get_rank(), group.get_world_size()
total = torch.tensor([rank])
group.all_reduce(total)
places = [None] * size
group.all_gather_object(places, (os.environ["GROUP_RANK"], os.readlink("/proc/self/ns/mnt")))
if rank == 0:
    nodes = {node for node, _ in places}
    print(f"{size} ranks in {len(set(places))} containers on {len(nodes)} nodes, sum {int(total)}")
P
network=10.231.0
on_node() { # NODE COMMAND...
	local node=$work/node$1
	shift
	nsenter --net="$node.net" --uts="$node.uts" "$@"
}
make_nodes() {
	local n
	for n in 1 2; do
		touch "$work/node$n".{net,uts}
		unshare --net="$work/node$n.net" --uts="$work/node$n.uts" sh -c "hostname $network.$n; ip link set lo up" || return
	done
	on_node 1 ip link add veth0 type veth peer name veth0 netns "$work/node2.net" || return
	for n in 1 2; do on_node $n sh -c "ip addr add $network.$n/24 dev veth0; ip link set veth0 up" || return; done
}
# Streams go to files, because torchrun 1.13 knows no "none" under Python 3.11.
torchrun=(/usr/bin/torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint $network.1:29400 --rdzv_id job
	--redirects 2 --tee 2 --no_python)
each_node() {
	local n
	for n in 1 2; do
		(cd "$work/home" && on_node $n timeout 120 setpriv --reuid $uid --regid $uid --clear-groups env -i PATH=/usr/bin:/bin \
			HOME="$work/home" GLOO_SOCKET_IFNAME=veth0 "${torchrun[@]}" "${app[@]}" -- /usr/bin/python3 sum.py) &
	done
	wait
}
if /usr/bin/python3 -c 'import torch' 2>/dev/null && make_nodes; then
	check torchrun/two-nodes 0 "4 ranks in 2 containers on 2 nodes, sum 6" each_node
	umount "$work"/node[12].*
	check torchrun/none-left 0 "^.$" nothing_left
else
	skip torchrun "no torchrun, or no network namespaces"
fi

done_testing
