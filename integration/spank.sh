#!/bin/bash
# Slurm's plugin on a cluster of the Slurm that is installed, with images from a registry on loopback.
# usage: integration/spank.sh RT (root; rt-pull and rt-image are beside it)
set -uo pipefail
rt=$(realpath "${1:-build/rt}") || exit 1
cd "$(dirname "$0")/spank"
. ../tap
[ "$(id -u)" = 0 ] || skip_all "only root can start slurmd"
../packages munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins busybox-static python3 docker-registry skopeo umoci squashfs-tools \
	mpich libmpich-dev openmpi-bin libopenmpi-dev
for program in slurmctld slurmd munged srun busybox docker-registry skopeo umoci mksquashfs; do
	command -v $program >/dev/null || skip_all "$program is not installed"
done
make --no-print-directory -C ../../spank >/dev/null || exit 1
export CLUSTER_DIR=${CLUSTER_DIR:-/tmp/rt-spank-$$} RT_USER=${RT_USER:-rtspank} TASKPLUGIN=task/affinity PORT=${PORT:-16917}
id "$RT_USER" >/dev/null 2>&1 || { useradd -M -d /nonexistent "$RT_USER" && made=yes; }
trap '../slurm/cluster down; ./images down "$CLUSTER_DIR/images"; [ -z "${made:-}" ] || userdel "$RT_USER"; rm -rf "$CLUSTER_DIR"' EXIT
mkdir -p "$CLUSTER_DIR/bin"
chmod 755 "$CLUSTER_DIR" "$CLUSTER_DIR/bin"
install -m 755 "$rt" "$(dirname "$rt")"/rt-{pull,image} "$CLUSTER_DIR/bin"
ln -sf rt "$CLUSTER_DIR/bin/rt-slurm-task"
install -m 644 ../../spank/build/rt_spank.so "$CLUSTER_DIR/rt_spank.so"
export SPANK="required $CLUSTER_DIR/rt_spank.so rt=$CLUSTER_DIR/bin/rt"
export NODES=${NODES:-1} NET=${NET:-10.98.7}
address=127.0.0.1
[ "$NODES" = 1 ] || address=$NET.1 # which the nodes reach
./images up "$CLUSTER_DIR/images" "$((PORT + 7))" "$address" || exit 1
../slurm/cluster up || exit 1
../slurm/cluster oci "$CLUSTER_DIR/bin/rt"
include battery ./battery "$CLUSTER_DIR/bin/rt" "$CLUSTER_DIR/images"
include export ./export "$CLUSTER_DIR/bin/rt"
# Under oci.conf this Slurm has no MPI.
include mpi env MPI_BY=--container-image ../slurm/mpi "$CLUSTER_DIR/bin/rt"
constrains() {
	local controller
	for controller in cpuset memory devices freezer; do [ -d /sys/fs/cgroup/$controller ] || return 1; done
}
../slurm/cluster down
if [ "$NODES" = 1 ] && constrains; then
	include memory ./memory "$CLUSTER_DIR/bin" "$CLUSTER_DIR/rt_spank.so" "$CLUSTER_DIR/images"
else
	skip memory "several nodes, or no cpuset, memory, devices and freezer of cgroup v1"
fi
# Once more, with a /tmp for each job.
for kind in $(../slurm/cluster kinds); do
	include "private-tmp-$kind" ./private-tmp "$CLUSTER_DIR/bin" "$CLUSTER_DIR/rt_spank.so" "$kind"
done
done_testing
